//! Integer and floating-point arithmetic (PTX ISA, "Integer Arithmetic Instructions", "Floating Point Instructions",
//! "Half Precision Floating Point Instructions").

use hetckpt_ir::inst::{AluOp, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;

const INTEGERS: [Type; 6] = [Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64];
const SIGNED: [Type; 3] = [Type::S16, Type::S32, Type::S64];
const FLOATS: [Type; 2] = [Type::F32, Type::F64];
const HALVES: [Type; 4] = [Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2];

/// `ty` must be in one of `lists`.
pub(super) fn check_type(ty: Type, lists: &[&[Type]]) -> Result<(), Reason> {
    if lists.iter().any(|list| list.contains(&ty)) {
        Ok(())
    } else {
        Err(Reason::Type(ty.name().to_owned()))
    }
}

/// An arithmetic instruction whose modifiers are known.
pub(super) struct Alu<'t> {
    pub(super) op: AluOp,
    pub(super) ty: Type,
    pub(super) mods: Modifiers,
    /// Width of the result.
    pub(super) dst: Width,
    /// Types of the sources.
    pub(super) srcs: &'t [Type],
}

/// Emits `alu` with the operands of `inst`, result first.
pub(super) fn emit<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, alu: &Alu<'_>) -> Result<(), Reason> {
    let [dst, srcs @ ..] = inst.operands.as_slice() else {
        return Err(Reason::OperandCount {
            expected: "a result and sources",
            found: 0,
        });
    };
    if srcs.len() != alu.srcs.len() {
        let expected = ["1", "2", "3", "4", "5"].get(alu.srcs.len()).copied().unwrap_or("more");
        return Err(Reason::OperandCount {
            expected,
            found: inst.operands.len(),
        });
    }
    let srcs = srcs
        .iter()
        .zip(alu.srcs)
        .map(|(s, ty)| k.value(s, *ty))
        .collect::<Result<Vec<_>, _>>()?;
    let dst = k.result(dst, alu.dst)?;
    k.emit(Op::Alu {
        op: alu.op,
        ty: alu.ty,
        mods: alu.mods,
        dst,
        srcs,
    });
    Ok(())
}

/// Reads `.rnd.ftz.sat.approx.full` and one type, and nothing else.
fn plain(inst: &Instruction<'_>, types: &[&[Type]]) -> Result<(Type, Modifiers), Reason> {
    let mut list = ModifierList::new(inst);
    let mods = list.arithmetic();
    let ty = list.ty()?;
    list.finish()?;
    check_type(ty, types)?;
    Ok((ty, mods))
}

fn same_type<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    (ty, mods): (Type, Modifiers),
    num_srcs: usize,
) -> Result<(), Reason> {
    let srcs = [ty; 3];
    let srcs = srcs.get(..num_srcs).unwrap_or(&srcs);
    emit(
        k,
        inst,
        &Alu {
            op,
            ty,
            mods,
            dst: width_of(ty),
            srcs,
        },
    )
}

/// PTX ISA, "add", "sub".
pub(super) fn add_sub<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    same_type(k, inst, op, plain(inst, &[&INTEGERS, &FLOATS, &HALVES])?, 2)
}

/// Which half of a product.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    Lo,
    Hi,
    Wide,
}

const HALF_NAMES: [(&str, Half); 3] = [("lo", Half::Lo), ("hi", Half::Hi), ("wide", Half::Wide)];

/// Twice as wide.
const fn doubled(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

/// PTX ISA, "mul".
pub(super) fn mul<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let half = list.take_from(&HALF_NAMES);
    let mods = list.arithmetic();
    let ty = list.ty()?;
    list.finish()?;
    let (op, dst) = match half {
        None => {
            check_type(ty, &[&FLOATS, &HALVES])?;
            (AluOp::Mul, width_of(ty))
        }
        Some(half) => {
            check_type(ty, &[&INTEGERS])?;
            match half {
                Half::Lo => (AluOp::Mul, width_of(ty)),
                Half::Hi => (AluOp::MulHi, width_of(ty)),
                Half::Wide => (
                    AluOp::MulWide,
                    width_of(doubled(ty).ok_or_else(|| Reason::Type(ty.name().to_owned()))?),
                ),
            }
        }
    };
    emit(
        k,
        inst,
        &Alu {
            op,
            ty,
            mods,
            dst,
            srcs: &[ty, ty],
        },
    )
}

/// PTX ISA, "mad". On floats it is `fma`.
pub(super) fn mad<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let half = list.take_from(&HALF_NAMES);
    let mods = list.arithmetic();
    let ty = list.ty()?;
    list.finish()?;
    let Some(half) = half else {
        check_type(ty, &[&FLOATS])?;
        return same_type(k, inst, AluOp::Fma, (ty, mods), 3);
    };
    check_type(ty, &[&INTEGERS])?;
    let (op, result) = match half {
        Half::Lo => (AluOp::Mad, ty),
        Half::Hi => (AluOp::MadHi, ty),
        Half::Wide => (
            AluOp::MadWide,
            doubled(ty).ok_or_else(|| Reason::Type(ty.name().to_owned()))?,
        ),
    };
    emit(
        k,
        inst,
        &Alu {
            op,
            ty,
            mods,
            dst: width_of(result),
            srcs: &[ty, ty, result],
        },
    )
}

/// PTX ISA, "fma".
pub(super) fn fma<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    same_type(k, inst, AluOp::Fma, plain(inst, &[&FLOATS, &HALVES])?, 3)
}

/// PTX ISA, "div", "rem".
pub(super) fn div_rem<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    let floats: &[Type] = if op == AluOp::Div { &FLOATS } else { &[] };
    same_type(k, inst, op, plain(inst, &[&INTEGERS, floats])?, 2)
}

/// PTX ISA, "min", "max".
pub(super) fn min_max<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    same_type(k, inst, op, plain(inst, &[&INTEGERS, &FLOATS, &HALVES])?, 2)
}

/// PTX ISA, "abs", "neg".
pub(super) fn sign<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    same_type(k, inst, op, plain(inst, &[&SIGNED, &FLOATS, &HALVES])?, 1)
}

/// PTX ISA, "sad".
pub(super) fn sad<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    same_type(k, inst, AluOp::Sad, plain(inst, &[&INTEGERS])?, 3)
}

/// PTX ISA, "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh".
pub(super) fn transcendental<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
) -> Result<(), Reason> {
    let (ty, mods) = plain(inst, &[&FLOATS])?;
    if ty == Type::F64 && !matches!(op, AluOp::Rcp | AluOp::Sqrt | AluOp::Rsqrt) {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    same_type(k, inst, op, (ty, mods), 1)
}

/// PTX ISA, "copysign".
pub(super) fn copysign<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    same_type(k, inst, AluOp::Copysign, plain(inst, &[&FLOATS])?, 2)
}

/// PTX ISA, "dp4a": the sum of the products of four bytes each, and the third source.
pub(super) fn dot_product<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let (a_ty, b_ty) = (list.ty()?, list.ty()?);
    list.finish()?;
    for ty in [a_ty, b_ty] {
        check_type(ty, &[&[Type::U32, Type::S32]])?;
    }
    let [dst, a, b, c] = operands(inst, "4")?;
    let (a, b) = (k.value(a, a_ty)?, k.value(b, b_ty)?);
    // Sums are exact modulo 2^32, whatever the signs.
    let mut sum = k.value(c, Type::U32)?;
    let dst = k.result(dst, Width::W32)?;
    let scratch = |k: &mut KernelLowering<'_, '_>, op, ty, srcs| {
        let dst = k.scratch(Width::W32);
        k.emit_unguarded(Op::Alu {
            op,
            ty,
            mods: Modifiers::default(),
            dst,
            srcs,
        });
        Operand::Reg(dst)
    };
    for byte in 0..4 {
        let position = [Operand::Imm(8 * byte), Operand::Imm(8)];
        let left = scratch(k, AluOp::Bfe, a_ty, vec![a, position[0], position[1]]);
        let right = scratch(k, AluOp::Bfe, b_ty, vec![b, position[0], position[1]]);
        sum = scratch(k, AluOp::Mad, Type::U32, vec![left, right, sum]);
    }
    k.emit(Op::Mov {
        ty: Type::B32,
        dst,
        src: sum,
    });
    Ok(())
}
