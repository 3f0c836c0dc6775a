//! Arithmetic, moves, comparisons and conversions: operand counts, types, widths.

use super::error::Rule;
use super::operand::{Operands, count, width_of};
use crate::inst::{AluOp, Op, Operand, SpecialReg};
use crate::types::{Type, Width};

/// What an operation is defined for, and what its operands are beside the instruction's type.
struct Shape {
    num_srcs: usize,
    accepts: fn(Type) -> bool,
}

fn is_integer(ty: Type) -> bool {
    matches!(
        ty,
        Type::U16 | Type::U32 | Type::U64 | Type::S16 | Type::S32 | Type::S64
    ) || is_bits(ty)
}

fn is_bits(ty: Type) -> bool {
    matches!(ty, Type::B16 | Type::B32 | Type::B64)
}

fn is_number(ty: Type) -> bool {
    is_integer(ty) || ty.is_float()
}

fn is_logical(ty: Type) -> bool {
    is_integer(ty) || ty == Type::Pred
}

fn is_narrow_integer(ty: Type) -> bool {
    is_integer(ty) && ty.size_bytes() < 8
}

fn is_word(ty: Type) -> bool {
    is_integer(ty) && ty.size_bytes() == 4
}

fn is_word_or_double(ty: Type) -> bool {
    is_integer(ty) && ty.size_bytes() >= 4
}

fn shape(op: AluOp) -> Shape {
    use AluOp as A;
    let (num_srcs, accepts): (usize, fn(Type) -> bool) = match op {
        A::Add | A::Sub | A::Mul | A::Div | A::Min | A::Max => (2, is_number),
        A::Abs | A::Neg => (1, is_number),
        A::MulHi | A::Rem => (2, is_integer),
        A::MulWide => (2, is_narrow_integer),
        A::Mad | A::MadHi | A::Sad => (3, is_integer),
        A::MadWide => (3, is_narrow_integer),
        A::Fma => (3, Type::is_float),
        A::And | A::Or | A::Xor => (2, is_logical),
        A::Not => (1, is_logical),
        A::Cnot => (1, is_integer),
        A::Shl | A::Shr => (2, is_integer),
        A::ShfLWrap | A::ShfLClamp | A::ShfRWrap | A::ShfRClamp | A::Prmt => (3, is_word),
        A::Popc | A::Clz | A::Brev | A::Bfind | A::BfindShiftAmt => (1, is_word_or_double),
        A::Bfe => (3, is_word_or_double),
        A::Bfi => (4, is_word_or_double),
        A::BmskClamp | A::BmskWrap => (2, is_word),
        A::Lop3 => (4, is_word),
        A::Rcp | A::Sqrt | A::Rsqrt | A::Sin | A::Cos | A::Lg2 | A::Ex2 | A::Tanh => (1, Type::is_float),
        A::Copysign => (2, Type::is_float),
    };
    Shape { num_srcs, accepts }
}

/// The type twice as wide.
fn wide(ty: Type) -> Type {
    match ty.size_bytes() {
        2 => Type::B32,
        _ => Type::B64,
    }
}

pub(super) fn alu(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    let Op::Alu { op, ty, dst, srcs, .. } = op else {
        return Ok(());
    };
    let (op, ty) = (*op, *ty);
    let shape = shape(op);
    if !(shape.accepts)(ty) {
        return Err(Rule::AluType { op, ty });
    }
    count(srcs.len(), shape.num_srcs)?;
    for (i, src) in srcs.iter().enumerate() {
        operands.source(*src, source_type(op, ty, i))?;
    }
    if let (AluOp::Lop3, Some(Operand::Reg(reg))) = (op, srcs.last()) {
        return Err(Rule::NotImmediate(*reg));
    }
    let result = match op {
        AluOp::MulWide | AluOp::MadWide => wide(ty),
        AluOp::Popc | AluOp::Clz | AluOp::Bfind | AluOp::BfindShiftAmt => Type::B32,
        _ => ty,
    };
    operands.exact(*dst, result)
}

fn source_type(op: AluOp, ty: Type, index: usize) -> Type {
    match (op, index) {
        (AluOp::Shl | AluOp::Shr, 1) | (AluOp::Bfe, 1 | 2) | (AluOp::Bfi, 2 | 3) => Type::B32,
        (AluOp::MadWide, 2) => wide(ty),
        _ => ty,
    }
}

pub(super) fn moves(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    match op {
        Op::Mov { ty, dst, src } => {
            operands.exact(*dst, *ty)?;
            operands.source(*src, *ty)
        }
        Op::Pack { ty, dst, srcs } => {
            let part = part_type(*ty, srcs.len())?;
            operands.exact(*dst, *ty)?;
            srcs.iter().try_for_each(|s| operands.source(*s, part))
        }
        Op::Unpack { ty, dsts, src } => {
            let part = part_type(*ty, dsts.len())?;
            operands.source(*src, *ty)?;
            dsts.iter().flatten().try_for_each(|d| operands.exact(*d, part))
        }
        Op::ReadSpecial { dst, special } => {
            let width = match special {
                SpecialReg::Clock64 | SpecialReg::GlobalTimer => Width::W64,
                _ => Width::W32,
            };
            operands.width(*dst, width).map_err(|_| Rule::SpecialWidth(*special))
        }
        _ => Ok(()),
    }
}

/// The untyped part of a packed value.
fn part_type(ty: Type, parts: usize) -> Result<Type, Rule> {
    if ty == Type::Pred {
        return Err(Rule::Type(ty));
    }
    match (ty.size_bytes(), parts) {
        (2, 2) | (4, 4) | (8, 8) => Ok(Type::B8),
        (4, 2) | (8, 4) => Ok(Type::B16),
        (8, 2) => Ok(Type::B32),
        _ => Err(Rule::VectorLength(parts)),
    }
}

pub(super) fn compare(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    match op {
        Op::Setp {
            ty,
            dst,
            dst_not,
            a,
            b,
            combine,
            ..
        } => {
            comparable(*ty)?;
            operands.source(*a, *ty)?;
            operands.source(*b, *ty)?;
            operands.predicate(*dst)?;
            dst_not.map_or(Ok(()), |q| operands.predicate(q))?;
            combine.map_or(Ok(()), |(_, pred, _)| operands.predicate(pred))
        }
        Op::Set {
            dst_ty, ty, dst, a, b, ..
        } => {
            comparable(*ty)?;
            if !is_word(*dst_ty) && *dst_ty != Type::F32 {
                return Err(Rule::Type(*dst_ty));
            }
            operands.source(*a, *ty)?;
            operands.source(*b, *ty)?;
            operands.exact(*dst, *dst_ty)
        }
        Op::Selp { ty, dst, a, b, pred } => {
            if *ty == Type::Pred {
                return Err(Rule::Type(*ty));
            }
            operands.source(*a, *ty)?;
            operands.source(*b, *ty)?;
            operands.predicate(*pred)?;
            operands.exact(*dst, *ty)
        }
        _ => Ok(()),
    }
}

/// Two predicates for the two halves of a packed type do not exist in hetIR.
fn comparable(ty: Type) -> Result<(), Rule> {
    let is_packed = matches!(ty, Type::F16x2 | Type::Bf16x2);
    if is_number(ty) && !is_packed {
        Ok(())
    } else {
        Err(Rule::Type(ty))
    }
}

pub(super) fn convert(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    let Op::Cvt {
        dst_ty,
        src_ty,
        dst,
        src,
        ..
    } = op
    else {
        return Ok(());
    };
    for ty in [*dst_ty, *src_ty] {
        if ty == Type::Pred {
            return Err(Rule::Type(ty));
        }
    }
    // A float lies in a register of just its size; integers may lie in wider ones.
    match src {
        Operand::Reg(reg) if src_ty.is_float() => operands.width(*reg, width_of(*src_ty))?,
        _ => operands.wide_source(*src, *src_ty)?,
    }
    if dst_ty.is_float() {
        operands.width(*dst, width_of(*dst_ty))
    } else {
        operands.at_least(*dst, *dst_ty)
    }
}
