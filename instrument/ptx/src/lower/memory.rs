//! Loads, stores, fences (PTX ISA, "ld", "ld.global.nc", "st", "membar / fence", "Parameterized and Variadic
//! Functions").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, Modifiers, Op, Operand, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::moves;
use crate::lower::operand::{Place, absolute, operands};
use crate::lower::scope::Symbol;

/// What an address operand of `ld` or `st` names.
enum Target {
    Memory(Space, Address),
    /// A scalar parameter or result of an inlined call.
    CallScalar(RegId, Type),
}

/// What the modifiers of `ld` and `st` say.
struct Access {
    space: Space,
    ty: Type,
    ordering: Ordering,
    /// Elements.
    count: usize,
}

fn access(inst: &Instruction<'_>) -> Result<Access, Reason> {
    let mut list = ModifierList::new(inst);
    list.drop_cache_hints();
    // Every access of a kernel is one, and is done once.
    list.take("mmio");
    let (space, is_constant) = list.space();
    let ordering = list.ordering();
    let is_read_only = list.take("nc") || is_constant || inst.opcode == "ldu";
    list.scope();
    let count = list.take_from(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
    let ty = list.ty()?;
    list.finish()?;
    if ty == Type::Pred {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    // `ld.volatile.const` does not exist, but a volatile read must stay one.
    let ordering = ordering.unwrap_or(if is_read_only {
        Ordering::NonCoherent
    } else {
        Ordering::Weak
    });
    Ok(Access {
        space,
        ty,
        ordering,
        count,
    })
}

/// The elements of a load's or store's register operand.
pub(super) fn elements<'o, 'a>(operand: &'o ast::Operand<'a>, count: usize) -> Result<&'o [ast::Operand<'a>], Reason> {
    match operand {
        // Triton writes braces around one element, too.
        ast::Operand::Vector(parts) if parts.len() == count => Ok(parts),
        ast::Operand::Vector(_) => Err(Reason::Operand {
            expected: "a vector of the size",
            found: operand.describe(),
        }),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(Reason::Operand {
            expected: "a vector",
            found: operand.describe(),
        }),
    }
}

/// PTX ISA, "ld".
pub(super) fn load<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let Access {
        space,
        ty,
        ordering,
        count,
    } = access(inst)?;
    let [dst, address] = without_policy(inst)?;
    let parts = elements(dst, count)?;
    match target(k, address, space)? {
        Target::Memory(space, addr) => {
            let dsts = moves::results(k, parts, |k, part| k.wide_result(part, ty))?;
            k.emit(Op::Load {
                space,
                ty,
                ordering,
                dsts,
                addr,
            });
        }
        Target::CallScalar(reg, held) => {
            let [dst] = parts else {
                return Err(Reason::Type(ty.name().to_owned()));
            };
            let dst = k.wide_result(dst, ty)?;
            transfer(k, Scalar { reg: dst, ty }, Operand::Reg(reg), held, ty)?;
        }
    }
    Ok(())
}

/// PTX ISA, "st".
pub(super) fn store<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let Access {
        space,
        ty,
        ordering,
        count,
    } = access(inst)?;
    let [address, src] = without_policy(inst)?;
    let parts = elements(src, count)?;
    let srcs = parts
        .iter()
        .map(|p| k.wide_value(p, ty))
        .collect::<Result<Vec<_>, _>>()?;
    match target(k, address, space)? {
        Target::Memory(Space::Param, _) => Err(Reason::Family("stores to kernel parameters")),
        Target::Memory(space, addr) => {
            k.emit(Op::Store {
                space,
                ty,
                ordering,
                addr,
                srcs,
            });
            Ok(())
        }
        Target::CallScalar(reg, held) => {
            let [src] = srcs.as_slice() else {
                return Err(Reason::Type(ty.name().to_owned()));
            };
            transfer(k, Scalar { reg, ty: held }, *src, ty, ty)
        }
    }
}

/// A register, and what it holds.
pub(super) struct Scalar {
    pub(super) reg: RegId,
    pub(super) ty: Type,
}

/// Moves a value of type `accessed` between a call's scalar and a register, as memory in between would.
pub(super) fn transfer(
    k: &mut KernelLowering<'_, '_>,
    dst: Scalar,
    src: Operand,
    src_ty: Type,
    accessed: Type,
) -> Result<(), Reason> {
    let dst_width = k.registers[dst.reg.index()];
    let src_width = match src {
        Operand::Reg(reg) => k.registers[reg.index()],
        Operand::Imm(_) => dst_width,
    };
    let whole = dst.ty.size_bytes() == src_ty.size_bytes();
    if whole && dst_width == src_width && accessed.size_bytes() > 1 {
        k.emit(Op::Mov {
            ty: untyped(dst_width),
            dst: dst.reg,
            src,
        });
        return Ok(());
    }
    if accessed.size_bytes() > dst.ty.size_bytes().min(src_ty.size_bytes()) {
        return Err(Reason::Type(accessed.name().to_owned()));
    }
    let (src_ty, dst_ty) = (
        integer(accessed.size_bytes(), accessed.is_signed()),
        integer(dst_width.size_bytes(), accessed.is_signed()),
    );
    k.emit(Op::Cvt {
        dst_ty,
        src_ty,
        mods: Modifiers::default(),
        dst: dst.reg,
        src,
    });
    Ok(())
}

pub(super) const fn untyped(width: Width) -> Type {
    match width {
        Width::Pred => Type::Pred,
        Width::W16 => Type::B16,
        Width::W32 => Type::B32,
        Width::W64 => Type::B64,
    }
}

const fn integer(size_bytes: u32, signed: bool) -> Type {
    match (size_bytes, signed) {
        (1, false) => Type::U8,
        (1, true) => Type::S8,
        (2, false) => Type::U16,
        (2, true) => Type::S16,
        (4, false) => Type::U32,
        (4, true) => Type::S32,
        (_, false) => Type::U64,
        (_, true) => Type::S64,
    }
}

fn target<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>, space: Space) -> Result<Target, Reason> {
    let ast::Operand::Address(base, offset) = operand else {
        return Err(Reason::Operand {
            expected: "an address",
            found: operand.describe(),
        });
    };
    let mismatch = || Reason::Operand {
        expected: "an address of the state space",
        found: operand.describe(),
    };
    let Some(name) = base else {
        return Ok(Target::Memory(space, absolute(*offset)));
    };
    if let Some(reg) = k.register_named(name) {
        let width = k.registers[reg.index()];
        let narrow_space = matches!(space, Space::Shared | Space::Local | Space::Param);
        if width == Width::W64 || (width == Width::W32 && narrow_space) {
            return Ok(Target::Memory(
                space,
                Address {
                    base: AddressBase::Reg(reg),
                    offset: *offset,
                },
            ));
        }
        let expected = if narrow_space { 32 } else { 64 };
        return Err(Reason::Width {
            name: (*name).to_owned(),
            found: crate::lower::scope::bits(width),
            expected,
        });
    }
    let add = |at: u32| absolute(i64::from(at).wrapping_add(*offset));
    match (k.place(name)?, space) {
        (Place::Global(variable), Space::Global | Space::Generic) => {
            let base = AddressBase::Global(variable.to_owned());
            Ok(Target::Memory(Space::Global, Address { base, offset: *offset }))
        }
        (Place::Own(Symbol::Shared(at)), Space::Shared) => Ok(Target::Memory(space, add(at))),
        (Place::Own(Symbol::DynamicShared), Space::Shared) => {
            k.uses_dynamic_shared = true;
            Ok(Target::Memory(space, absolute(*offset)))
        }
        (Place::Own(Symbol::Local(at)), Space::Local) => Ok(Target::Memory(space, add(at))),
        (Place::Own(Symbol::Param(at)), Space::Param) => Ok(Target::Memory(space, add(at))),
        (Place::Own(Symbol::CallAggregate(at)), Space::Param) => Ok(Target::Memory(Space::Local, add(at))),
        (Place::Own(Symbol::Frame(at)), Space::Local) | (Place::Own(Symbol::FrameAggregate(at)), Space::Param) => {
            let base = k.call_stack.base.ok_or_else(mismatch)?;
            let mut addr = base.in_frame(at);
            addr.offset = addr.offset.wrapping_add(*offset);
            Ok(Target::Memory(Space::Local, addr))
        }
        (Place::Own(Symbol::CallScalar(reg, ty)), Space::Param) if *offset == 0 => Ok(Target::CallScalar(reg, ty)),
        _ => Err(mismatch()),
    }
}

/// The address of an atomic operation.
pub(super) fn memory_target<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operand: &ast::Operand<'a>,
    space: Space,
) -> Result<(Space, Address), Reason> {
    match target(k, operand, space)? {
        Target::Memory(space, address) => Ok((space, address)),
        Target::CallScalar(..) => Err(Reason::Operand {
            expected: "an address of the state space",
            found: operand.describe(),
        }),
    }
}

/// The operands but the last one, if that only advises the cache.
fn without_policy<'i, 'a, const N: usize>(inst: &'i Instruction<'a>) -> Result<&'i [ast::Operand<'a>; N], Reason> {
    match inst.operands.split_last_chunk::<1>() {
        Some((others, _)) if inst.modifiers.contains(&"L2::cache_hint") => {
            let found = inst.operands.len();
            let expected = "2, and a cache policy";
            others.try_into().map_err(|_| Reason::OperandCount { expected, found })
        }
        _ => operands(inst, "2"),
    }
}

/// PTX ISA, "createpolicy": nobody reads it here.
pub(super) fn create_policy<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let dst = inst.operands.first().ok_or(Reason::Lacks("a result"))?;
    let dst = k.result(dst, Width::W64)?;
    k.emit(Op::Mov {
        ty: Type::B64,
        dst,
        src: Operand::Imm(0),
    });
    Ok(())
}

/// PTX ISA, "membar", "fence". hetIR has one strength of fence, which is `membar`'s.
pub(super) fn fence<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let scope = list.scope();
    // All see memory in one way: there are no proxies but that of tensor copies, which are not modelled.
    let of_proxy = list.take("proxy") && !list.take("alias");
    if of_proxy && !(list.take_prefixed("async")) {
        return Err(Reason::Family("fences for copies of tensors"));
    }
    list.take("mbarrier_init");
    for semantics in ["sc", "acq_rel", "acquire", "release"] {
        list.take(semantics);
    }
    if of_proxy {
        list.take_prefixed("sync_restrict");
        list.space();
    }
    list.finish()?;
    let [] = operands(inst, "0")?;
    k.emit(Op::Membar {
        scope: scope.unwrap_or(Scope::Gpu),
    });
    Ok(())
}
