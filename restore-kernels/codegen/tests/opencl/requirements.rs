//! What kernels need of a device.

use hetckpt_abi::opencl_program::Requirements;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};

/// What a kernel of these instructions needs; `%f1` is a number. `%r1`, `%h1` and `%d1` are for others.
fn needed_by(instructions: &str) -> Requirements {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 p)
{{
.reg .pred %p<2>;
.reg .b16 %h<9>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .f64 %d<9>;
.reg .b64 %rd<9>;
ld.param.u64 %rd1, [p];
ld.global.f32 %f1, [%rd1];
{instructions}
st.global.f32 [%rd1], %f2;
ret;
}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let layout = ThreadStateLayout::new(&program.kernel);
    generate(&program, &layout, &OpenClOptions::default()).unwrap().requires
}

#[test]
fn moving_floats_needs_nothing() {
    for instruction in ["mov.f32 %f2, %f1;", "neg.f32 %f2, %f1;", "max.f32 %f2, %f1, %f1;"] {
        assert_eq!(needed_by(instruction), Requirements::default(), "{instruction}");
    }
}

#[test]
fn arithmetic_needs_subnormals() {
    for instruction in ["add.f32 %f2, %f1, %f1;", "mul.ftz.f32 %f2, %f1, %f1;"] {
        let only = Requirements {
            f32_subnormals: true,
            ..Requirements::default()
        };
        assert_eq!(needed_by(instruction), only, "{instruction}");
    }
}

/// Most subnormal numbers of bf16 are such of f32, in which they are computed and compared; those of f16 are not.
#[test]
fn arithmetic_of_bf16_needs_subnormals_and_that_of_f16_does_not() {
    let half = |instruction: &str| {
        format!("ld.global.b16 %h1, [%rd1+8]; {instruction} st.global.b16 [%rd1+8], %h1; mov.f32 %f2, %f1;")
    };
    for instruction in ["add", "sub", "mul"] {
        assert!(needed_by(&half(&format!("{instruction}.bf16 %h1, %h1, %h1;"))).f32_subnormals);
        let of_f16 = needed_by(&half(&format!("{instruction}.f16 %h1, %h1, %h1;")));
        assert_eq!(of_f16, Requirements::default(), "{instruction}");
    }
    for instruction in [
        "fma.rn.bf16 %h1, %h1, %h1, %h1;",
        "setp.lt.bf16 %p1, %h1, %h1; selp.b16 %h1, %h1, 0, %p1;",
        "cvt.f32.bf16 %f3, %h1; st.global.f32 [%rd1+16], %f3;",
    ] {
        assert!(needed_by(&half(instruction)).f32_subnormals, "{instruction}");
    }
    for instruction in [
        "max.bf16 %h1, %h1, %h1;",
        "neg.bf16 %h1, %h1;",
        "setp.lt.f16 %p1, %h1, %h1; selp.b16 %h1, %h1, 0, %p1;",
        "cvt.f32.f16 %f3, %h1; st.global.f32 [%rd1+16], %f3;",
    ] {
        assert_eq!(needed_by(&half(instruction)), Requirements::default(), "{instruction}");
    }
}

/// A number of type `double` that becomes a subnormal `float` is converted by integers.
#[test]
fn doubles_need_their_own_subnormals() {
    for instruction in ["cvt.rn.f32.f64 %f2, %d1;", "cvt.rz.f32.f64 %f2, %d1;"] {
        let only = Requirements {
            fp64: true,
            f64_subnormals: true,
            ..Requirements::default()
        };
        let needed = needed_by(&format!(
            "ld.global.f64 %d1, [%rd1+8]; add.f64 %d1, %d1, %d1; {instruction}"
        ));
        assert_eq!(needed, only, "{instruction}");
    }
    let moved =
        needed_by("ld.global.f64 %d1, [%rd1+8]; max.f64 %d2, %d1, %d1; st.global.f64 [%rd1+8], %d2; mov.f32 %f2, %f1;");
    assert!(!moved.f64_subnormals, "{moved:?}");
    assert!(needed_by("mov.f32 %f2, %f1; atom.global.add.f64 %d1, [%rd1+8], 0d3FF0000000000000;").f64_subnormals);
    // What is between is never small.
    assert!(!needed_by("add.rz.f32 %f2, %f1, %f1;").f64_subnormals);
}

#[test]
fn only_quotients_and_roots_to_nearest_need_correct_rounding() {
    for (instruction, is_needed) in [
        ("div.rn.f32 %f2, %f1, %f1;", true),
        ("rcp.rn.ftz.f32 %f2, %f1;", true),
        ("sqrt.rn.f32 %f2, %f1;", true),
        ("div.approx.f32 %f2, %f1, %f1;", false),
        ("div.full.ftz.f32 %f2, %f1, %f1;", false),
        ("rcp.approx.ftz.f32 %f2, %f1;", false),
        ("sqrt.approx.f32 %f2, %f1;", false),
        ("rsqrt.approx.f32 %f2, %f1;", false),
        // Computed in `double`.
        ("sqrt.rz.f32 %f2, %f1;", false),
        (
            "cvt.f64.f32 %d1, %f1; div.rn.f64 %d2, %d1, %d1; cvt.rn.f32.f64 %f2, %d2;",
            false,
        ),
    ] {
        let needed = needed_by(instruction);
        assert_eq!(needed.correctly_rounded_divide_sqrt, is_needed, "{instruction}");
    }
}

#[test]
fn doubles_need_fp64_and_wide_atomics_their_extension() {
    assert!(needed_by("cvt.f64.f32 %d1, %f1; cvt.rn.f32.f64 %f2, %d1;").fp64);
    assert!(needed_by("add.rz.f32 %f2, %f1, %f1;").fp64);
    let needed = needed_by("mov.f32 %f2, %f1; atom.global.add.u64 %rd2, [%rd1+8], 1;");
    assert!(needed.int64_base_atomics && !needed.fp64, "{needed:?}");
}
