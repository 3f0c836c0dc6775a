//! Functions that may call themselves ([`super::call_stack`] says how they are laid out): their calls, and what stands
//! before and behind their bodies, which are lowered behind the kernel's own.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{Address, Comparison, Guard, Op, Operand, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast;
use crate::error::Reason;
use crate::lower::call::Call;
use crate::lower::call_stack::{Base, FRAME_ALIGN, HEADER_BYTES, Instance, MAX_ARGUMENT_BYTES, STACK_BYTES, Site};
use crate::lower::halves;
use crate::lower::layout::{Segment, size_and_align};
use crate::lower::lowering::{Frame, KernelLowering};
use crate::lower::memory::untyped;
use crate::lower::modifiers::type_named;
use crate::lower::operand::absolute;
use crate::lower::scope::{Scope, Symbol, width_of};

/// Where a call's number lies in a frame, and the address of the caller's frame.
const NUMBER_AT: u32 = 0;
const CALLER_AT: u32 = 8;

/// PTX ISA, "call", of a function that may call itself.
pub(super) fn call<'m, 'a>(k: &mut KernelLowering<'m, 'a>, call: Call<'m, 'a>) -> Result<(), Reason> {
    let Call { callee, bindings } = call;
    let not_taken = k.branch_on_guard();
    let base = base(k)?;
    let index = instance(k, callee)?;
    let (before, arguments, resume) = (k.drafts.reserve(), k.drafts.reserve(), k.drafts.reserve());
    k.drafts.start(before);
    k.drafts.start(arguments);
    let caller = k.call_stack.current;
    if caller.is_none() {
        let addr = absolute(base.at.into());
        k.emit(Op::AddrOf {
            dst: base.top,
            space: Space::Local,
            addr: addr.clone(),
        });
        k.emit(Op::AddrOf {
            dst: base.frame,
            space: Space::Local,
            addr,
        });
    }
    let instance = &k.call_stack.functions[index];
    let (entry, formals) = (instance.entry, instance.bindings.clone());
    let num_results = callee.results.len();
    let pairs = || {
        formals
            .iter()
            .zip(&bindings)
            .map(|((_, formal), (_, actual))| (*formal, *actual))
    };
    let variables: Vec<_> = callee.results.iter().chain(&callee.params).collect();
    for ((formal, actual), variable) in pairs().zip(&variables).skip(num_results) {
        pass(k, base, variable, actual, formal, true)?;
    }
    let number = k.call_stack.sites.len() as u64;
    store(k, Type::B32, base.in_next_frame(NUMBER_AT), Operand::Imm(number));
    let (jumps, _) = k.drafts.position();
    k.call_stack.sites.push(Site {
        caller,
        callee: index,
        before,
        jumps,
        resume,
        span: k.span(),
    });
    k.terminate(Terminator::Jump(entry));
    k.drafts.start(resume);
    for ((formal, actual), variable) in pairs().zip(&variables).take(num_results) {
        pass(k, base, variable, formal, actual, false)?;
    }
    k.leave_guard(not_taken);
    Ok(())
}

/// The stack, which the kernel has from now on.
fn base(k: &mut KernelLowering<'_, '_>) -> Result<Base, Reason> {
    if let Some(base) = k.call_stack.base {
        return Ok(base);
    }
    let size = u64::from(STACK_BYTES + MAX_ARGUMENT_BYTES);
    let base = Base {
        at: k.local.place(size, FRAME_ALIGN)?.offset,
        frame: k.scratch(Width::W64),
        top: k.scratch(Width::W64),
    };
    k.call_stack.base = Some(base);
    Ok(base)
}

/// The number of `function`, which is to be lowered if it has just got it.
fn instance<'m, 'a>(k: &mut KernelLowering<'m, 'a>, function: &'m ast::Function<'a>) -> Result<usize, Reason> {
    let known = k
        .call_stack
        .functions
        .iter()
        .position(|f| f.function.name == function.name);
    if let Some(index) = known {
        return Ok(index);
    }
    let mut frame = Segment::default();
    frame.place(HEADER_BYTES.into(), FRAME_ALIGN)?;
    let mut bindings = Vec::new();
    for formal in function.results.iter().chain(&function.params) {
        let symbol = if formal.dims.is_empty() && formal.vector == 1 {
            let ty = type_named(formal.ty).ok_or_else(|| Reason::Type(formal.ty.to_owned()))?;
            Symbol::CallScalar(k.scratch(width_of(ty)), ty)
        } else {
            let (size, align) = size_and_align(formal)?;
            Symbol::FrameAggregate(frame.place(size, align)?.offset)
        };
        bindings.push((formal.name, symbol));
    }
    if frame.size_bytes() > MAX_ARGUMENT_BYTES {
        return Err(Reason::Limit {
            what: "what a function that calls itself is given",
            found: frame.size_bytes().into(),
            limit: MAX_ARGUMENT_BYTES.into(),
        });
    }
    let instance = Instance {
        function,
        entry: k.drafts.reserve(),
        returns: k.drafts.reserve(),
        dispatch: (k.drafts.reserve(), k.scratch(Width::W32)),
        bindings,
        frame,
        registers: 0..0,
    };
    k.call_stack.functions.push(instance);
    Ok(k.call_stack.functions.len() - 1)
}

/// Moves a parameter or a result; `forth`: what lies in the function's frame is written.
fn pass(
    k: &mut KernelLowering<'_, '_>,
    base: Base,
    variable: &ast::Variable<'_>,
    from: Symbol,
    to: Symbol,
    forth: bool,
) -> Result<(), Reason> {
    if let (Symbol::CallScalar(src, ty), Symbol::CallScalar(dst, _)) = (from, to) {
        let (ty, src) = (untyped(width_of(ty)), Operand::Reg(src));
        k.emit(Op::Mov { ty, dst, src });
        return Ok(());
    }
    let place = |symbol, is_callees: bool| match symbol {
        Symbol::FrameAggregate(at) if is_callees => Some(base.in_next_frame(at)),
        Symbol::FrameAggregate(at) => Some(base.in_frame(at)),
        Symbol::CallAggregate(at) => Some(absolute(at.into())),
        _ => None,
    };
    let mismatch = || Reason::Call {
        name: variable.name.to_owned(),
        why: "the arguments do not match the declaration",
    };
    let from = place(from, !forth).ok_or_else(mismatch)?;
    let to = place(to, forth).ok_or_else(mismatch)?;
    let (size, align) = size_and_align(variable)?;
    let (ty, width) = match align {
        1 => (Type::B8, Width::W16),
        2 => (Type::B16, Width::W16),
        4 => (Type::B32, Width::W32),
        _ => (Type::B64, Width::W64),
    };
    let behind = |address: &Address, offset: u64| Address {
        offset: address.offset.wrapping_add_unsigned(offset),
        ..address.clone()
    };
    // Its last bytes may be fewer than those of a piece.
    let piece = u64::from(ty.size_bytes());
    let whole = (0..size / piece).map(|number| (number * piece, ty, width));
    let rest = (size / piece * piece..size).map(|at| (at, Type::B8, Width::W16));
    for (at, ty, width) in whole.chain(rest) {
        let held = k.scratch(width);
        load(k, ty, held, behind(&from, at));
        store(k, ty, behind(&to, at), Operand::Reg(held));
    }
    Ok(())
}

fn load(k: &mut KernelLowering<'_, '_>, ty: Type, dst: RegId, addr: Address) {
    k.emit(Op::Load {
        space: Space::Local,
        ty,
        ordering: Ordering::Weak,
        dsts: vec![Some(dst)],
        addr,
    });
}

fn store(k: &mut KernelLowering<'_, '_>, ty: Type, addr: Address, src: Operand) {
    k.emit(Op::Store {
        space: Space::Local,
        ty,
        ordering: Ordering::Weak,
        addr,
        srcs: vec![src],
    });
}

fn branch(k: &mut KernelLowering<'_, '_>, cmp: (Comparison, Type), a: Operand, b: Operand, taken: BbId) {
    let pred = halves::compare(k, cmp, a, b, None);
    let not_taken = k.drafts.reserve();
    k.terminate(Terminator::Branch {
        guard: Guard { pred, negated: false },
        taken,
        not_taken,
    });
    k.drafts.start(not_taken);
}

/// Begins with the body of function `index`: it makes room for its frame.
pub(super) fn begin(k: &mut KernelLowering<'_, '_>, index: usize) -> Result<(), Reason> {
    let base = base(k)?;
    if k.drafts.is_open() {
        let end = k.return_terminator();
        k.terminate(end);
    }
    let first_register = k.registers.len();
    let instance = &mut k.call_stack.functions[index];
    instance.registers.start = first_register;
    let (entry, returns, name) = (instance.entry, instance.returns, instance.function.name);
    let mut scope = Scope::default();
    for (name, symbol) in &instance.bindings {
        scope.declare_symbol(name, *symbol)?;
    }
    k.scopes = vec![scope];
    k.frames = vec![Frame {
        name,
        return_to: Some(returns),
    }];
    k.call_stack.current = Some(index);
    k.drafts.start(entry);
    store(k, Type::B64, base.in_next_frame(CALLER_AT), Operand::Reg(base.frame));
    let (ty, src) = (Type::B64, Operand::Reg(base.top));
    k.emit(Op::Mov {
        ty,
        dst: base.frame,
        src,
    });
    // Its size is known when all has been lowered.
    k.emit(base.make_room(0));
    let end = k.scratch(Width::W64);
    k.emit(Op::AddrOf {
        dst: end,
        space: Space::Local,
        addr: absolute(i64::from(base.at + STACK_BYTES)),
    });
    let overflow = k.drafts.reserve();
    branch(k, (Comparison::Gt, Type::U64), src, Operand::Reg(end), overflow);
    let body = k.drafts.reserve();
    k.terminate(Terminator::Jump(body));
    k.drafts.start(overflow);
    k.terminate(Terminator::Trap);
    k.drafts.start(body);
    Ok(())
}

/// Ends it: the frame is given back.
pub(super) fn end(k: &mut KernelLowering<'_, '_>, index: usize) -> Result<(), Reason> {
    let base = base(k)?;
    let instance = &k.call_stack.functions[index];
    let (returns, (dispatch, number)) = (instance.returns, instance.dispatch);
    k.drafts.start(returns);
    load(k, Type::B32, number, base.in_frame(NUMBER_AT));
    let (ty, src) = (Type::B64, Operand::Reg(base.frame));
    k.emit(Op::Mov { ty, dst: base.top, src });
    load(k, ty, base.frame, base.in_next_frame(CALLER_AT));
    k.terminate(Terminator::Jump(dispatch));
    let end = k.registers.len();
    k.call_stack.functions[index].registers.end = end;
    k.call_stack.current = None;
    Ok(())
}

/// Has every function return to where it was called, once all calls are known.
pub(super) fn dispatch(k: &mut KernelLowering<'_, '_>) {
    for index in 0..k.call_stack.functions.len() {
        let (block, number) = k.call_stack.functions[index].dispatch;
        k.drafts.start(block);
        let sites = k.call_stack.sites.iter().enumerate();
        let own: Vec<_> = sites
            .filter(|(_, site)| site.callee == index)
            .map(|(at, site)| (at as u64, site.resume))
            .collect();
        for (at, resume) in own {
            branch(
                k,
                (Comparison::Eq, Type::U32),
                Operand::Reg(number),
                Operand::Imm(at),
                resume,
            );
        }
        k.terminate(Terminator::Trap);
    }
}
