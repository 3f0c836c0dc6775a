//! Runs a kernel in the reference interpreter.

#![allow(clippy::unwrap_used, dead_code, reason = "tests, of which each uses a part")]

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::types::Dim3;

pub const BUFFER: u64 = 0x2000_0000_0000;

/// Runs the module's only kernel, `threads` in one block, on a buffer of words; its first parameter is their address.
pub fn execute(ptx: &str, threads: u32, dynamic_shared_bytes: u32, more_params: &[u8], words: &[u32]) -> Vec<u32> {
    let module = hetckpt_ptx::lower_module(ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    let program = Program::from_start(module.kernels[0].clone());
    let layout = ThreadStateLayout::new(&program.kernel);
    let mut params = BUFFER.to_le_bytes().to_vec();
    params.extend(more_params);
    let (grid, block) = (Dim3 { x: 1, y: 1, z: 1 }, Dim3 { x: threads, y: 1, z: 1 });
    let mut launch = Launch::new(&program, &layout, grid, block, &params);
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    let mut memory = GlobalMemory::new();
    memory.map(BUFFER, words.iter().flat_map(|w| w.to_le_bytes()).collect());
    run(launch, &mut memory).unwrap();
    let bytes = memory.range(BUFFER).unwrap();
    bytes
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// A kernel `k` with the buffer's address in `%rd1` and plenty of registers.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 buffer)\n{{\n.reg .pred %p<20>;\n\
         .reg .b16 %h<20>;\n.reg .b32 %r<40>;\n.reg .f32 %f<20>;\n.reg .b64 %rd<20>;\n\
         ld.param.u64 %rd1, [buffer];\n{body}\nret;\n}}\n"
    )
}
