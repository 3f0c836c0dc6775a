//! Integer and floating-point arithmetic (PTX ISA, "Integer Arithmetic Instructions", "Floating Point Instructions",
//! "Half Precision Floating Point Instructions").

use hetckpt_ir::inst::{AluOp, Modifiers, Op, Operand, Rounding};
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

/// PTX ISA, "dp4a": the sum of the products of four bytes each, and the third source; "dp2a": of two halves of the
/// first source, and two bytes of the second, its low or its high ones.
pub(super) fn dot_product<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let (left_bits, first_byte) = match inst.opcode {
        "dp2a" => {
            let is_high = list.take_from(&[("lo", false), ("hi", true)]);
            let is_high = is_high.ok_or(Reason::Lacks("`.lo` or `.hi`"))?;
            (16, if is_high { 2 } else { 0 })
        }
        _ => (8, 0),
    };
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
    let part = |k: &mut KernelLowering<'_, '_>, ty, src, at: u64, bits: u64| {
        let srcs = vec![src, Operand::Imm(at), Operand::Imm(bits)];
        scratch(k, AluOp::Bfe, ty, Width::W32, srcs)
    };
    for number in 0..32 / left_bits {
        let left = part(k, a_ty, a, left_bits * number, left_bits);
        let right = part(k, b_ty, b, 8 * (first_byte + number), 8);
        sum = scratch(k, AluOp::Mad, Type::U32, Width::W32, vec![left, right, sum]);
    }
    k.emit(Op::Mov {
        ty: Type::B32,
        dst,
        src: sum,
    });
    Ok(())
}

/// Emits what only the rest of the lowering reads.
pub(super) fn scratch(
    k: &mut KernelLowering<'_, '_>,
    op: AluOp,
    ty: Type,
    result: Width,
    srcs: Vec<Operand>,
) -> Operand {
    let dst = k.scratch(result);
    let mods = Modifiers::default();
    k.emit_unguarded(Op::Alu {
        op,
        ty,
        mods,
        dst,
        srcs,
    });
    Operand::Reg(dst)
}

/// A conversion to a new register.
pub(super) fn convert(
    k: &mut KernelLowering<'_, '_>,
    (dst_ty, src_ty): (Type, Type),
    rounding: Option<Rounding>,
    src: Operand,
) -> Operand {
    let dst = k.scratch(width_of(dst_ty));
    let mods = Modifiers {
        rounding,
        ..Modifiers::default()
    };
    k.emit_unguarded(Op::Cvt {
        dst_ty,
        src_ty,
        mods,
        dst,
        src,
    });
    Operand::Reg(dst)
}

/// PTX ISA, "mul24", and "mad24" (`adds`): of the product of the low 24 bits of each, bits 0 to 31 or 16 to 47.
pub(super) fn product_of_24_bits<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    adds: bool,
) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let is_high = list
        .take_from(&[("lo", false), ("hi", true)])
        .ok_or(Reason::Lacks("`.lo` or `.hi`"))?;
    let sat = adds && is_high && list.take("sat");
    let ty = list.ty()?;
    list.finish()?;
    let wide = match ty {
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return Err(Reason::Type(ty.name().to_owned())),
    };
    let (dst, a, b, c) = match (inst.operands.as_slice(), adds) {
        ([dst, a, b], false) => (dst, a, b, None),
        ([dst, a, b, c], true) => (dst, a, b, Some(c)),
        _ => {
            return Err(Reason::OperandCount {
                expected: if adds { "4" } else { "3" },
                found: inst.operands.len(),
            });
        }
    };
    let (a, b) = (k.value(a, ty)?, k.value(b, ty)?);
    let c = c.map_or(Ok(Operand::Imm(0)), |c| k.value(c, ty))?;
    let dst = k.result(dst, Width::W32)?;
    let low_bits = |k: &mut KernelLowering<'_, '_>, src| {
        let srcs = vec![src, Operand::Imm(0), Operand::Imm(24)];
        scratch(k, AluOp::Bfe, ty, Width::W32, srcs)
    };
    let (a, b) = (low_bits(k, a), low_bits(k, b));
    let product = if is_high {
        let product = scratch(k, AluOp::MulWide, ty, Width::W64, vec![a, b]);
        let shifted = scratch(k, AluOp::Shr, wide, Width::W64, vec![product, Operand::Imm(16)]);
        let low = k.scratch(Width::W32);
        k.emit_unguarded(Op::Unpack {
            ty: Type::B64,
            dsts: vec![Some(low), None],
            src: shifted,
        });
        Operand::Reg(low)
    } else {
        scratch(k, AluOp::Mul, ty, Width::W32, vec![a, b])
    };
    k.emit(Op::Alu {
        op: AluOp::Add,
        ty,
        mods: Modifiers {
            sat,
            ..Modifiers::default()
        },
        dst,
        srcs: vec![product, c],
    });
    Ok(())
}
