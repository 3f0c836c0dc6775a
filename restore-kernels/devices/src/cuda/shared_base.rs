//! Where dynamic shared memory starts: a constant of the device, read once by a kernel.
#![allow(unsafe_code, reason = "driver FFI")]

use std::sync::Arc;

use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::kernel::Kernel;

use super::driver::{self, Shape};
use super::handles::{Context, DeviceBuffer, Stream};
use super::module::Builder;
use super::transfer::Transfers;
use crate::device::{Code, LoadRequest};
use crate::error::DeviceError;

const NAME: &str = "hetckpt_shared_base";

/// The address of the first byte of dynamic shared memory of a kernel that has no static one.
pub(super) fn measure(
    builder: &Builder,
    context: &Context,
    transfers: &Transfers,
    memory: &Arc<Stream>,
    sm: u32,
) -> Result<u32, DeviceError> {
    let ptx = format!(
        ".version 7.0\n.target sm_{sm}\n.address_size 64\n.extern .shared .align 16 .b8 hetckpt_shared[];\n\
         .visible .entry {NAME}(.param .u64 result)\n{{\n\t.reg .b32 %r;\n\t.reg .b64 %rd;\n\
         \tld.param.u64 %rd, [result];\n\tmov.u32 %r, hetckpt_shared;\n\tst.global.u32 [%rd], %r;\n\tret;\n}}\n"
    );
    let ptx = ptx.replace(".version 7.0", if sm >= 90 { ".version 8.0" } else { ".version 7.0" });
    let request = LoadRequest {
        name: NAME.into(),
        code: Code::Ptx(String::new()),
        entries: vec![0],
        layout: empty_layout(),
        param_bytes: 8,
        params: vec![(0, 8)],
        static_shared_bytes: 0,
        local_bytes: 0,
    };
    let kernel = builder.load(&request, &ptx, None)?;
    let result = DeviceBuffer::new(4, memory)?;
    let addr = result.addr;
    let shape = Shape {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 16,
        cooperative: false,
        cluster: [0; 3],
    };
    let mut params = [(&raw const addr).cast_mut().cast()];
    // SAFETY: one parameter of eight bytes.
    unsafe { driver::cuLaunchKernel(kernel.function(), &shape, memory.0, &mut params) }?;
    memory.wait()?;
    let mut bytes = [0; 4];
    transfers.read(context, addr, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn empty_layout() -> ThreadStateLayout {
    ThreadStateLayout::new(&Kernel {
        name: NAME.into(),
        params: vec![],
        registers: vec![],
        blocks: vec![],
        shared: hetckpt_ir::kernel::SharedSegment::default(),
        local: hetckpt_ir::kernel::LocalFrame::default(),
        bounds: hetckpt_ir::kernel::LaunchBounds::default(),
        multiplies_matrices: false,
        reads_images: false,
        holds_functions: false,
        has_call_stack: false,
        resume_points: vec![],
    })
}
