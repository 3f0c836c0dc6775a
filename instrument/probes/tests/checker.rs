//! The checker finds what is broken on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_conformance::random_kernels;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::{parse, print};
use hetckpt_probes::check::{Violation, check};
use hetckpt_probes::options::Options;
use hetckpt_probes::probe;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_any_instruction_left_out(seed in any::<u64>(), which in any::<prop::sample::Index>()) {
        let kernel = random_kernels::kernel(seed);
        let mut probed = probe(&kernel, &Options::default()).unwrap();
        let from_ptx: Vec<(usize, usize)> = places(&probed, |k, b, i| k.blocks[b].insts[i].span.line != 0);
        let (block, index) = from_ptx[which.index(from_ptx.len())];
        probed.blocks[block].insts.remove(index);
        prop_assert!(check(&kernel, &probed).is_err(), "bb{block} {index}\n{}", print::kernel(&probed));
    }

    #[test]
    fn finds_any_branch_turned_round(seed in any::<u64>(), which in any::<prop::sample::Index>()) {
        let kernel = random_kernels::kernel(seed);
        let mut probed = probe(&kernel, &Options::default()).unwrap();
        let old = kernel.registers.len();
        let mut guards: Vec<_> = probed.blocks.iter_mut().filter_map(|block| match &mut block.terminator {
            Terminator::Branch { guard, taken, not_taken } if guard.pred.index() < old && taken != not_taken => Some(guard),
            _ => None,
        }).collect();
        prop_assume!(!guards.is_empty());
        let at = which.index(guards.len());
        guards[at].negated ^= true;
        prop_assert!(check(&kernel, &probed).is_err());
    }
}

fn places(kernel: &Kernel, keep: impl Fn(&Kernel, usize, usize) -> bool) -> Vec<(usize, usize)> {
    let blocks = kernel.blocks.iter().enumerate();
    let all = blocks.flat_map(|(b, block)| (0..block.insts.len()).map(move |i| (b, i)));
    all.filter(|&(b, i)| keep(kernel, b, i)).collect()
}

/// A loop that is strip-mined, a barrier, a warp-level operation.
const KERNEL: &str = r#"kernel "k" {
  reg %r0..%r2 w32
  reg %r3 pred
bb0:
  special %r0, tid_x !1
  mov.u32 %r1, 0 !2
  jump bb1 !3
bb1:
  st.global.u32 [0], %r1 !4
  add.u32 %r1, %r1, 1 !5
  setp.lt.u32 %r3, %r1, %r0 !6
  br %r3, bb1, bb2 !7
bb2:
  warp.shfl_down %r2|_, %r0, 16, 31 mask 0xffffffff !8
  barrier 0 next bb3 !9
bb3:
  st.global.u32 [8], %r2 !10
  exit !11
}
"#;

fn broken(break_it: impl Fn(&mut Kernel)) -> Vec<Violation> {
    let kernel = parse::kernel(KERNEL).unwrap();
    let mut probed = probe(&kernel, &Options::default()).unwrap();
    check(&kernel, &probed).unwrap();
    break_it(&mut probed);
    check(&kernel, &probed).unwrap_err()
}

fn find(kernel: &Kernel, is_it: impl Fn(&Terminator) -> bool) -> BbId {
    kernel.iter_blocks().find(|(_, b)| is_it(&b.terminator)).unwrap().0
}

#[test]
fn finds_a_loop_without_its_poll() {
    let found = broken(|k| {
        let poll = k
            .iter_blocks()
            .skip(1)
            .find(|(_, b)| matches!(b.terminator, Terminator::Poll { .. }))
            .unwrap()
            .0;
        let Terminator::Poll { next, .. } = k.blocks[poll.index()].terminator else {
            panic!()
        };
        k.blocks[poll.index()].terminator = Terminator::Jump(next);
    });
    assert!(
        found.iter().any(|v| matches!(v, Violation::UnprobedCycle(_))),
        "{found:?}"
    );
    assert!(
        found.iter().any(|v| matches!(v, Violation::ResumePoint(_, 0))),
        "{found:?}"
    );
}

#[test]
fn finds_a_barrier_that_does_not_stand_alone() {
    let found = broken(|k| {
        let barrier = find(k, |t| matches!(t, Terminator::Barrier { .. }));
        let inst = k.blocks[0].insts[0].clone();
        k.blocks[barrier.index()].insts.push(inst);
    });
    assert!(found.iter().any(|v| matches!(v, Violation::Barrier(_))), "{found:?}");
}

#[test]
fn finds_a_resume_point_in_the_wrong_place() {
    for point in 0..6 {
        let found = broken(|k| {
            let block = &mut k.resume_points[point].block;
            *block = BbId(block.0 ^ 1);
        });
        assert!(!found.is_empty(), "{}", ResumePointId(u32::try_from(point).unwrap()));
    }
}

#[test]
fn finds_a_side_effect_before_the_entry_probe() {
    let found = broken(|k| {
        let store = k.blocks[1].insts[0].clone();
        assert!(matches!(store.op, Op::Store { .. }));
        k.blocks[0].insts.push(store);
    });
    assert!(found.contains(&Violation::Entry), "{found:?}");
}

#[test]
fn finds_a_chunk_that_does_not_ask_again() {
    let found = broken(|k| {
        let poll = k
            .iter_blocks()
            .skip(1)
            .find(|(_, b)| matches!(b.terminator, Terminator::Poll { .. }))
            .unwrap()
            .0;
        let asks = find(k, |t| t.successors().contains(&poll));
        let Terminator::Branch { not_taken, .. } = k.blocks[asks.index()].terminator else {
            panic!()
        };
        k.blocks[asks.index()].terminator = Terminator::Jump(not_taken);
    });
    assert!(
        found.iter().any(|v| matches!(v, Violation::Differs { .. })),
        "{found:?}"
    );
}
