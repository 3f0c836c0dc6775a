//! What OpenCL C has no form for is refused with the kernel's name and the line.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{Error, OpenClOptions, generate};

fn refusal(body: &str) -> Error {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .pred %p<9>;\n.reg .b32 %r<9>;\n\
         mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 5;\n{body}\nret;\n}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let kernel = module.kernels[0].clone();
    let layout = ThreadStateLayout::new(&kernel);
    generate(&Program::from_start(kernel), &layout, &OpenClOptions::default()).unwrap_err()
}

#[test]
fn instructions_of_one_device() {
    let kernel = hetckpt_ir::text::parse::kernel(
        "kernel \"k\" {\n  resume rp0 entry bb0\nbb0:\n  poll rp0, bb1\nbb1:\n  opaque \"wgmma.fence;\" uses {} defs {}\n  exit\n}\n",
    );
    let kernel = kernel.unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    let error = generate(&Program::from_start(kernel), &layout, &OpenClOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `k`, line 0: OpenCL C has no form of `wgmma.fence;`"
    );
}

#[test]
fn kernels_whose_threads_wait_without_probes() {
    let error = refusal("bar.sync 0;");
    assert!(matches!(&error, Error::NotProbed { .. }), "{error}");
}
