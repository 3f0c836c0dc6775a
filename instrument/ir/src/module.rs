//! A module: what one PTX text defines.

use std::collections::BTreeMap;

use crate::inst::{AddressBase, Op};
use crate::kernel::Kernel;
use crate::types::Space;

/// Variables and kernels of one PTX text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// `.global` and `.const` variables.
    pub globals: Vec<Global>,
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// Kernels that the front end could not lower, with the reason for each.
    pub rejected: Vec<RejectedKernel>,
}

/// A module variable in device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name (mangled).
    pub name: String,
    /// True for `.const`.
    pub is_constant: bool,
    /// True for `.extern`: defined elsewhere.
    pub is_extern: bool,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Alignment in bytes.
    pub align_bytes: u32,
    /// Initial bytes; shorter than `size_bytes` means zeros follow.
    pub init: Vec<u8>,
    /// Places in `init` that hold the address of another variable: offset, name, addend.
    pub relocations: Vec<(u64, String, i64)>,
}

/// A kernel that cannot be run through hetIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedKernel {
    /// Mangled name.
    pub name: String,
    /// Line, instruction and reason, one message each.
    pub reasons: Vec<String>,
}

/// Replaces every module variable in `kernel` by its device address.
///
/// # Errors
/// The name of the first variable that `addresses` lacks (an `.extern` that nothing defines).
pub fn bind_globals(kernel: &mut Kernel, addresses: &BTreeMap<String, u64>) -> Result<(), String> {
    for block in &mut kernel.blocks {
        for inst in &mut block.insts {
            let addr = match &mut inst.op {
                Op::AddrOf {
                    addr,
                    space: Space::Global,
                    ..
                }
                | Op::Load { addr, .. }
                | Op::Store { addr, .. }
                | Op::Atom { addr, .. } => addr,
                _ => continue,
            };
            if let AddressBase::Global(name) = &addr.base {
                let base = addresses.get(name).ok_or_else(|| name.clone())?;
                addr.offset = addr.offset.wrapping_add_unsigned(*base);
                addr.base = AddressBase::Absolute;
            }
        }
    }
    Ok(())
}
