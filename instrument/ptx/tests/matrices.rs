//! Products of matrices that no tensor core makes are refused by name; the results of others are compared with a GPU's
//! elsewhere (`restore-kernels/devices/tests/gpu_results`).
#![allow(clippy::unwrap_used, reason = "tests")]

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
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", [4, 4, 2, 4]),
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
