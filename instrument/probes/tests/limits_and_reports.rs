//! What cannot be probed says so; what may not be is left alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::parse;
use hetckpt_probes::check::check;
use hetckpt_probes::error::Error;
use hetckpt_probes::options::Options;
use hetckpt_probes::pipeline;
use hetckpt_probes::probe;
use hetckpt_probes::report::{LoopProbe, Unprobed};

fn kernel(body: &str) -> Kernel {
    parse::kernel(&format!(
        "kernel \"k\" {{\n  reg %r0..%r1 w32\n  reg %r2 pred\n{body}}}\n"
    ))
    .unwrap()
}

#[test]
fn barriers_that_are_not_the_whole_blocks_have_resume_points_too() {
    let text = "bb0:\n  barrier 3 count 64 next bb1 !17\nbb1:\n  exit\n";
    let probed = probe(&kernel(text), &Options::default()).unwrap();
    assert_eq!(probed.resume_points.len(), 3, "the entry, before and behind it");
    assert!(probed.partial_barrier().is_some());
}

#[test]
fn rejects_what_was_probed_and_what_is_empty() {
    let probed = probe(&kernel("bb0:\n  exit\n"), &Options::default()).unwrap();
    assert_eq!(
        probe(&probed, &Options::default()).unwrap_err(),
        Error::AlreadyProbed { kernel: "k".into() }
    );
    let mut empty = kernel("bb0:\n  exit\n");
    empty.blocks.clear();
    assert_eq!(
        probe(&empty, &Options::default()).unwrap_err(),
        Error::NoCode { kernel: "k".into() }
    );
}

const LOOP: &str = "bb1:
  add.u32 %r0, %r0, 1
  setp.lt.u32 %r2, %r0, 100
  br %r2, bb1, bb2
bb2:
  exit
";

#[test]
fn loops_beside_operations_on_part_of_a_warp_carry_no_probe() {
    for mask in ["0xffff", "%r1"] {
        let kernel = kernel(&format!(
            "bb0:\n  warp.shfl_down %r0|_, %r0, 1, 31 mask {mask}\n  jump bb1\n{LOOP}"
        ));
        let (probed, report) = pipeline::run(&kernel, &Options::default()).unwrap();
        assert_eq!(report.unprobed, Some(Unprobed::PartialWarpMask));
        assert_eq!(report.loops[0].probe, LoopProbe::None);
        check(&kernel, &probed).unwrap();
        let polls = probed
            .blocks
            .iter()
            .filter(|b| matches!(b.terminator, Terminator::Poll { .. }))
            .count();
        assert_eq!(polls, 1, "the entry's");
    }
}

#[test]
fn nothing_stops_between_an_asynchronous_copy_and_its_wait() {
    let body = "bb0:\n  opaque \"cp.async.commit_group;\" uses {} defs {}\n  barrier 0 next bb3\n";
    let kernel = kernel(&format!("{body}{}bb3:\n  jump bb1\n", LOOP));
    let (probed, report) = pipeline::run(&kernel, &Options::default()).unwrap();
    assert_eq!(report.unprobed, Some(Unprobed::AsyncCopies));
    assert_eq!(probed.resume_points.len(), 1);
    check(&kernel, &probed).unwrap();
}

#[test]
fn every_iteration_that_passes_a_barrier_needs_nothing_more() {
    let kernel = kernel(
        "bb0:
  mov.u32 %r0, 0
  jump bb1
bb1:
  add.u32 %r0, %r0, 1
  setp.lt.u32 %r2, %r0, 100
  barrier 0 next bb2
bb2:
  br %r2, bb1, bb3
bb3:
  exit
",
    );
    let (probed, report) = pipeline::run(&kernel, &Options::default()).unwrap();
    assert_eq!(report.loops[0].probe, LoopProbe::HasBarrier);
    assert_eq!(report.num_barriers, 1);
    check(&kernel, &probed).unwrap();
}

#[test]
fn a_barrier_on_one_way_only_does_not_do() {
    let kernel = kernel(
        "bb0:
  mov.u32 %r0, 0
  jump bb1
bb1:
  add.u32 %r0, %r0, 1
  setp.lt.u32 %r2, %r0, 50
  br %r2, bb2, bb3
bb2:
  barrier 0 next bb3
bb3:
  setp.lt.u32 %r2, %r0, 100
  br %r2, bb1, bb4
bb4:
  exit
",
    );
    let (probed, report) = pipeline::run(&kernel, &Options::default()).unwrap();
    assert!(
        matches!(report.loops[0].probe, LoopProbe::StripMined { .. }),
        "{report}"
    );
    check(&kernel, &probed).unwrap();
}

#[test]
fn an_entry_that_is_a_loop_gets_a_block_before_it() {
    let kernel = kernel(
        "bb0:
  add.u32 %r0, %r0, 1
  setp.lt.u32 %r2, %r0, 100
  br %r2, bb0, bb1
bb1:
  exit
",
    );
    let probed = probe(&kernel, &Options::default()).unwrap();
    check(&kernel, &probed).unwrap();
}
