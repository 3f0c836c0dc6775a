//! AST to hetIR: module variables, then each kernel, one instruction family per file.

mod functions;
mod barrier_numbers;
mod names;
mod globals;
pub(crate) mod layout;
mod scope;
mod modifiers;
mod call_stack;
mod control_flow;
mod lowering;
mod operand;
mod kernel;
mod call;
mod recursion;
mod instruction;
mod arithmetic;
mod carry;
mod halves;
mod eight_bits;
mod bits;
mod compare;
mod convert;
mod moves;
mod memory;
mod memory_barrier;
mod arrival_barrier;
mod atomic;
mod async_update;
mod async_copy;
mod warp;
mod barrier;
mod special_register;
mod tf32;
mod video;
mod matrix;
mod images;
mod address_spaces;
mod generic_windows;
mod warp_constants;
mod in_step;

use std::collections::HashSet;

use hetckpt_ir::grid_workspace;
use hetckpt_ir::module::{Global, Module, RejectedKernel};

use crate::ast;
use crate::error::Error;
use names::ModuleNames;

/// Lowers a parsed text.
pub(crate) fn lower(ast: &ast::Module<'_>, printf_bytes: u32) -> Result<Module, Error> {
    if let Some((bits, line)) = ast.address_size
        && bits != 64
    {
        return Err(Error::AddressSize { line, bits });
    }
    let mut names = ModuleNames::new(ast, printf_bytes);
    let mut module = Module {
        globals: globals::lower_globals(ast, &mut names),
        ..Module::default()
    };
    for function in ast.functions.iter().filter(|f| f.is_entry && f.body.is_some()) {
        match kernel::lower_kernel(&names, function) {
            Ok(kernel) => module.kernels.push(kernel),
            Err(reasons) => module.rejected.push(RejectedKernel {
                name: function.name.to_owned(),
                reasons,
            }),
        }
    }
    if module.kernels.iter().any(|kernel| kernel.grid_workspace().is_some()) {
        module.globals.push(grid_workspaces());
    }
    reject_broken_kernels(ast, &mut module);
    Ok(module)
}

/// What [`grid_workspace`] says that a module has.
fn grid_workspaces() -> Global {
    Global {
        name: grid_workspace::VARIABLE.to_owned(),
        is_constant: false,
        is_extern: false,
        is_managed: false,
        size_bytes: u64::from(grid_workspace::COUNT * grid_workspace::BYTES),
        align_bytes: grid_workspace::BYTES,
        init: Vec::new(),
        relocations: Vec::new(),
    }
}

/// Kernels of which not more than their name could be read.
fn reject_broken_kernels(ast: &ast::Module<'_>, module: &mut Module) {
    let known = module.kernels.iter().map(|k| k.name.as_str());
    let mut known: HashSet<&str> = known.chain(module.rejected.iter().map(|r| r.name.as_str())).collect();
    let mut rejected = Vec::new();
    for broken in ast.broken.iter().filter(|b| b.is_entry) {
        if known.insert(broken.name) {
            rejected.push(RejectedKernel {
                name: broken.name.to_owned(),
                reasons: vec![format!("kernel `{}`, {}", broken.name, broken.error)],
            });
        }
    }
    module.rejected.append(&mut rejected);
}
