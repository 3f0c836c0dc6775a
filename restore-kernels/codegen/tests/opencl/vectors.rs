//! Vectors that other threads may look at meanwhile: one access where the device has one as wide.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_codegen::ptx::{self, PtxOptions};

/// A kernel of these instructions, as OpenCL C and as PTX.
fn generated(body: &str) -> (String, String) {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at)\n{{\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n\
         .reg .b64 %rd<9>;\nld.param.u64 %rd1, [at];\n{body}\nret;\n}}\n"
    );
    let module = hetckpt_ptx::lower_module(&text).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let kernel = hetckpt_probes::probe(&module.kernels[0], &Default::default()).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    let program = Program::from_start(kernel);
    let opencl = generate(&program, &layout, &OpenClOptions::default()).unwrap();
    let ptx = ptx::generate(&program, &layout, &PtxOptions::default()).unwrap();
    (opencl.text, ptx.text)
}

#[test]
fn up_to_8_bytes_are_one_access() {
    let (opencl, ptx) = generated(
        "ld.relaxed.gpu.global.v2.u32 {%r1, %r2}, [%rd1];
st.relaxed.gpu.global.v2.u32 [%rd1+8], {%r2, %r1};
ld.volatile.global.v4.u16 {%h1, %h2, %h3, %h4}, [%rd1+16];
st.volatile.global.v2.u16 [%rd1+24], {%h4, %h2};
ld.acquire.gpu.global.v2.s8 {%h5, %h6}, [%rd1+28];
st.release.gpu.global.v4.u8 [%rd1+32], {%h5, %h6, %h1, %h3};",
    );
    for line in [
        "const ulong v = GLOBAL(volatile u64, ",
        "GLOBAL(volatile u64, d0 + 8ul) = (ulong)",
        "const ulong v = GLOBAL(volatile u64, d0 + 16ul)",
        "GLOBAL(volatile u32, d0 + 24ul) = (ulong)",
        "const ushort v = GLOBAL(volatile u16, d0 + 28ul)",
        "GLOBAL(volatile u32, d0 + 32ul) = (ulong)",
    ] {
        assert!(opencl.contains(line), "{line}\n{opencl}");
    }
    for line in [
        "ld.relaxed.sys.global.v2.u32 {",
        "st.relaxed.sys.global.v2.u32 [",
        "ld.volatile.global.v4.u16 {",
        "st.volatile.global.v2.u16 [",
        "ld.acquire.sys.global.v2.s8 {",
        "st.release.sys.global.v4.u8 [",
    ] {
        assert!(ptx.contains(line), "{line}\n{ptx}");
    }
}

#[test]
fn others_stay_vectors() {
    let (opencl, ptx) = generated(
        "ld.relaxed.gpu.global.v2.u64 {%rd2, %rd3}, [%rd1];
st.global.v2.u32 [%rd1+16], {%r2, %r1};
st.relaxed.gpu.global.v4.u32 [%rd1+32], {%r1, %r2, %r1, %r2};",
    );
    for line in ["GLOBAL(volatile u64x2, ", "GLOBAL(u32x2, ", "GLOBAL(volatile u32x4, "] {
        assert!(opencl.contains(line), "{line}\n{opencl}");
    }
    for line in ["ld.relaxed.sys.global.v2.u64 {", "st.relaxed.sys.global.v4.u32 ["] {
        assert!(ptx.contains(line), "{line}\n{ptx}");
    }
}
