//! Strip-mined, unrolled and counted-down loops do what they did: same stores in the same order, also when every
//! register that is not live is lost at each poll.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_conformance::one_thread::{End, Stops, run};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::{parse, print};
use hetckpt_probes::check::check;
use hetckpt_probes::options::Options;
use hetckpt_probes::pipeline;
use hetckpt_probes::report::LoopProbe;
use proptest::prelude::*;

/// A loop to be generated: `do { store iv; … } while (iv cmp bound)`.
#[derive(Clone, Debug)]
struct Shape {
    ty: &'static str,
    cmp: &'static str,
    /// `None`: the step is a parameter.
    step: Option<i64>,
    is_bound_first: bool,
    leaves_when_true: bool,
    reads_predicate_elsewhere: bool,
    counts_through_temporary: bool,
    subtracts: bool,
    /// Writes the loop as a header test that falls through to a second block.
    has_two_blocks: bool,
    has_second_result: bool,
}

fn bits(ty: &str) -> u32 {
    ty[1..].parse().unwrap()
}

fn kernel(shape: &Shape) -> Kernel {
    let Shape { ty, cmp, .. } = *shape;
    let bits = bits(ty);
    let step = match shape.step {
        Some(step) => format!("{:#x}", step.cast_unsigned() & (u64::MAX >> (64 - bits))),
        None => "%r2".into(),
    };
    let update = if shape.subtracts { "sub" } else { "add" };
    let counter = if shape.counts_through_temporary { "%r3" } else { "%r0" };
    let operands = if shape.is_bound_first {
        format!("%r1, {counter}")
    } else {
        format!("{counter}, %r1")
    };
    let second = if shape.has_second_result { "|%r7" } else { "" };
    let copy = if shape.counts_through_temporary {
        format!("  mov.b{bits} %r0, %r3\n")
    } else {
        String::new()
    };
    let used = if shape.reads_predicate_elsewhere {
        "  selp.u32 %r6, 1, 2, %r4\n  st.global.u32 [16], %r6\n"
    } else {
        ""
    };
    let used_in_exit = if shape.has_second_result {
        "  selp.u32 %r6, 1, 2, %r7\n  st.global.u32 [32], %r6\n"
    } else {
        ""
    };
    let targets = if shape.leaves_when_true { "bb3, bb1" } else { "bb1, bb3" };
    let middle = if shape.has_two_blocks {
        "  setp.eq.u32 %r5, 1, 0\n  br %r5, bb3, bb2\n"
    } else {
        "  jump bb2\n"
    };
    let text = format!(
        "kernel \"k\" {{
  param \"a\" at 0 size 8 align 8
  param \"b\" at 8 size 8 align 8
  param \"c\" at 16 size 8 align 8
  reg %r0..%r3 w{bits}
  reg %r4..%r5 pred
  reg %r6 w32
  reg %r7 pred
bb0:
  ld.param.u{bits} %r0, [0]
  ld.param.u{bits} %r1, [8]
  ld.param.u{bits} %r2, [16]
  setp.eq.u32 %r4, 0, 0
  setp.eq.u32 %r7, 0, 0
  jump bb1
bb1:
  st.global.u{bits} [0], %r0
{middle}bb2:
{used}  {update}.{ty} {counter}, %r0, {step}
  setp.{cmp}.{ty} %r4{second}, {operands}
{copy}  br %r4, {targets}
bb3:
  st.global.u{bits} [8], %r0
{used}{used_in_exit}  exit
}}
"
    );
    parse::kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn shapes() -> impl Strategy<Value = Shape> {
    let types = prop::sample::select(vec!["u16", "s16", "u32", "s32", "u64", "s64"]);
    let cmps = prop::sample::select(vec!["eq", "ne", "lt", "le", "gt", "ge"]);
    let steps = prop_oneof![
        4 => (1i64..6).prop_map(Some),
        4 => (-5i64..0).prop_map(Some),
        2 => prop::sample::select(vec![Some(1 << 12), Some(-(1 << 13)), Some((1 << 15) - 1)]),
        3 => Just(None),
    ];
    (types, cmps, steps, prop::array::uniform7(any::<bool>())).prop_map(|(ty, cmp, step, flags)| {
        let [
            is_bound_first,
            leaves_when_true,
            reads_predicate_elsewhere,
            counts_through_temporary,
            subtracts,
            has_two_blocks,
            has_second_result,
        ] = flags;
        Shape {
            ty,
            cmp,
            step,
            is_bound_first,
            leaves_when_true,
            reads_predicate_elsewhere,
            counts_through_temporary,
            subtracts,
            has_two_blocks,
            has_second_result,
        }
    })
}

/// Values near where things go wrong: 0, the ends of the signed and the unsigned range, and chunk boundaries.
fn edges() -> impl Strategy<Value = u64> {
    let near = -9i64..10;
    let far = prop::sample::select(vec![0u64, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63, 100, 1000]);
    (far, near).prop_map(|(far, near)| far.wrapping_add_signed(near))
}

fn assert_same(shape: &Shape, params: &[u64], options: &Options) {
    let kernel = kernel(shape);
    let (probed, _) = pipeline::run(&kernel, options).unwrap();
    check(&kernel, &probed).unwrap_or_else(|e| panic!("{e:?}\n{}\n{}", print::kernel(&kernel), print::kernel(&probed)));
    let before = run(&kernel, params, 120, Stops::Never);
    for stops in [Stops::Never, Stops::Every(1), Stops::Every(3)] {
        let after = run(&probed, params, 120, stops);
        assert_eq!(
            before.trace,
            after.trace,
            "{stops:?} {params:x?}\n{}",
            print::kernel(&probed)
        );
        assert_eq!(before.end, after.end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loops_store_what_they_stored(
        shape in shapes(), init in edges(), length in -20i64..60, step in prop_oneof![0u64..6, edges()], chunk in 1u32..6,
    ) {
        let bound = init.wrapping_add_signed(length);
        assert_same(&shape, &[init, bound, step], &Options::dense(chunk));
    }

    #[test]
    fn loops_with_any_bound_store_what_they_stored(
        shape in shapes(), init in edges(), bound in edges(), step in edges(), chunk in 1u32..9,
    ) {
        assert_same(&shape, &[init, bound, step], &Options { max_chunk: chunk, ..Options::default() });
    }
}

fn plain(cmp: &'static str, ty: &'static str, step: i64) -> Shape {
    Shape {
        ty,
        cmp,
        step: Some(step),
        is_bound_first: false,
        leaves_when_true: false,
        reads_predicate_elsewhere: false,
        counts_through_temporary: false,
        subtracts: false,
        has_two_blocks: false,
        has_second_result: false,
    }
}

#[test]
fn polls_once_a_chunk() {
    const CHUNK: u32 = 4;
    for (cmp, step) in [
        ("lt", 1),
        ("ne", 1),
        ("ne", -1),
        ("gt", -1),
        ("lt", 3),
        ("le", 1),
        ("ge", -2),
    ] {
        let kernel = kernel(&plain(cmp, "s32", step));
        let (probed, report) = pipeline::run(&kernel, &Options::dense(CHUNK)).unwrap();
        assert_eq!(report.loops[0].probe, LoopProbe::StripMined { chunk: 1 }, "{report}");
        let options = Options {
            max_chunk: CHUNK,
            ..Options::default()
        };
        let (probed_by_chunk, report) = pipeline::run(&kernel, &options).unwrap();
        assert_eq!(report.loops[0].probe, LoopProbe::StripMined { chunk: CHUNK });
        for count in [0i64, 1, 2, 3, 4, 5, 7, 8, 9, 40] {
            let bound = (count * step).cast_unsigned() & 0xffff_ffff;
            let whole = run(&kernel, &[0, bound, 0], 1000, Stops::Never);
            if whole.end == End::CutOff {
                // `!=` asked after the first step never meets a bound of 0 steps.
                assert_eq!(count, 0);
                continue;
            }
            let iterations = whole.trace.len() - 1;
            let dense = run(&probed, &[0, bound, 0], 1000, Stops::Every(1));
            assert_eq!(dense.trace, whole.trace);
            let sparse = run(&probed_by_chunk, &[0, bound, 0], 1000, Stops::Every(1));
            assert_eq!(sparse.trace, whole.trace);
            assert!(
                dense.polls * 2 + 3 >= iterations,
                "{cmp} {step}: {} polls in {iterations}",
                dense.polls
            );
            assert!(
                sparse.polls * 6 + 6 >= iterations,
                "{cmp} {step}: {} polls in {iterations}",
                sparse.polls
            );
            assert!(
                sparse.polls * 4 <= iterations,
                "{cmp} {step}: {} polls in {iterations}",
                sparse.polls
            );
        }
    }
}

#[test]
fn chunk_adapts_to_the_body() {
    let (_, report) = pipeline::run(&kernel(&plain("lt", "u32", 1)), &Options::default()).unwrap();
    assert_eq!(
        report.loops[0].probe,
        LoopProbe::StripMined { chunk: 819 },
        "a store counts for many instructions"
    );
    let (_, report) = pipeline::run(&kernel(&plain("lt", "u16", 1 << 12)), &Options::default()).unwrap();
    assert_eq!(
        report.loops[0].probe,
        LoopProbe::StripMined { chunk: 7 },
        "a chunk fits half the register's range"
    );
}
