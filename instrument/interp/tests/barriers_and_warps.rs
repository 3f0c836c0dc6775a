//! Barriers and warp-level operations by CUDA's rules, on kernels in text form.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{Error, GlobalMemory, Launch, Options, run};
use hetckpt_ir::text::parse;
use hetckpt_ir::types::Dim3;
use hetckpt_ir::validate;

const OUT: u64 = 0x1000;

/// Runs one block; `body` starts in bb0 with `%r0` = thread, and what it leaves in `%r9` is each thread's result.
/// `end` names the block that stores it.
fn results(threads: u32, body: &str, end: u32) -> Result<Vec<u32>, Error> {
    let text = format!(
        "kernel \"k\" {{\n  shared 1024\n  reg %r0..%r9 w32\n  reg %r10..%r15 pred\n  reg %r16 w64\n\
         bb0:\n  special %r0, tid_x\n{body}bb{end}:\n  mul_wide.u32 %r16, %r0, 4\n  st.global.b32 [%r16+4096], %r9\n  exit\n}}\n"
    );
    let kernel = parse::kernel(&text).unwrap();
    validate::kernel(&kernel).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    let program = Program::from_start(kernel);
    let mut memory = GlobalMemory::new();
    memory.map(OUT, vec![0; 4 * threads as usize]);
    let one = Dim3 { x: 1, y: 1, z: 1 };
    let launch = Launch::new(&program, &layout, one, Dim3 { x: threads, ..one }, &[]);
    run(
        Launch {
            options: Options {
                max_steps: 100_000,
                ..Options::default()
            },
            ..launch
        },
        &mut memory,
    )?;
    Ok(memory
        .range(OUT)
        .unwrap()
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
        .collect())
}

fn warp_op(op: &str) -> Vec<u32> {
    results(
        32,
        &format!("  setp.ge.u32 %r10, %r0, 30\n  {op} mask 0xffffffff\n  jump bb1\n"),
        1,
    )
    .unwrap()
}

#[test]
fn shuffles() {
    let lanes = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
    assert_eq!(warp_op("warp.shfl_idx %r9|_, %r0, 5, 31"), lanes(|_| 5));
    assert_eq!(
        warp_op("warp.shfl_up %r9|_, %r0, 3, 0"),
        lanes(|i| if i < 3 { i } else { i - 3 })
    );
    assert_eq!(
        warp_op("warp.shfl_down %r9|_, %r0, 3, 31"),
        lanes(|i| if i > 28 { i } else { i + 3 })
    );
    assert_eq!(warp_op("warp.shfl_bfly %r9|_, %r0, 1, 31"), lanes(|i| i ^ 1));
    // Segments of 8 lanes: c = (32 - 8) << 8 | 31.
    assert_eq!(warp_op("warp.shfl_idx %r9|_, %r0, 5, 6175"), lanes(|i| i / 8 * 8 + 5));
    assert_eq!(
        warp_op("warp.shfl_down %r9|_, %r0, 3, 6175"),
        lanes(|i| if i % 8 > 4 { i } else { i + 3 })
    );
    assert_eq!(
        warp_op("warp.shfl_up %r9|_, %r0, 3, 6144"),
        lanes(|i| if i % 8 < 3 { i } else { i - 3 })
    );
}

#[test]
fn a_shuffle_says_whether_its_source_was_in_the_segment() {
    let op = "warp.shfl_down %r1|%r11, %r0, 3, 31 mask 0xffffffff\n  selp.b32 %r9, 1, 0, %r11\n  jump bb1\n";
    let expected: Vec<u32> = (0..32).map(|i| u32::from(i < 29)).collect();
    assert_eq!(results(32, op, 1).unwrap(), expected);
}

#[test]
fn votes_and_reductions() {
    assert_eq!(warp_op("warp.vote_ballot %r9|_, %r10"), [0xc000_0000; 32]);
    assert_eq!(warp_op("warp.redux.max.u32 %r9|_, %r0"), [31; 32]);
    assert_eq!(warp_op("warp.redux.add.s32 %r9|_, %r0"), [496; 32]);
    let vote = |op: &str| {
        let text = format!(
            "  setp.ge.u32 %r10, %r0, 30\n  warp.{op} _|%r11, %r10 mask 0xffffffff\n  selp.b32 %r9, 1, 0, %r11\n  jump bb1\n"
        );
        results(32, &text, 1).unwrap()
    };
    assert_eq!(
        (vote("vote_any"), vote("vote_all"), vote("vote_uni")),
        (vec![1; 32], vec![0; 32], vec![0; 32])
    );
}

#[test]
fn matches_group_equal_values() {
    let text = "  and.b32 %r1, %r0, 1\n  warp.match_any.b32 %r9|_, %r1 mask 0xffffffff\n  jump bb1\n";
    let expected: Vec<u32> = (0..32)
        .map(|i| if i % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa })
        .collect();
    assert_eq!(results(32, text, 1).unwrap(), expected);
}

#[test]
fn exited_lanes_are_not_waited_for_and_a_partial_warp_is_enough() {
    let body = "  setp.lt.u32 %r10, %r0, 4\n  br %r10, bb1, bb2\nbb1:\n  exit\nbb2:\n  \
                setp.eq.u32 %r11, %r0, %r0\n  warp.vote_ballot %r9|_, %r11 mask 0xffffffff\n  jump bb3\n";
    let results = results(20, body, 3).unwrap();
    assert_eq!(results[..4], [0; 4]);
    assert_eq!(results[4..], [0x000f_fff0; 16]);
}

#[test]
fn lanes_meet_across_divergent_code_by_mask() {
    // Even and odd lanes go different ways and each half meets in its own operation.
    let body = "  and.b32 %r1, %r0, 1\n  setp.ne.u32 %r10, %r1, 0\n  br %r10, bb1, bb2\n\
                bb1:\n  warp.redux.add.u32 %r9|_, %r0 mask 0xaaaaaaaa\n  jump bb3\n\
                bb2:\n  warp.redux.add.u32 %r9|_, %r0 mask 0x55555555\n  jump bb3\n";
    let expected: Vec<u32> = (0..32).map(|i| if i % 2 == 1 { 256 } else { 240 }).collect();
    assert_eq!(results(32, body, 3).unwrap(), expected);
}

#[test]
fn a_lane_outside_its_mask_is_an_error() {
    let body = "  warp.redux.add.u32 %r9|_, %r0 mask 0xfffffffe\n  jump bb1\n";
    assert_eq!(
        results(32, body, 1),
        Err(Error::NotInMask {
            lane: 0,
            mask: 0xffff_fffe
        })
    );
}

#[test]
fn barriers_order_shared_memory() {
    // Each thread reads what its right neighbour wrote, across warps.
    let body = "  shl.b32 %r1, %r0, 2\n  st.shared.b32 [%r1], %r0\n  barrier 0 next bb1\n\
                bb1:\n  add.s32 %r2, %r1, 4\n  rem.u32 %r2, %r2, 192\n  ld.shared.b32 %r9, [%r2]\n  jump bb2\n";
    let expected: Vec<u32> = (0..48).map(|i| (i + 1) % 48).collect();
    assert_eq!(results(48, body, 2).unwrap(), expected);
}

#[test]
fn barriers_reduce_over_threads_that_have_not_exited() {
    let body = |red: &str, dst: &str| {
        format!(
            "  setp.lt.u32 %r10, %r0, 8\n  setp.lt.u32 %r12, %r0, 40\n  br %r10, bb1, bb2\nbb1:\n  exit\n\
             bb2:\n  barrier 0 red {red} {dst}, %r12 next bb3\nbb3:\n  @%r11 mov.b32 %r9, 77\n  jump bb4\n"
        )
    };
    assert_eq!(results(64, &body("popc", "%r9"), 4).unwrap()[8..], [32; 56]);
    assert_eq!(results(64, &body("or", "%r11"), 4).unwrap()[8..], [77; 56]);
    assert_eq!(results(64, &body("and", "%r11"), 4).unwrap()[8..], [0; 56]);
}

#[test]
fn threads_at_different_barriers_wait_for_each_other_forever() {
    let body = "  setp.lt.u32 %r10, %r0, 8\n  br %r10, bb1, bb2\nbb1:\n  barrier 1 next bb3\n\
                bb2:\n  barrier 0 next bb3\n";
    assert_eq!(results(16, body, 3), Err(Error::Deadlock { block: 0 }));
}

#[test]
fn a_counted_barrier_lets_that_many_go_on() {
    let body = "  setp.lt.u32 %r10, %r0, 32\n  br %r10, bb1, bb2\nbb1:\n  barrier 1 count 32 next bb2\n\
                bb2:\n  mov.b32 %r9, 1\n  jump bb3\n";
    assert_eq!(results(64, body, 3).unwrap(), [1; 64]);
}

#[test]
fn errors_are_reported_not_hidden() {
    let load = |addr: &str| results(1, &format!("  ld.{addr}\n  jump bb1\n"), 1).unwrap_err();
    assert!(matches!(
        load("global.b32 %r9, [8]"),
        Error::OutOfBounds {
            address: 8,
            bytes: 4,
            ..
        }
    ));
    assert!(matches!(load("shared.b32 %r9, [1024]"), Error::OutOfBounds { .. }));
    assert!(matches!(
        load("shared.b32 %r9, [2]"),
        Error::Misaligned { address: 2, bytes: 4 }
    ));
    assert_eq!(results(1, "  trap\n", 1), Err(Error::Trapped { block: 0 }));
    assert_eq!(
        results(1, "  jump bb1\nbb1:\n  jump bb1\n", 2),
        Err(Error::TooLong(100_000))
    );
}
