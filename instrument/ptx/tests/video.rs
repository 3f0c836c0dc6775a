//! Video instructions, run in the reference interpreter and compared with PTX ISA's pseudocode, written in Rust.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use support::{execute, kernel};

/// A sequence of words, edges among them.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        let word = (self.0 >> 32) as u32;
        match word % 8 {
            0 => [
                0,
                1,
                0x7FFF_FFFF,
                0x8000_0000,
                0xFFFF_FFFF,
                0x7FFF_8000,
                0x80FF_7F01,
                0x0100_FF80,
            ][word as usize >> 3 & 7],
            _ => word.rotate_left(word >> 5 & 31),
        }
    }
}

/// Runs `instruction`, which reads `%r1`, `%r2` and `%r3` and writes `%r4`, on `input`.
fn run(instruction: &str, input: &[[u32; 3]]) -> Vec<u32> {
    let ptx = kernel(&format!(
        "mov.u32 %r10, %tid.x; mul.wide.u32 %rd2, %r10, 16; add.s64 %rd3, %rd1, %rd2;
        ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd3];
        {instruction};
        st.global.u32 [%rd3+12], %r4;"
    ));
    let words: Vec<u32> = input.iter().flat_map(|&[a, b, c]| [a, b, c, 0]).collect();
    let output = execute(&ptx, u32::try_from(input.len()).unwrap(), 0, &[], &words);
    output.chunks(4).map(|words| words[3]).collect()
}

fn check(instruction: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    let mut words = Words(instruction.len() as u64);
    let input: Vec<[u32; 3]> = (0..256).map(|_| [words.next(), words.next(), words.next()]).collect();
    for (&[a, b, c], found) in input.iter().zip(run(instruction, &input)) {
        let expected = expected(a, b, c);
        assert!(
            found == expected,
            "{instruction}: {a:#x}, {b:#x}, {c:#x}: {found:#x}, not {expected:#x}"
        );
    }
}

/// NVIDIA's driver makes something else of it.
fn check_refused(instruction: &str) {
    let ptx = kernel(&format!("{instruction};"));
    let rejected = hetckpt_ptx::lower_module(&ptx).unwrap().rejected;
    assert!(
        rejected.len() == 1 && rejected[0].reasons[0].contains("something else"),
        "{instruction}: {rejected:?}"
    );
}

/// Bits `at` to `at + bits - 1`, sign-extended if they are signed.
fn part(word: u32, at: u32, bits: u32, signed: bool) -> i64 {
    let shifted = i64::from(word) >> at & ((1 << bits) - 1);
    if signed && shifted >> (bits - 1) != 0 {
        shifted - (1 << bits)
    } else {
        shifted
    }
}

fn clamped(value: i64, bits: u32, signed: bool) -> i64 {
    if signed {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

fn low(value: i64) -> u32 {
    value as u32
}

type Operation = (&'static str, fn(i64, i64) -> i64);
type Compared = (&'static str, fn(i64, i64) -> bool);
const OPERATIONS: [Operation; 5] = [
    ("vadd", |a, b| a + b),
    ("vsub", |a, b| a - b),
    ("vabsdiff", |a, b| (a - b).abs()),
    ("vmin", |a, b| a.min(b)),
    ("vmax", |a, b| a.max(b)),
];

const TYPES: [(&str, bool); 2] = [("u32", false), ("s32", true)];

#[test]
fn scalars_are_calculated_with_and_saturated() {
    for (name, operation) in OPERATIONS {
        for (d, d_signed) in TYPES {
            for (a_type, a_signed) in TYPES {
                for (b_type, b_signed) in TYPES {
                    let plain = move |a, b| operation(part(a, 0, 32, a_signed), part(b, 0, 32, b_signed));
                    check(&format!("{name}.{d}.{a_type}.{b_type} %r4, %r1, %r2"), |a, b, _| {
                        low(plain(a, b))
                    });
                    let is_refused = !(name.starts_with("vm") || (d_signed && a_signed && b_signed));
                    let saturating = format!("{name}.{d}.{a_type}.{b_type}.sat %r4, %r1, %r2");
                    if is_refused {
                        check_refused(&saturating);
                    } else {
                        check(&saturating, |a, b, _| low(clamped(plain(a, b), 32, d_signed)));
                    }
                }
            }
        }
    }
}

#[test]
fn parts_are_selected_and_merged() {
    let parts = [
        ("b0", 0, 8),
        ("b1", 8, 8),
        ("b2", 16, 8),
        ("b3", 24, 8),
        ("h0", 0, 16),
        ("h1", 16, 16),
    ];
    for (name, operation) in OPERATIONS {
        for (select, at, bits) in parts {
            check(
                &format!("{name}.s32.s32.u32 %r4, %r1.{select}, %r2.{select}"),
                |a, b, _| low(operation(part(a, at, bits, true), part(b, at, bits, false))),
            );
            check_refused(&format!("{name}.u32.s32.s32.sat %r4.{select}, %r1, %r2.h1, %r3"));
            let merging = format!("{name}.u32.s32.s32 %r4.{select}, %r1, %r2.h1, %r3");
            if select == "h1" {
                check_refused(&merging);
                continue;
            }
            check(&merging, |a, b, c| {
                let value = operation(part(a, 0, 32, true), part(b, 16, 16, true));
                let mask = (((1u64 << bits) - 1) << at) as u32;
                c & !mask | low(value) << at & mask
            });
        }
        check(
            &format!("{name}.s32.s32.s32.sat.add %r4, %r1, %r2.b3, %r3"),
            |a, b, c| {
                let value = clamped(operation(part(a, 0, 32, true), part(b, 24, 8, true)), 32, true);
                low(value + part(c, 0, 32, true))
            },
        );
        let limited = format!("{name}.u32.u32.u32.max %r4, %r1, %r2, %r3");
        if name.starts_with("vm") {
            check(&limited, |a, b, c| low(operation(a.into(), b.into()).max(c.into())));
        } else {
            check_refused(&limited);
        }
    }
}

#[test]
fn shifts_clamp_or_wrap() {
    let by = |b: u32, clamps: bool| if clamps { b.min(32) } else { b & 31 };
    for (mode, clamps) in [("clamp", true), ("wrap", false)] {
        check(&format!("vshl.u32.u32.u32.{mode} %r4, %r1, %r2"), |a, b, _| {
            low(i64::from(a) << by(b, clamps))
        });
        check(&format!("vshr.u32.u32.u32.{mode} %r4, %r1, %r2.b1"), |a, b, _| {
            low(i64::from(a) >> by(b >> 8 & 0xFF, clamps))
        });
        check(
            &format!("vshr.s32.s32.u32.{mode}.add %r4, %r1.h1, %r2, %r3"),
            |a, b, c| low((part(a, 16, 16, true) >> by(b, clamps)) + part(c, 0, 32, true)),
        );
        check(&format!("vshr.s32.s32.u32.sat.{mode} %r4, %r1.b2, %r2"), |a, b, _| {
            low(clamped(part(a, 16, 8, true) >> by(b, clamps), 32, true))
        });
        check_refused(&format!("vshl.s32.s32.u32.sat.{mode} %r4, %r1, %r2"));
    }
}

#[test]
fn products_are_added_to_and_shifted() {
    for (shift, bits) in [("", 0), (".shr7", 7), (".shr15", 15)] {
        check(&format!("vmad.s32.s32.s32.sat{shift} %r4, %r1, %r2, %r3"), |a, b, c| {
            let sum = part(a, 0, 32, true) * part(b, 0, 32, true) + part(c, 0, 32, true);
            low(clamped(sum >> bits, 32, true))
        });
        check_refused(&format!("vmad.u32.u32.s32.sat{shift} %r4, %r1, %r2, %r3"));
        check(
            &format!("vmad.s32.s32.s32.po{shift} %r4, %r1.b3, %r2.h1, %r3"),
            |a, b, c| low((part(a, 24, 8, true) * part(b, 16, 16, true) + part(c, 0, 32, true) + 1) >> bits),
        );
    }
    check("vmad.u32.u32.u32 %r4, %r1, %r2, %r3", |a, b, c| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    check_refused("vmad.u32.u32.u32.shr7 %r4, %r1, %r2, %r3");
}

#[test]
fn comparisons_give_one_or_zero() {
    let comparisons: [Compared; 6] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a != b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ];
    for (name, compare) in comparisons {
        check(&format!("vset.s32.u32.{name} %r4, %r1, %r2"), |a, b, _| {
            compare(part(a, 0, 32, true), part(b, 0, 32, false)).into()
        });
        check(
            &format!("vset.u32.u32.{name}.add %r4, %r1.b0, %r2.b0, %r3"),
            |a, b, c| c.wrapping_add(compare((a & 0xFF).into(), (b & 0xFF).into()).into()),
        );
        check(&format!("vset4.u32.s32.{name} %r4, %r1, %r2, %r3"), |a, b, _| {
            let lane = |at| u32::from(compare(part(a, at, 8, false), part(b, at, 8, true))) << at;
            [0, 8, 16, 24].map(lane).into_iter().sum()
        });
    }
}

#[test]
fn lanes_are_calculated_with_apart() {
    let average: Operation = ("vavrg", |a, b| (a + b + i64::from(a + b >= 0)) >> 1);
    for (name, operation) in OPERATIONS.into_iter().chain([average]) {
        for (lanes, bits) in [(2u32, 16u32), (4, 8)] {
            for (d, d_signed) in TYPES {
                for (a_type, a_signed) in TYPES {
                    let lane = move |a, b, at, saturates: bool| {
                        let value = operation(part(a, at, bits, a_signed), part(b, at, bits, true));
                        if saturates {
                            clamped(value, bits, d_signed)
                        } else {
                            value
                        }
                    };
                    let mask = (1i64 << bits) - 1;
                    let places = move || (0..lanes).map(move |number| number * bits);
                    for (sat, saturates) in [("", false), (".sat", true)] {
                        check(
                            &format!("{name}{lanes}.{d}.{a_type}.s32{sat} %r4, %r1, %r2, %r3"),
                            |a, b, _| places().map(|at| low(lane(a, b, at, saturates) & mask) << at).sum(),
                        );
                        check(
                            &format!("{name}{lanes}.{d}.{a_type}.s32{sat}.add %r4, %r1, %r2, %r3"),
                            |a, b, c| places().fold(c, |sum, at| sum.wrapping_add(low(lane(a, b, at, saturates)))),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn lanes_are_selected_from_both_sources_and_masked() {
    check("vadd2.u32.u32.u32 %r4.h1, %r1.h20, %r2.h31, %r3", |_, b, c| {
        // Of {a, b} the halves 0 to 3; of `.h20` half 2 is the upper one.
        let upper = (b & 0xFFFF).wrapping_add(b >> 16);
        upper << 16 | c & 0xFFFF
    });
    check("vsub4.u32.u32.u32 %r4.b20, %r1.b7042, %r2.b1111, %r3", |a, _, c| {
        let byte = |word: u32, at: u32| word >> (8 * at) & 0xFF;
        let (first, third) = (byte(a, 2), byte(a, 0));
        let subtrahend = byte(a, 1);
        let lane = |value: u32, at: u32| (value.wrapping_sub(subtrahend) & 0xFF) << (8 * at);
        c & 0xFF00_FF00 | lane(first, 0) | lane(third, 2)
    });
}
