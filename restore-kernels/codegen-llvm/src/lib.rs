//! The CPU code generator: hetIR → LLVM IR → native object → runnable code.
//!
//! Built as `libhetckpt_cpu_codegen.so`, which the CPU device loads at run time ([`hetckpt_abi::cpu_codegen`] is its
//! interface); LLVM is linked into this object and nowhere else. One *region* function is made for each resume point at
//! which threads can start ([`hetckpt_abi::cpu_block`]); barriers and warp-level operations are not in the code but in
//! tables ([`hetckpt_abi::cpu_tables`]) by which the device carries them out. Only *independent* mode: one thread at a
//! time through a region.
//!
//! LLVM IR is made as text. Every flag, attribute and intrinsic of LLVM can be written that way, the result is what
//! `hetckpt kernel llvm` prints, and LLVM's own parser checks it; the time to parse is small beside optimisation.

pub mod error;
pub mod tables;
pub mod emit;
pub mod compile;
mod objects;
mod host_functions;
pub mod loaded;
mod ffi;
