//! A warp-level operation that lanes can reach after others of their warp have stopped must ask for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{Error, GlobalMemory, Launch, Pause, Run, run};
use hetckpt_ir::entity::BbId;
use hetckpt_ir::text::parse;
use hetckpt_ir::types::Dim3;
use hetckpt_ir::validate;

/// Lane `i` goes round the loop `i` times, then all meet.
const KERNEL: &str = r#"kernel "k" {
  reg %r0..%r2 w32
  reg %r3 pred
  resume rp0 entry bb0
  resume rp1 loop bb2
  resume rp2 warp_arrive bb3
  resume rp3 warp_leave bb4
bb0:
  special %r0, tid_x
  poll rp0, bb1
bb1:
  poll rp1, bb2
bb2:
  add.s32 %r1, %r1, 1
  setp.lt.s32 %r3, %r1, %r0
  br %r3, bb1, bb3
bb3:
  warp.redux.add.u32 %r2|_, %r1 mask 0xffffffff arrive rp2 leave rp3 poll
  jump bb4
bb4:
  exit
}
"#;

fn pause_in_loop(text: &str) -> Result<Run, Error> {
    let kernel = parse::kernel(text).unwrap();
    validate::probed_kernel(&kernel).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    let program = Program::from_start(kernel);
    let one = Dim3 { x: 1, y: 1, z: 1 };
    let launch = Launch::new(&program, &layout, one, Dim3 { x: 32, ..one }, &[]);
    run(
        Launch {
            pause: Pause::AtPoll(100),
            ..launch
        },
        &mut GlobalMemory::new(),
    )
}

#[test]
fn lanes_that_wait_for_stopped_ones_stop_too() {
    let left = pause_in_loop(KERNEL).unwrap().left;
    let points = &left.paused[0].resume_points;
    assert!(points.contains(&1) && points.contains(&2), "{points:?}");
    assert_eq!(points.iter().filter(|p| **p != 1 && **p != 2).count(), 0, "{points:?}");
}

#[test]
fn an_operation_that_does_not_ask_is_found() {
    let silent = KERNEL.replace(" poll\n", "\n");
    assert_eq!(pause_in_loop(&silent), Err(Error::MissingPoll { at: BbId(3) }));
}
