//! `.approx` forms of operands for which PTX, or what GPUs do, is something else than the function's value.
//!
//! # Source
//! PTX ISA 9.0, "div", "sin", "cos", "lg2", "tanh".

use hetckpt_abi::program::Program;
use hetckpt_conformance::{Implementation as _, Shape};

use crate::run::FirstDevice;

/// Turns of an argument, rounded to zero in single precision.
fn turns(a: f32) -> f64 {
    let by = f32::from_bits(0x3e22_f983);
    let (rounded, exact) = (a * by, f64::from(a) * f64::from(by));
    if f64::from(rounded).abs() > exact.abs() {
        f64::from(f32::from_bits(rounded.to_bits() - 1))
    } else {
        f64::from(rounded)
    }
}

fn angle(a: f32) -> f64 {
    let turns = turns(a);
    if turns.abs() < f64::from(f32::MIN_POSITIVE) {
        0f64.copysign(f64::from(a))
    } else if f64::from(a.abs()) <= 100.0 * std::f64::consts::PI {
        f64::from(a)
    } else {
        (turns - turns.round()) * std::f64::consts::TAU
    }
}

fn quotient(a: f32, b: f32) -> f32 {
    if b.abs() > 2f32.powi(126) && b.is_finite() {
        a * 0f32.copysign(b)
    } else {
        (f64::from(a) / f64::from(b)) as f32
    }
}

fn is_near(got: f32, want: f64, relative: f64, absolute: f64) -> bool {
    if want.is_nan() || got.is_nan() {
        return want.is_nan() && got.is_nan();
    }
    let want_as = want as f32;
    let is_exact = got.to_bits() == want_as.to_bits();
    // The sign of zero counts.
    is_exact || (want != 0.0 && got.is_finite() && (f64::from(got) - want).abs() <= absolute + relative * want.abs())
}

#[test]
fn functions_of_unusual_operands() {
    let first = [
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        f32::MIN_POSITIVE,
        5e-38,
        -7.5e-38,
        1e-20,
        0.5,
        0.999_999_9,
        1.0,
        1.000_000_1,
        1.000_01,
        -2.5,
        3.0,
        15.9,
        -40.0,
        314.0,
        314.5,
        1e4,
        -1e6,
        123_456_790.0,
        1e20,
        -3e38,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let second = [
        1.0,
        -3.0,
        8.5e37,
        8.6e37,
        -2e38,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let pairs: Vec<(f32, f32)> = first.iter().flat_map(|&a| second.map(|b| (a, b))).collect();
    let operands: Vec<u64> = pairs
        .iter()
        .map(|(a, b)| u64::from(b.to_bits()) << 32 | u64::from(a.to_bits()))
        .collect();
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 input, .param .u64 output)
{
.reg .f32 %f<20>;
.reg .b32 %r<4>;
.reg .b64 %rd<8>;
ld.param.u64 %rd1, [input];
ld.param.u64 %rd2, [output];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 8;
add.s64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r1, 24;
add.s64 %rd2, %rd2, %rd3;
ld.global.v2.f32 {%f1, %f2}, [%rd1];
sin.approx.f32 %f3, %f1;
cos.approx.f32 %f4, %f1;
lg2.approx.f32 %f5, %f1;
tanh.approx.f32 %f6, %f1;
div.approx.f32 %f7, %f1, %f2;
div.approx.ftz.f32 %f8, %f1, %f2;
st.global.v2.f32 [%rd2], {%f3, %f4};
st.global.v2.f32 [%rd2+8], {%f5, %f6};
st.global.v2.f32 [%rd2+16], {%f7, %f8};
ret;
}\n";
    let module = hetckpt_ptx::lower_module(ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let mut output = vec![0; 3 * pairs.len()];
    let shape = Shape::one_block([pairs.len() as u32, 1, 1]);
    if !FirstDevice.run(&program, shape, &operands, &mut output) {
        return;
    }
    let flush = |a: f32| if a.is_subnormal() { 0f32.copysign(a) } else { a };
    let mut wrong = Vec::new();
    for (&(a, b), got) in pairs.iter().zip(output.chunks(3)) {
        let got: Vec<f32> = got
            .iter()
            .flat_map(|word| [*word as u32, (*word >> 32) as u32])
            .map(f32::from_bits)
            .collect();
        let wide = f64::from(a);
        let flushed = flush(quotient(flush(a), flush(b)));
        // Errors as PTX allows them; those of quotients are OpenCL's.
        let results = [
            ("sin", got[0], angle(a).sin(), 0.0, 2f64.powi(-20)),
            ("cos", got[1], angle(a).cos(), 0.0, 2f64.powi(-20)),
            ("lg2", got[2], wide.log2(), 2f64.powi(-22), 0.0),
            // Exact for infinity.
            (
                "tanh",
                got[3],
                wide.tanh(),
                if a.is_infinite() { 0.0 } else { 2f64.powi(-11) },
                0.0,
            ),
            ("div", got[4], f64::from(quotient(a, b)), 3e-7, 1e-44),
            ("div.ftz", got[5], f64::from(flushed), 3e-7, 0.0),
        ];
        for (name, got, want, relative, absolute) in results {
            if !is_near(got, want, relative, absolute) {
                wrong.push(format!("{name} of {a:e} and {b:e}: {got:e} instead of {want:e}"));
            }
        }
    }
    wrong.dedup_by_key(|line| line.split(" and ").next().unwrap().to_owned());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
