//! Addresses for a module's variables where no device server gives them any.

use std::collections::BTreeMap;

use hetckpt_ir::module::{Global, Module};

/// Where a program's first module has its variables on a device.
const FIRST: u64 = 0x2000_0000_0000;

/// Addresses as a device server would give them to the variables of a program's first module, by name.
pub fn addresses(module: &Module) -> BTreeMap<String, u64> {
    let mut next = FIRST;
    let mut place = |global: &Global| {
        let address = next.next_multiple_of(u64::from(global.align_bytes.max(1)));
        next = address + global.size_bytes;
        (global.name.clone(), address)
    };
    module.globals.iter().map(&mut place).collect()
}
