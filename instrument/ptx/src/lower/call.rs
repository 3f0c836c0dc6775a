//! Calls (PTX ISA, "call"): which function a call means, or which ones it may mean, and what its names stand for.
//! Inlining them is the kernel's part.

use hetckpt_ir::inst::Operand;
use hetckpt_ir::types::Type;

use crate::ast::{self, Instruction};
use crate::device_functions;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::type_named;
use crate::lower::scope::{Symbol, width_of};

/// A function to be inlined, and what stands for its results and parameters.
pub(super) struct Call<'m, 'a> {
    pub(super) callee: &'m ast::Function<'a>,
    pub(super) bindings: Vec<(&'a str, Symbol)>,
}

/// What a call means.
pub(super) enum Callee<'m, 'a> {
    /// A function.
    Named(Call<'m, 'a>),
    /// The one of these whose address the operand is.
    ByAddress(Operand, Vec<(u64, Call<'m, 'a>)>),
}

/// PTX ISA, "call": what `inst` calls, and with what.
pub(super) fn resolve<'m, 'a>(
    k: &mut KernelLowering<'m, 'a>,
    inst: &Instruction<'a>,
) -> Result<Callee<'m, 'a>, Reason> {
    let malformed = || Reason::OperandCount {
        expected: "results, a function and arguments",
        found: inst.operands.len(),
    };
    // A call by address ends with its prototype, or with a list of functions; both are told by the arguments.
    let operands = match inst.operands.as_slice() {
        [others @ .., ast::Operand::Name(_, None)] if matches!(others.last(), Some(ast::Operand::List(_))) => {
            match others {
                // The function's own name comes behind its results.
                [ast::Operand::List(_)] => &inst.operands,
                _ => others,
            }
        }
        all => all,
    };
    let (results, name, args): (&[_], _, &[_]) = match operands {
        [
            ast::Operand::List(results),
            ast::Operand::Name(name, None),
            ast::Operand::List(args),
        ] => (results, name, args),
        [ast::Operand::List(results), ast::Operand::Name(name, None)] => (results, name, &[]),
        [ast::Operand::Name(name, None), ast::Operand::List(args)] => (&[], name, args),
        // `call %rd1, prototype`.
        [ast::Operand::Name(name, None), ast::Operand::Name(..)] | [ast::Operand::Name(name, None)] => (&[], name, &[]),
        _ => return Err(malformed()),
    };
    k.names.check(name)?;
    if let Some(callee) = k.names.functions.get(name).copied() {
        // Another text may have declared a result that there is not: as of C's functions, it is anything.
        let results = if callee.results.is_empty() { &[] } else { results };
        return bind(k, callee, results, args).map(Callee::Named);
    }
    if k.register_named(name).is_none() {
        return Err(Reason::Undeclared((*name).to_owned()));
    }
    k.holds_functions = true;
    let address = k.value(&ast::Operand::Name(name, None), Type::B64)?;
    let names = k.names;
    let candidates = names.by_address.iter().filter_map(|(&address, name)| {
        let callee = names.functions.get(name).copied()?;
        // Another prototype.
        Some((address, bind(k, callee, results, args).ok()?))
    });
    Ok(Callee::ByAddress(address, candidates.collect()))
}

/// What the names of `callee` stand for in a call with these results and arguments.
fn bind<'m, 'a>(
    k: &mut KernelLowering<'m, 'a>,
    callee: &'m ast::Function<'a>,
    results: &[ast::Operand<'a>],
    args: &[ast::Operand<'a>],
) -> Result<Call<'m, 'a>, Reason> {
    let name = callee.name;
    if callee.body.is_none() {
        return Err(Reason::Call {
            name: name.to_owned(),
            why: "the function has no body in this module",
        });
    }
    let mismatch = || Reason::Call {
        name: name.to_owned(),
        why: "the arguments do not match the declaration",
    };
    // LLVM declares and calls `vprintf` without its result.
    let drops_results = results.is_empty() && device_functions::is_ours(name);
    if (callee.results.len() != results.len() && !drops_results) || callee.params.len() != args.len() {
        return Err(mismatch());
    }
    let mut bindings = Vec::with_capacity(callee.results.len() + args.len());
    for formal in callee.results.iter().filter(|_| drops_results) {
        let ty = type_named(formal.ty).ok_or_else(mismatch)?;
        bindings.push((formal.name, Symbol::CallScalar(k.scratch(width_of(ty)), ty)));
    }
    let formals = callee.results.iter().take(results.len()).chain(&callee.params);
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
            Symbol::CallAggregate(_) | Symbol::FrameAggregate(_) => !is_scalar,
            _ => false,
        };
        if !matches {
            return Err(mismatch());
        }
        bindings.push((formal.name, symbol));
    }
    Ok(Call { callee, bindings })
}
