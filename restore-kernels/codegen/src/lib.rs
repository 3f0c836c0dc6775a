//! Generators of target code from hetIR. The CPU's generator is a package of its own, since it alone needs LLVM.

pub mod ptx;
pub mod opencl;
pub mod spirv;
