//! A module: what one PTX text defines.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::inst::{Address, AddressBase, Op};
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
    /// True for `.attribute(.managed)`: host and kernels reach it at the same address.
    pub is_managed: bool,
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

/// A variable that a kernel uses and nothing defines, as an `.extern` may be. The fault lies with the program.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("nothing defines variable `{name}`")]
pub struct UndefinedGlobal {
    /// Its name (mangled).
    pub name: String,
}

/// Replaces every module variable in `kernel` by its device address.
///
/// # Errors
/// The first variable that `addresses` lacks.
pub fn bind_globals(kernel: &mut Kernel, addresses: &BTreeMap<String, u64>) -> Result<(), UndefinedGlobal> {
    for addr in addresses_in(kernel) {
        if let AddressBase::Global(name) = &addr.base {
            let base = addresses
                .get(name)
                .ok_or_else(|| UndefinedGlobal { name: name.clone() })?;
            addr.offset = addr.offset.wrapping_add_unsigned(*base);
            addr.base = AddressBase::Absolute;
        }
    }
    Ok(())
}

/// The addresses that `kernel` takes or accesses, where they may be those of variables of the module.
fn addresses_in(kernel: &mut Kernel) -> impl Iterator<Item = &mut Address> {
    let insts = kernel.blocks.iter_mut().flat_map(|block| &mut block.insts);
    insts.filter_map(|inst| match &mut inst.op {
        Op::AddrOf {
            addr,
            space: Space::Global,
            ..
        }
        | Op::Load { addr, .. }
        | Op::Store { addr, .. }
        | Op::Atom { addr, .. } => Some(addr),
        _ => None,
    })
}

impl Module {
    /// Names of the strings that nvcc has made variables of here (`$str`, `__unnamed_1`).
    pub fn strings(&self) -> impl Iterator<Item = &str> {
        let globals = self.globals.iter().filter(|g| !g.is_extern);
        let is_string = |name: &&str| name.starts_with('$') || name.starts_with("__unnamed_");
        globals.map(|g| g.name.as_str()).filter(is_string)
    }

    /// Appends `suffix` to the names of [`Self::strings`]: each of nvcc's texts has such, under the same names, and
    /// they are not shared when several texts are one program. Those of other texts, which functions taken from there
    /// use, become what `elsewhere` says.
    pub fn name_strings_apart(&mut self, suffix: &str, elsewhere: &BTreeMap<String, String>) {
        let own: BTreeSet<String> = self.strings().map(str::to_owned).collect();
        let defined: BTreeSet<String> = self
            .globals
            .iter()
            .filter(|g| !g.is_extern)
            .map(|g| g.name.clone())
            .collect();
        let rename = |name: &mut String| {
            if own.contains(name) {
                name.push_str(suffix);
            } else if let Some(other) = elsewhere.get(name).filter(|_| !defined.contains(name)) {
                name.clone_from(other);
            }
        };
        for global in &mut self.globals {
            rename(&mut global.name);
            global.relocations.iter_mut().for_each(|(_, name, _)| rename(name));
        }
        for addr in self.kernels.iter_mut().flat_map(addresses_in) {
            if let AddressBase::Global(name) = &mut addr.base {
                rename(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::text;

    #[test]
    fn only_strings_of_the_compiler_get_other_names() {
        let module_with = |string: &str| {
            format!(
                "module\nglobal \"{string}\" size 3 align 1 init \"6162\"\nglobal \"$elsewhere\" extern size 4 align 4\n\
                 global \"table\" size 8 align 8 init \"0000000000000000\"\n  reloc 0 \"{string}\" 0\n\
                 kernel \"k\" {{\n  reg %r0..%r1 w64\nbb0:\n  addrof.global %r0, [\"{string}\"]\n\
                 \x20 ld.global.u64 %r1, [\"table\"]\n  exit\n}}\n"
            )
        };
        let mut module = text::parse::module(&module_with("$str")).expect("hetIR");
        module.name_strings_apart("@1", &BTreeMap::new());
        assert_eq!(text::print::module(&module), module_with("$str@1"));
        let elsewhere = BTreeMap::from([("$elsewhere".to_owned(), "$elsewhere@0".to_owned())]);
        module.name_strings_apart("@1", &elsewhere);
        assert!(text::print::module(&module).contains("\"$elsewhere@0\" extern"));
    }
}
