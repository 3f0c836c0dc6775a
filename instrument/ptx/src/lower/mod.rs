//! AST to hetIR: module variables, then each kernel, one instruction family per file.

mod globals;
pub(crate) mod layout;
mod scope;
mod modifiers;
mod kernel;
mod control_flow;
mod operand;
mod instruction;
mod arithmetic;
mod carry;
mod bits;
mod compare;
mod convert;
mod moves;
mod memory;
mod async_copy;
mod atomic;
mod warp;
mod barrier;
mod special_register;
mod address_spaces;
mod warp_constants;

use std::collections::{HashMap, HashSet};

use hetckpt_ir::module::{Module, RejectedKernel};

use crate::ast;
use crate::error::{Error, Reason};

/// What names mean outside of functions.
pub(crate) struct ModuleNames<'m, 'a> {
    /// Module-level variables by name.
    pub(crate) variables: HashMap<&'a str, &'m ast::Variable<'a>>,
    /// Functions by name; the one with a body where there is one.
    pub(crate) functions: HashMap<&'a str, &'m ast::Function<'a>>,
    /// Variables and functions whose declarations cannot be read or laid out, and why.
    pub(crate) broken: HashMap<&'a str, String>,
    /// What a call of `vprintf` reads from the address that it gets, bytes.
    pub(crate) printf_bytes: u32,
}

/// Lowers a parsed text.
pub(crate) fn lower(ast: &ast::Module<'_>, printf_bytes: u32) -> Result<Module, Error> {
    if let Some((bits, line)) = ast.address_size
        && bits != 64
    {
        return Err(Error::AddressSize { line, bits });
    }
    let mut names = module_names(ast, printf_bytes);
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
    reject_broken_kernels(ast, &mut module);
    Ok(module)
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

impl ModuleNames<'_, '_> {
    /// An error if what `name` stands for in the module cannot be used.
    pub(crate) fn check(&self, name: &str) -> Result<(), Reason> {
        match self.broken.get(name) {
            None => Ok(()),
            Some(why) => Err(Reason::Declaration {
                name: name.to_owned(),
                why: why.clone(),
            }),
        }
    }
}

fn module_names<'m, 'a>(ast: &'m ast::Module<'a>, printf_bytes: u32) -> ModuleNames<'m, 'a> {
    let mut names = ModuleNames {
        variables: HashMap::new(),
        functions: HashMap::new(),
        broken: ast.broken.iter().map(|b| (b.name, b.error.to_string())).collect(),
        printf_bytes,
    };
    for variable in &ast.variables {
        // A definition wins over an `.extern` declaration of the same name.
        let slot = names.variables.entry(variable.name).or_insert(variable);
        if slot.is_extern {
            *slot = variable;
        }
    }
    for function in &ast.functions {
        let slot = names.functions.entry(function.name).or_insert(function);
        if slot.body.is_none() {
            *slot = function;
        }
    }
    names
}
