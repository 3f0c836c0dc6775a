#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::cfg::Cfg;
use super::definitions::{Definitions, Location};
use super::dominators::{Dominators, PostDominators};
use super::induction::{self, Induction, Step};
use super::loops::{LoopForest, LoopId};
use super::uniformity::{Divergence, Uniformity};
use crate::entity::{BbId, RegId};
use crate::inst::{Comparison, Operand};
use crate::kernel::Kernel;
use crate::text::parse;
use crate::types::Type;

/// A kernel of empty blocks with these successors, enough for the graph analyses.
fn graph(edges: &[&[u32]]) -> Cfg {
    Cfg::from_edges(edges.iter().map(|s| s.iter().copied().map(BbId).collect()).collect())
}

fn bbs(ids: &[u32]) -> Vec<BbId> {
    ids.iter().copied().map(BbId).collect()
}

fn kernel(body: &str) -> Kernel {
    let header = "kernel \"k\" {\nreg %r0..%r9 w32\nreg %r10..%r15 pred\nreg %r16..%r19 w64\nreg %r20 w32\n";
    parse::kernel(&format!("{header}{body}}}\n")).unwrap()
}

/// 0 → 1 ⇄ (2 → 3 ⇄ 4) → 5 → 1, 1 → 6; block 7 is unreachable.
const NESTED: &[&[u32]] = &[&[1], &[2, 6], &[3], &[4, 5], &[3], &[1], &[], &[6]];

#[test]
fn order_puts_blocks_before_their_successors() {
    let cfg = graph(NESTED);
    assert_eq!(cfg.reverse_post_order().first(), Some(&BbId(0)));
    assert_eq!(cfg.reverse_post_order().len(), 7);
    assert!(!cfg.is_reachable(BbId(7)));
    assert_eq!(cfg.predecessors(BbId(6)), bbs(&[1, 7]));
    for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4), (3, 5), (1, 6)] {
        assert!(cfg.position(BbId(from)) < cfg.position(BbId(to)), "{from} before {to}");
    }
}

#[test]
fn a_branch_with_two_equal_targets_is_one_edge() {
    let cfg = graph(&[&[1, 1], &[]]);
    assert_eq!(cfg.successors(BbId(0)), bbs(&[1]));
    assert_eq!(cfg.predecessors(BbId(1)), bbs(&[0]));
}

#[test]
fn dominators_of_nested_loops() {
    let cfg = graph(NESTED);
    let d = Dominators::new(&cfg);
    let immediate: Vec<Option<u32>> = (0..8).map(|b| d.immediate(BbId(b)).map(|b| b.0)).collect();
    assert_eq!(
        immediate,
        [None, Some(0), Some(1), Some(2), Some(3), Some(3), Some(1), None]
    );
    assert!(d.dominates(BbId(1), BbId(5)) && d.dominates(BbId(5), BbId(5)));
    assert!(!d.dominates(BbId(4), BbId(5)) && !d.dominates(BbId(7), BbId(6)) && !d.dominates(BbId(7), BbId(7)));
}

#[test]
fn post_dominators_of_a_diamond_and_of_an_endless_loop() {
    let cfg = graph(&[&[1, 2], &[3], &[3], &[4, 5], &[4], &[]]);
    let p = PostDominators::new(&cfg);
    assert_eq!(p.immediate(BbId(0)), Some(BbId(3)));
    assert_eq!(p.immediate(BbId(1)), Some(BbId(3)));
    assert_eq!(p.immediate(BbId(3)), None, "block 4 never ends");
    assert_eq!(p.immediate(BbId(4)), None);
}

/// Dominance by its definition: taking `a` out cuts `b` off.
fn cuts_off(edges: &[Vec<BbId>], a: usize, b: usize) -> bool {
    let mut seen = vec![false; edges.len()];
    let mut work = vec![0];
    while let Some(at) = work.pop() {
        if at != a && !seen[at] {
            seen[at] = true;
            work.extend(edges[at].iter().map(|s| s.index()));
        }
    }
    !seen[b]
}

#[test]
fn dominators_agree_with_the_definition_on_random_graphs() {
    let mut state = 7u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..300 {
        let n = 2 + below(12);
        // Nothing leads to the entry, as in a kernel.
        let edges: Vec<Vec<BbId>> = (0..n)
            .map(|_| (0..below(3)).map(|_| BbId(1 + below(n - 1) as u32)).collect())
            .collect();
        let cfg = Cfg::from_edges(edges.clone());
        let d = Dominators::new(&cfg);
        for a in 0..n {
            for b in 0..n {
                let (x, y) = (BbId(a as u32), BbId(b as u32));
                let expected = cfg.is_reachable(x) && cfg.is_reachable(y) && (a == b || cuts_off(&edges, a, b));
                assert_eq!(d.dominates(x, y), expected, "{a} over {b} in {edges:?}");
            }
        }
    }
}

#[test]
fn loops_nest() {
    let cfg = graph(NESTED);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    assert!(forest.is_reducible());
    assert_eq!(forest.len(), 2);
    let (outer, inner) = (forest.get(LoopId(0)), forest.get(LoopId(1)));
    assert_eq!((outer.header, outer.depth, outer.parent), (BbId(1), 1, None));
    assert_eq!((&outer.latches, &outer.blocks), (&bbs(&[5]), &bbs(&[1, 2, 3, 4, 5])));
    assert_eq!(outer.exits, [(BbId(1), BbId(6))]);
    assert_eq!((inner.header, inner.depth, inner.parent), (BbId(3), 2, Some(LoopId(0))));
    assert_eq!((&inner.latches, &inner.blocks), (&bbs(&[4]), &bbs(&[3, 4])));
    assert_eq!(inner.exits, [(BbId(3), BbId(5))]);
    assert_eq!(forest.around(BbId(4)).collect::<Vec<_>>(), [LoopId(1), LoopId(0)]);
    assert_eq!(forest.innermost(BbId(6)), None);
}

#[test]
fn loops_with_one_header_are_one() {
    let cfg = graph(&[&[1], &[2, 3], &[1], &[1, 4], &[]]);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    assert_eq!(forest.len(), 1);
    assert_eq!(forest.get(LoopId(0)).latches, bbs(&[2, 3]));
}

#[test]
fn a_cycle_with_two_entries_is_irreducible() {
    let cfg = graph(&[&[1, 2], &[2, 3], &[1], &[]]);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    assert!(!forest.is_reducible() && forest.is_empty());
    assert_eq!(forest.irreducible_edges().len(), 1);
}

fn induction_of(body: &str) -> Option<Induction> {
    let kernel = kernel(body);
    let cfg = Cfg::new(&kernel);
    let dominators = Dominators::new(&cfg);
    let forest = LoopForest::new(&cfg, &dominators);
    let id = forest.iter().last().unwrap().0;
    induction::find(&kernel, &Definitions::new(&kernel), &dominators, &forest, id)
}

const COUNTED: &str = "
bb0:
  jump bb1
bb1:
  add.s32 %r0, %r0, 0xffffffff
  setp.gt.s32 %r10, %r0, %r1
  br %r10, bb1, bb2
bb2:
  exit
";

#[test]
fn finds_the_counter_of_a_single_block_loop() {
    let i = induction_of(COUNTED).unwrap();
    assert_eq!(
        (i.latch, i.exit, i.iv, i.tested),
        (BbId(1), BbId(2), RegId(0), RegId(0))
    );
    assert_eq!(
        (i.ty, i.step, i.cmp_ty, i.cmp),
        (Type::S32, Step::Constant(-1), Type::S32, Comparison::Gt)
    );
    assert_eq!(
        (i.iv_is_right, i.bound, i.continues_when),
        (false, Operand::Reg(RegId(1)), true)
    );
    assert_eq!(
        i.update,
        Location {
            block: BbId(1),
            index: 0
        }
    );
    assert_eq!(
        i.setp,
        Location {
            block: BbId(1),
            index: 1
        }
    );
}

#[test]
fn polarity_side_and_step_are_reported_as_written() {
    let i = induction_of(&COUNTED.replace("br %r10, bb1, bb2", "br %r10, bb2, bb1")).unwrap();
    assert!(!i.continues_when);
    let i = induction_of(&COUNTED.replace("br %r10, bb1, bb2", "br !%r10, bb2, bb1")).unwrap();
    assert!(i.continues_when);
    let i = induction_of(&COUNTED.replace("setp.gt.s32 %r10,", "setp.gt.s32 %r11|%r10,")).unwrap();
    assert!(!i.continues_when);
    let i = induction_of(&COUNTED.replace("%r0, %r1", "%r1, %r0")).unwrap();
    assert!(i.iv_is_right);
    let i = induction_of(&COUNTED.replace("%r0, %r0, 0xffffffff", "%r0, %r3, %r0")).unwrap();
    assert_eq!(
        i.step,
        Step::Register {
            reg: RegId(3),
            is_subtracted: false
        }
    );
    let i = induction_of(&COUNTED.replace("add.s32 %r0, %r0, 0xffffffff", "sub.s32 %r0, %r0, 3")).unwrap();
    assert_eq!(i.step, Step::Constant(-3));
}

#[test]
fn sees_through_a_copy_of_the_next_value() {
    let body = COUNTED
        .replace("add.s32 %r0, %r0, 0xffffffff", "add.s32 %r5, %r0, 1")
        .replace("%r10, %r0, %r1\n", "%r10, %r5, 100\n  mov.b32 %r0, %r5\n");
    let i = induction_of(&body).unwrap();
    assert_eq!((i.iv, i.tested, i.bound), (RegId(0), RegId(5), Operand::Imm(100)));
}

#[test]
fn refuses_what_is_not_counted() {
    for (what, body) in [
        (
            "bound written in the loop",
            COUNTED.replace("  setp", "  mov.b32 %r1, %r2\n  setp"),
        ),
        (
            "two updates",
            COUNTED.replace("  setp", "  add.s32 %r0, %r0, 1\n  setp"),
        ),
        ("guarded update", COUNTED.replace("  add", "  @%r11 add")),
        ("guarded test", COUNTED.replace("  setp", "  @%r11 setp")),
        ("combined test", COUNTED.replace("%r0, %r1\n", "%r0, %r1, and %r11\n")),
        (
            "step written in the loop",
            COUNTED.replace("%r0, 0xffffffff", "%r0, %r2\n  mov.b32 %r2, 1"),
        ),
        ("no step", COUNTED.replace("0xffffffff", "0")),
        ("tested before the update", {
            COUNTED
                .replace("  add.s32 %r0, %r0, 0xffffffff\n", "")
                .replace("  br", "  add.s32 %r0, %r0, 1\n  br")
        }),
        (
            "predicate written again",
            COUNTED.replace("  br", "  mov.pred %r10, 1\n  br"),
        ),
        ("saturating", COUNTED.replace("add.s32", "add.s32.sat")),
    ] {
        assert_eq!(induction_of(&body), None, "{what}");
    }
}

#[test]
fn refuses_an_update_that_may_be_skipped() {
    let body = "
bb0:
  jump bb1
bb1:
  br %r11, bb2, bb3
bb2:
  add.s32 %r0, %r0, 1
  jump bb3
bb3:
  setp.lt.s32 %r10, %r0, 9
  br %r10, bb1, bb4
bb4:
  exit
";
    assert_eq!(induction_of(body), None);
    assert!(induction_of(&body.replace("br %r11, bb2, bb3", "jump bb2")).is_some());
}

fn uniformity_of(body: &str) -> Uniformity {
    let kernel = kernel(body);
    Uniformity::new(&kernel, &Definitions::new(&kernel))
}

#[test]
fn divergence_follows_data() {
    let u = uniformity_of(
        "bb0:
  special %r0, ctaid_x
  special %r1, tid_x
  ld.param.u32 %r2, [0]
  mad.s32 %r3, %r0, %r2, 5
  add.s32 %r4, %r3, %r1
  ld.global.u32 %r5, [%r16]
  special %r6, warpid
  mov.b32 %r7, 0xffffffff
  warp.vote_ballot %r8|_, %r10 mask %r7
  warp.shfl_idx %r9|_, %r1, 0, 31 mask 0xffffffff
  warp.shfl_down %r20|_, %r0, 1, 31 mask 0xffffffff
  exit
",
    );
    use Divergence::{BlockUniform as B, Divergent as D, WarpUniform as W};
    for (reg, expected) in [
        (0, B),
        (1, D),
        (2, B),
        (3, B),
        (4, D),
        (5, D),
        (6, W),
        (7, B),
        (8, W),
        (9, W),
        (20, D),
    ] {
        assert_eq!(u.register(RegId(reg)), expected, "%r{reg}");
    }
}

#[test]
fn values_written_under_a_divergent_branch_are_divergent() {
    let u = uniformity_of(
        "bb0:
  special %r1, tid_x
  setp.lt.s32 %r10, %r1, 7
  br %r10, bb1, bb2
bb1:
  mov.b32 %r2, 1
  jump bb3
bb2:
  mov.b32 %r2, 2
  jump bb3
bb3:
  mov.b32 %r3, 3
  setp.lt.s32 %r11, %r2, %r3
  br %r11, bb4, bb5
bb4:
  exit
bb5:
  mov.b32 %r4, 4
  exit
",
    );
    assert_eq!(u.register(RegId(2)), Divergence::Divergent);
    assert_eq!(u.register(RegId(3)), Divergence::BlockUniform, "after the join");
    assert_eq!(u.control(BbId(1)), Divergence::Divergent);
    assert_eq!(u.control(BbId(3)), Divergence::BlockUniform);
    assert_eq!(
        u.control(BbId(5)),
        Divergence::BlockUniform,
        "those that remain come here together"
    );
    assert_eq!(u.branch(BbId(3)), Divergence::Divergent);
}

#[test]
fn values_of_a_loop_left_at_different_times_are_divergent() {
    let text = "bb0:
  special %r1, tid_x
  br %r12, bb1, bb3
bb1:
  add.s32 %r0, %r0, 1
  setp.lt.s32 %r10, %r0, %r1
  br %r10, bb1, bb2
bb2:
  mov.b32 %r2, %r0
  jump bb3
bb3:
  exit
";
    let u = uniformity_of(text);
    assert_eq!(u.register(RegId(0)), Divergence::Divergent);
    assert_eq!(u.branch(BbId(1)), Divergence::Divergent);
    let u = uniformity_of(&text.replace("tid_x", "ntid_x"));
    assert_eq!(u.register(RegId(0)), Divergence::BlockUniform);
    assert_eq!(u.branch(BbId(1)), Divergence::BlockUniform);
}

#[test]
fn an_endless_loop_with_a_divergent_choice_is_divergent() {
    let u = uniformity_of(
        "bb0:
  special %r1, tid_x
  jump bb1
bb1:
  setp.lt.s32 %r10, %r1, 7
  br %r10, bb2, bb3
bb2:
  jump bb1
bb3:
  add.s32 %r0, %r0, 1
  br %r11, bb1, bb4
bb4:
  exit
",
    );
    assert_eq!(u.register(RegId(0)), Divergence::Divergent);
}
