//! Calls (PTX ISA, "call"): which function a call means and what its names stand for. Inlining it is the kernel's part.

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::type_named;
use crate::lower::scope::Symbol;

/// A function to be inlined, and what stands for its results and parameters.
pub(super) struct Call<'m, 'a> {
    pub(super) callee: &'m ast::Function<'a>,
    pub(super) bindings: Vec<(&'a str, Symbol)>,
}

/// PTX ISA, "call": what `inst` calls, and with what.
pub(super) fn resolve<'m, 'a>(k: &mut KernelLowering<'m, 'a>, inst: &Instruction<'a>) -> Result<Call<'m, 'a>, Reason> {
    let (results, name, args): (&[_], _, &[_]) = match inst.operands.as_slice() {
        [
            ast::Operand::List(results),
            ast::Operand::Name(name, None),
            ast::Operand::List(args),
        ] => (results, name, args),
        [ast::Operand::List(results), ast::Operand::Name(name, None)] => (results, name, &[]),
        [ast::Operand::Name(name, None), ast::Operand::List(args)] => (&[], name, args),
        [ast::Operand::Name(name, None)] => (&[], name, &[]),
        _ => return Err(Reason::Family("indirect calls")),
    };
    k.names.check(name)?;
    let Some(callee) = k.names.functions.get(name).copied() else {
        return Err(if k.register_named(name).is_some() {
            Reason::Family("indirect calls")
        } else {
            Reason::Undeclared((*name).to_owned())
        });
    };
    if callee.body.is_none() {
        return Err(Reason::Call {
            name: (*name).to_owned(),
            why: "the function has no body in this module",
        });
    }
    let mismatch = || Reason::Call {
        name: (*name).to_owned(),
        why: "the arguments do not match the declaration",
    };
    if callee.results.len() != results.len() || callee.params.len() != args.len() {
        return Err(mismatch());
    }
    let mut bindings = Vec::with_capacity(results.len() + args.len());
    let formals = callee.results.iter().chain(&callee.params);
    for (formal, actual) in formals.zip(results.iter().chain(args)) {
        let ast::Operand::Name(actual, None) = actual else {
            return Err(mismatch());
        };
        let symbol = k
            .scopes
            .iter()
            .rev()
            .find_map(|s| s.symbol(actual))
            .ok_or_else(mismatch)?;
        let is_scalar = formal.dims.is_empty() && formal.vector == 1;
        let matches = match symbol {
            Symbol::CallScalar(_, ty) => {
                let formal_ty = type_named(formal.ty);
                is_scalar && formal_ty.is_some_and(|f| f.size_bytes() == ty.size_bytes())
            }
            Symbol::CallAggregate(_) => !is_scalar,
            _ => false,
        };
        if !matches {
            return Err(mismatch());
        }
        bindings.push((formal.name, symbol));
    }
    Ok(Call { callee, bindings })
}
