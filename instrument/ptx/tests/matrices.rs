//! Products of matrices that no tensor core makes are refused by name; the results of others are compared with a GPU's
//! elsewhere (`restore-kernels/devices/tests/gpu_results`).
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::{execute, kernel};

fn reasons(instruction: &str) -> String {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %a<16>, %b<16>, %c<8>, %d<8>;\n.reg .b64 %x;\nld.param.u64 %x, [p];\n{instruction};\nret;\n}}\n"
    );
    let module = hetckpt_ptx::lower_module(&text).unwrap();
    module
        .rejected
        .iter()
        .flat_map(|kernel| kernel.reasons.clone())
        .collect()
}

/// `{%a0, %a1, …}`
fn registers(letter: char, count: u32) -> String {
    let names: Vec<String> = (0..count).map(|number| format!("%{letter}{number}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn operands(counts: [u32; 4]) -> String {
    let parts = ['d', 'a', 'b', 'c'].into_iter().zip(counts);
    parts
        .map(|(letter, count)| registers(letter, count))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn what_tensor_cores_do_is_taken() {
    for (instruction, counts) in [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2, 4]),
        (
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
            [4, 4, 2, 4],
        ),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", [4, 4, 2, 4]),
        ("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16", [2, 2, 1, 2]),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", [8, 8, 8, 8]),
        ("wmma.mma.sync.aligned.col.row.m32n8k16.f16.f32", [4, 8, 8, 8]),
    ] {
        assert_eq!(reasons(&format!("{instruction} {}", operands(counts))), "");
    }
    let load = "wmma.load.a.sync.aligned.col.m8n32k16.global.bf16";
    assert_eq!(reasons(&format!("{load} {}, [%x]", registers('a', 2))), "");
}

#[test]
fn what_no_tensor_core_does_is_refused() {
    for (instruction, counts) in [
        // Parts of registers, or more of them than there are.
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", [4, 2, 2, 4]),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.f32.f32", [8, 8, 8, 8]),
        ("wmma.mma.sync.aligned.row.col.m8n8k128.f32.f32", [8, 8, 8, 8]),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.s32.s8.s8.s32", [2, 1, 1, 2]),
        // Others than the shape takes.
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 3, 2, 4]),
        ("mma.sync.aligned.m16n8k256.row.col.f32.f16.f16.f32", [4, 4, 2, 4]),
        // Types that do not go together, or none that is known.
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", [4, 4, 2, 4]),
        ("mma.sync.aligned.m16n8k16.row.col.s32.f16.f16.s32", [4, 4, 2, 4]),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.s8.f32", [4, 4, 2, 4]),
        ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32", [4, 2, 1, 4]),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.rn", [4, 4, 2, 4]),
    ] {
        let text = format!("{instruction} {}", operands(counts));
        assert_ne!(reasons(&text), "", "{text}");
    }
    for load in [
        "wmma.load.a.sync.aligned.row.m8n8k4.global.f16 {%a0}",
        "wmma.load.b.sync.aligned.row.m8n8k32.global.s4 {%a0}",
        "wmma.load.a.sync.aligned.row.m8n8k128.global.f16 {%a0}",
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%a0}",
    ] {
        assert_ne!(reasons(&format!("{load}, [%x]")), "", "{load}");
    }
}

#[test]
fn floats_of_eight_bits_are_multiplied_in_two_parts() {
    // All factors are 1 and 2, but that lane 0 has 256 in the lower half of its first register, and -256 in the upper.
    // Behind the point of single precision's mantissa nothing is left of 2^-16 beside 2^16 if both are added at once.
    let body = "mov.u32 %r20, %tid.x; mov.u32 %r1, 0x38383838; mov.u32 %r2, 0x40404040; mov.u32 %r3, %r1;
        setp.eq.u32 %p1, %r20, 0; @%p1 mov.u32 %r3, 0xF8387838;
        mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f37800000;
        mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f3, %f4, %f5, %f6}, {%r3, %r1, %r1, %r1}, {%r2, %r2},
            {%f1, %f2, %f1, %f1};
        mov.b32 %r4, 0x3C003C00; mov.u32 %r5, 0x3C3C3C3C;
        mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e4m3.f16 {%r6, %r7}, {%r5, %r5}, {%r2}, {%r4, %r4};
        mul.wide.u32 %rd2, %r20, 16; add.s64 %rd2, %rd1, %rd2; st.global.v2.f32 [%rd2], {%f3, %f4};
        st.global.v2.u32 [%rd2+8], {%r6, %r7};";
    let found = execute(&kernel(body), 32, 0, &[], &[0; 128]);
    let rows: Vec<_> = found.chunks(4).collect();
    // 30 products of 1 and 2, and 512 - 512.
    assert_eq!(f32::from_bits(rows[0][0]), 61.0);
    assert_eq!(f32::from_bits(rows[4][0]), 65.0);
    assert_eq!(f32::from_bits(rows[4][1]), 64.0 + f32::from_bits(0x3780_0000));
    assert_eq!(rows[4][2..], [0x5020_5020; 2]);
}
