//! A thread stopped at any poll and continued with nothing but its live registers does what it would have done.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_conformance::one_thread::{End, Stops, run, run_from};
use hetckpt_conformance::random_kernels;
use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, ResumePointId, Span};
use hetckpt_ir::inst::Guard;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::parse;
use hetckpt_ir::types::Width;
use hetckpt_probes::options::Options;
use hetckpt_probes::probe;
use hetckpt_resegment::continuation::{Error, Peel, continuation};
use proptest::prelude::*;

const EVENTS: usize = 200;

fn all_points(kernel: &Kernel) -> Vec<ResumePointId> {
    (0..u32::try_from(kernel.resume_points.len()).unwrap())
        .map(ResumePointId)
        .collect()
}

fn entry(program: &Program, point: ResumePointId) -> BbId {
    program.entries.iter().find(|(p, _)| *p == point).unwrap().1
}

/// The control flow of a continuation as a generator makes it: a dispatch at the start that goes to every entry.
fn with_dispatch(program: &Program) -> Kernel {
    let mut kernel = program.kernel.clone();
    let pred = kernel.add_register(Width::Pred);
    let original = BbId(u32::try_from(kernel.blocks.len()).unwrap());
    let mut first = kernel.blocks[0].clone();
    kernel.blocks.push(first.clone());
    for &(_, block) in &program.entries {
        let next = BbId(u32::try_from(kernel.blocks.len()).unwrap());
        first.insts.clear();
        let block = if block == Kernel::ENTRY { original } else { block };
        let guard = Guard { pred, negated: false };
        let not_taken = BbId(next.0 + 1);
        first.terminator = Terminator::Branch {
            guard,
            taken: block,
            not_taken,
        };
        kernel.blocks.push(first.clone());
    }
    kernel.blocks.push(BasicBlock {
        insts: vec![],
        terminator: Terminator::Exit,
        span: Span::default(),
    });
    kernel.blocks[0] = BasicBlock {
        insts: vec![],
        terminator: Terminator::Jump(BbId(original.0 + 1)),
        span: Span::default(),
    };
    kernel
}

fn is_reducible(kernel: &Kernel) -> bool {
    let cfg = Cfg::new(kernel);
    LoopForest::new(&cfg, &Dominators::new(&cfg)).is_reducible()
}

/// Stops at every poll in turn, each time going on in a continuation for the one resume point; what it stores.
fn hop_through(probed: &Kernel, peel: Peel, is_shared: bool) -> (Vec<(u64, u64)>, bool) {
    let mut trace = Vec::new();
    let mut part = run(probed, &[], EVENTS, Stops::At(1));
    for _ in 0..60 {
        trace.append(&mut part.trace);
        let state = match part.end {
            End::Exit => return (trace, true),
            End::CutOff => return (trace, false),
            End::Stopped(state) => state,
        };
        let points = if is_shared {
            all_points(probed)
        } else {
            vec![state.point]
        };
        let program = continuation(probed, &points, peel).unwrap();
        let start = entry(&program, state.point);
        part = run_from(&program.kernel, &[], EVENTS, Stops::At(1), start, state.registers);
    }
    trace.append(&mut part.trace);
    (trace, part.end == End::Exit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn continue_what_was_stopped(seed in any::<u64>(), chunk in 1u32..20) {
        let kernel = random_kernels::kernel(seed);
        let probed = probe(&kernel, &Options::dense(chunk)).unwrap();
        let whole = run(&kernel, &[], EVENTS * 70, Stops::Never);
        for (peel, is_shared) in [(Peel::None, false), (Peel::Loops, false), (Peel::Loops, true)] {
            let (trace, has_ended) = hop_through(&probed, peel, is_shared);
            let n = trace.len().min(whole.trace.len());
            prop_assert_eq!(&trace[..n], &whole.trace[..n]);
            if has_ended && whole.end == End::Exit {
                prop_assert_eq!(trace.len(), whole.trace.len());
            }
        }
    }

    #[test]
    fn keep_ids_layout_and_reducibility(seed in any::<u64>(), chunk in 1u32..20) {
        let probed = probe(&random_kernels::kernel(seed), &Options::dense(chunk)).unwrap();
        let layout = ThreadStateLayout::new(&probed);
        let points = all_points(&probed);
        for points in std::iter::once(points.clone()).chain(points.iter().map(|&p| vec![p])) {
            let program = continuation(&probed, &points, Peel::Loops).unwrap();
            hetckpt_ir::validate::kernel(&program.kernel).unwrap();
            prop_assert_eq!(&program.kernel.blocks[..probed.blocks.len()], &probed.blocks[..]);
            prop_assert_eq!(&program.kernel.resume_points, &probed.resume_points);
            prop_assert_eq!(&ThreadStateLayout::new(&program.kernel), &layout);
            prop_assert_eq!(program.entries.iter().map(|e| e.0).collect::<Vec<_>>(), points);
            prop_assert!(is_reducible(&with_dispatch(&program)));
            // A copy needs what its original needs: the state saved in one is right for the other.
            let liveness = hetckpt_ir::analysis::liveness::Liveness::new(&program.kernel);
            for &(point, block) in &program.entries {
                prop_assert_eq!(liveness.live_in(block), liveness.live_in(probed.resume_points[point.index()].block));
            }
        }
    }
}

/// Three loops deep; a poll in the innermost, whose continuation needs a copy of each loop around it.
const NEST: &str = r#"kernel "nest" {
  reg %r0..%r2 w32
  reg %r3 pred
  resume rp0 entry bb0
  resume rp1 loop bb4
  resume rp2 loop bb3
bb0:
  mov.u32 %r0, 0
  poll rp0, bb1
bb1:
  mov.u32 %r1, 0
  jump bb2
bb2:
  mov.u32 %r2, 0
  jump bb3
bb3:
  add.u32 %r2, %r2, 1
  poll rp1, bb4
bb4:
  setp.lt.u32 %r3, %r2, 3
  br %r3, bb3, bb5
bb5:
  add.u32 %r1, %r1, 1
  setp.lt.u32 %r3, %r1, 3
  br %r3, bb2, bb6
bb6:
  st.global.u32 [0], %r1
  add.u32 %r0, %r0, 1
  setp.lt.u32 %r3, %r0, 3
  br %r3, bb1, bb7
bb7:
  exit
}
"#;

#[test]
fn copies_the_rest_of_each_iteration_once() {
    let kernel = parse::kernel(NEST).unwrap();
    let program = continuation(&kernel, &[ResumePointId(1)], Peel::Loops).unwrap();
    // Of the innermost loop bb4; of the next bb3, bb4, bb5; of the outermost bb2 … bb6.
    assert_eq!(program.kernel.blocks.len(), 8 + 1 + 3 + 5);
    assert!(is_reducible(&with_dispatch(&program)));
    // The header of the innermost loop needs no copy of that loop's rest.
    let program = continuation(&kernel, &[ResumePointId(2)], Peel::Loops).unwrap();
    assert_eq!(program.kernel.blocks.len(), 8 + 3 + 5);
    let program = continuation(&kernel, &[ResumePointId(0), ResumePointId(2)], Peel::None).unwrap();
    assert!(!is_reducible(&with_dispatch(&program)), "which is what peeling is for");
}

#[test]
fn entry_is_the_kernel_itself() {
    let kernel = parse::kernel(NEST).unwrap();
    let program = continuation(&kernel, &[ResumePointId(0)], Peel::Loops).unwrap();
    assert_eq!(program, Program::from_start(kernel));
}

#[test]
fn entries_are_in_order_of_resume_points() {
    let kernel = parse::kernel(NEST).unwrap();
    let program = continuation(
        &kernel,
        &[ResumePointId(2), ResumePointId(0), ResumePointId(1)],
        Peel::None,
    )
    .unwrap();
    let blocks = [(0, 0), (1, 4), (2, 3)].map(|(p, b)| (ResumePointId(p), BbId(b)));
    assert_eq!(program.entries, blocks);
    assert!(program.is_continuation());
}

#[test]
fn rejects_points_that_are_not_the_kernels() {
    let kernel = parse::kernel(NEST).unwrap();
    let error = continuation(&kernel, &[ResumePointId(3)], Peel::Loops).unwrap_err();
    assert_eq!(error, Error::UnknownResumePoint(ResumePointId(3)));
    let twice = [ResumePointId(1), ResumePointId(0), ResumePointId(1)];
    let error = continuation(&kernel, &twice, Peel::None).unwrap_err();
    assert_eq!(error, Error::DuplicateResumePoint(ResumePointId(1)));
    let mut broken = kernel;
    broken.resume_points[1].block = BbId(99);
    assert_eq!(
        continuation(&broken, &[ResumePointId(1)], Peel::None).unwrap_err(),
        Error::NoBlock(ResumePointId(1))
    );
}
