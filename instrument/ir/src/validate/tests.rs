#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::analysis::cfg::Cfg;
use crate::analysis::definitions::Definitions;
use crate::analysis::dominators::{Dominators, PostDominators};
use crate::analysis::induction;
use crate::analysis::liveness::Liveness;
use crate::analysis::loops::LoopForest;
use crate::analysis::uniformity::Uniformity;
use crate::text::parse;

const PROBED: &str = r#"kernel "k" {
  param "p" at 0 size 8 align 8
  param "n" at 8 size 4 align 4
  shared 16
  shared_var "s" at 0 size 16
  local 16
  reg %r0..%r3 w32
  reg %r4..%r5 pred
  reg %r6..%r7 w64
  reg %r8 w16
  resume rp0 entry bb0
  resume rp1 loop bb2
  resume rp2 barrier_arrive bb3
  resume rp3 barrier_leave bb4
  resume rp4 warp_arrive bb4
  resume rp5 warp_leave bb5
bb0:
  ld.param.u64 %r6, [0]
  poll rp0, bb1
bb1:
  add.s32 %r0, %r0, 1 !7
  mul_wide.s32 %r7, %r0, %r1
  shl.b64 %r7, %r7, 2
  cvt.u16.u32 %r0, %r1
  pack.b64 %r7, {%r0, %r1}
  setp.lt.s32 %r4, %r0, 7, and !%r5
  ld.global.u8 %r0, [%r6]
  st.shared.b32 [%r0+4], %r1
  ld.local.u32 %r0, [12]
  poll rp1, bb2
bb2:
  br !%r4, bb1, bb3
bb3:
  barrier 0 red popc %r0, %r4 arrive rp2 leave rp3 next bb4
bb4:
  warp.shfl_down %r3|%r4, %r1, 16, 31 mask 0xffffffff arrive rp4 leave rp5
  jump bb5
bb5:
  exit
}
"#;

fn error_of(from: &str, to: &str) -> String {
    assert!(PROBED.contains(from), "the sample lacks {from}");
    let kernel = parse::kernel(&PROBED.replace(from, to)).unwrap();
    super::probed_kernel(&kernel).unwrap_err().to_string()
}

#[test]
fn accepts_a_probed_kernel() {
    super::probed_kernel(&parse::kernel(PROBED).unwrap()).unwrap();
}

#[test]
fn says_where_and_what() {
    assert_eq!(
        error_of("add.s32 %r0, %r0, 1", "add.s32 %r0, %r6, 1"),
        "kernel `k`, bb1 instruction 0 (PTX line 7): %r6 is W64 where 32 bits belongs"
    );
    assert_eq!(
        error_of("jump bb5", "jump bb0"),
        "kernel `k`, bb4 terminator: control goes to the entry block"
    );
}

#[test]
fn refuses_broken_rules() {
    for (from, to, expected) in [
        (
            "at 8 size 4 align 4",
            "at 8 size 4 align 3",
            "parameter 1 is not laid out soundly",
        ),
        (
            "at 8 size 4 align 4",
            "at 8 size 4294967292 align 4",
            "parameter 1 is not laid out soundly",
        ),
        ("shared 16", "shared 8", "the shared segment is not laid out soundly"),
        ("\"s\" at 0", "\"s\" at 4", "the shared segment is not laid out soundly"),
        ("%r0, %r0, 1", "%r0, %r0", "1 operands where 2 belong"),
        (
            "%r0, %r0, 1",
            "%r0, %r0, 0x100000000",
            "immediate 0x100000000 does not fit .s32",
        ),
        ("add.s32", "add.b8", "Add is not defined for .b8"),
        ("add.s32", "fma.s32", "Fma is not defined for .s32"),
        (
            "mul_wide.s32 %r7",
            "mul_wide.s32 %r2",
            "%r2 is W32 where 64 bits belongs",
        ),
        (
            "shl.b64 %r7, %r7, 2",
            "shl.b64 %r7, %r7, %r6",
            "%r6 is W64 where 32 bits belongs",
        ),
        (
            "cvt.u16.u32 %r0, %r1",
            "cvt.u16.f32 %r0, %r6",
            "%r6 is W64 where 32 bits belongs",
        ),
        (
            "cvt.u16.u32 %r0, %r1",
            "cvt.u16.u64 %r0, %r1",
            "%r1 is W32 where 64 bits belongs",
        ),
        (
            "{%r0, %r1}",
            "{%r0, %r1, %r2}",
            "3 elements do not make up a vector here",
        ),
        (
            "setp.lt.s32 %r4",
            "setp.lt.s32 %r3",
            "%r3 is W32 where a predicate belongs",
        ),
        ("and !%r5", "and !%r0", "%r0 is W32 where a predicate belongs"),
        (
            "ld.global.u8 %r0, [%r6]",
            "ld.global.u8 %r0, [%r1]",
            "%r1 is W32 where 64 bits belongs",
        ),
        (
            "ld.global.u8 %r0, [%r6]",
            "ld.shared.u8 %r0, [\"g\"]",
            "not possible in the Shared space",
        ),
        (
            "st.shared.b32 [%r0+4]",
            "st.param.b32 [0]",
            "not possible in the Param space",
        ),
        ("[12]", "[13]", "address 13 with 4 bytes lies outside the Local segment"),
        (
            "ld.param.u64 %r6, [0]",
            "ld.param.u64 %r6, [-8]",
            "address -8 with 8 bytes lies outside the Param segment",
        ),
        ("br !%r4", "br !%r0", "%r0 is W32 where a predicate belongs"),
        ("barrier 0", "barrier 16", "barrier number 16 is above 15"),
        ("barrier 0", "barrier 16 count 2", "barrier number 16 is above 15"),
        ("red popc %r0", "red popc %r4", "%r4 is Pred where 32 bits belongs"),
        ("%r1, 16, 31 mask", "%r1, 16 mask", "2 operands where 3 belong"),
        (
            "rp0 entry bb0",
            "rp0 entry bb1",
            "rp0 is the entry at bb0, and no other resume point is",
        ),
        (
            "rp1 loop bb2",
            "rp1 entry bb0",
            "rp0 is the entry at bb0, and no other resume point is",
        ),
        (
            "poll rp1",
            "poll rp2",
            "rp2 is of kind BarrierArrive where the entry or a loop belongs",
        ),
        (
            "leave rp3",
            "leave rp2",
            "rp2 is of kind BarrierArrive where the leave from a barrier belongs",
        ),
        ("rp1 loop bb2", "rp1 loop bb1", "rp1 is at bb1 where bb2 belongs"),
        ("arrive bb4", "arrive bb3", "rp4 is at bb3 where bb4 belongs"),
        (
            "  barrier",
            "  membar.gpu\n  barrier",
            "a probed barrier or warp-level operation stands alone in its block",
        ),
        (
            "  warp.shfl",
            "  @%r5 warp.shfl",
            "a probed warp-level operation is unguarded and followed by a jump",
        ),
    ] {
        let error = error_of(from, to);
        assert!(error.ends_with(&format!(": {expected}")), "{from} -> {to}: {error}");
    }
}

#[test]
fn probes_need_resume_points() {
    let text: String = PROBED
        .lines()
        .filter(|l| !l.contains("resume "))
        .map(|l| format!("{l}\n"))
        .collect();
    assert!(parse::kernel(&text).is_err(), "the parser checks ids");
    let mut kernel = parse::kernel(PROBED).unwrap();
    kernel.resume_points.clear();
    assert!(
        super::kernel(&kernel)
            .unwrap_err()
            .to_string()
            .ends_with("rp0 does not exist")
    );
}

/// Every line of the sample damaged in every way that still parses: what the validator lets through, the analyses take.
#[test]
fn analyses_take_whatever_is_valid() {
    let replacements = [
        "%r0",
        "%r4",
        "%r6",
        "bb0",
        "bb2",
        "rp0",
        "rp2",
        "0",
        "0x7fffffffffffffff",
        "s64",
        "pred",
        "",
    ];
    let sample = PROBED;
    let words: Vec<(usize, &str)> = sample
        .split([' ', ',', '.', '[', ']', '\n'])
        .map(|w| (w.as_ptr() as usize - sample.as_ptr() as usize, w))
        .collect();
    let (mut valid, mut refused) = (0, 0);
    for (at, word) in words {
        for with in replacements {
            let text = format!("{}{with}{}", &sample[..at], &sample[at + word.len()..]);
            let Ok(kernel) = parse::kernel(&text) else { continue };
            if super::kernel(&kernel).is_err() {
                refused += 1;
                continue;
            }
            valid += 1;
            let cfg = Cfg::new(&kernel);
            let (dominators, _) = (Dominators::new(&cfg), PostDominators::new(&cfg));
            let forest = LoopForest::new(&cfg, &dominators);
            let definitions = Definitions::new(&kernel);
            for (id, _) in forest.iter() {
                let _ = induction::find(&kernel, &definitions, &dominators, &forest, id);
            }
            let _ = (Liveness::new(&kernel), Uniformity::new(&kernel, &definitions));
        }
    }
    assert!(valid > 50 && refused > 50, "{valid} valid, {refused} refused");
}
