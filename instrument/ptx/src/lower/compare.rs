//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Guard, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::halves::halves;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;

/// `lo`, `ls`, `hi`, `hs` are `lt`, `le`, `gt`, `ge` of unsigned types, which the type says already.
pub(super) const COMPARISONS: [(&str, Comparison); 18] = [
    ("eq", Comparison::Eq),
    ("ne", Comparison::Ne),
    ("lt", Comparison::Lt),
    ("le", Comparison::Le),
    ("gt", Comparison::Gt),
    ("ge", Comparison::Ge),
    ("lo", Comparison::Lt),
    ("ls", Comparison::Le),
    ("hi", Comparison::Gt),
    ("hs", Comparison::Ge),
    ("equ", Comparison::Equ),
    ("neu", Comparison::Neu),
    ("ltu", Comparison::Ltu),
    ("leu", Comparison::Leu),
    ("gtu", Comparison::Gtu),
    ("geu", Comparison::Geu),
    ("num", Comparison::Num),
    ("nan", Comparison::Nan),
];

const BOOL_OPS: [(&str, BoolOp); 3] = [("and", BoolOp::And), ("or", BoolOp::Or), ("xor", BoolOp::Xor)];

/// What the modifiers of `setp` and `set` say.
struct Compare {
    cmp: Comparison,
    bool_op: Option<BoolOp>,
    ftz: bool,
}

fn compare(list: &mut ModifierList<'_>) -> Result<Compare, Reason> {
    let cmp = list.take_from(&COMPARISONS).ok_or(Reason::Lacks("a comparison"))?;
    Ok(Compare {
        cmp,
        bool_op: list.take_from(&BOOL_OPS),
        ftz: list.take("ftz"),
    })
}

/// The comparison must exist for the type.
fn check(cmp: Comparison, ty: Type) -> Result<(), Reason> {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    let known = match ty {
        Type::B16 | Type::B32 | Type::B64 => matches!(cmp, Eq | Ne),
        Type::U16 | Type::U32 | Type::U64 | Type::S16 | Type::S32 | Type::S64 => {
            matches!(cmp, Eq | Ne | Lt | Le | Gt | Ge)
        }
        Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 | Type::F32 | Type::F64 => true,
        _ => false,
    };
    if known {
        Ok(())
    } else {
        Err(Reason::Type(ty.name().to_owned()))
    }
}

/// How `setp` combines: operation, predicate, negated.
type Combine = (BoolOp, RegId, bool);

/// Operands after the results: left, right, and the combined predicate.
fn sources<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    compare: &Compare,
    ty: Type,
) -> Result<(Operand, Operand, Option<Combine>), Reason> {
    check(compare.cmp, ty)?;
    let count = Reason::OperandCount {
        expected: "3, or 4 with a predicate",
        found: inst.operands.len(),
    };
    let (a, b, combined) = match (inst.operands.as_slice(), compare.bool_op) {
        ([_, a, b], None) => (a, b, None),
        ([_, a, b, c], Some(op)) => {
            let Guard { pred, negated } = k.predicate(c)?;
            (a, b, Some((op, pred, negated)))
        }
        _ => return Err(count),
    };
    Ok((k.value(a, ty)?, k.value(b, ty)?, combined))
}

/// The type of each half of a pair.
const fn half_of(ty: Type) -> Option<Type> {
    match ty {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        _ => None,
    }
}

/// Compares both halves of pairs; the results, the lower half's first.
fn compare_halves(
    k: &mut KernelLowering<'_, '_>,
    compare: &Compare,
    half: Type,
    (a, b, combine): (Operand, Operand, Option<Combine>),
) -> [RegId; 2] {
    let (a, b) = (halves(k, a), halves(k, b));
    [0, 1].map(|at| {
        let dst = k.scratch(Width::Pred);
        k.emit_unguarded(Op::Setp {
            cmp: compare.cmp,
            ty: half,
            ftz: compare.ftz,
            dst,
            dst_not: None,
            a: Operand::Reg(a[at]),
            b: Operand::Reg(b[at]),
            combine,
        });
        dst
    })
}

/// PTX ISA, "setp".
pub(super) fn setp<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let compare = compare(&mut list)?;
    let ty = list.ty()?;
    list.finish()?;
    let (a, b, combine) = sources(k, inst, &compare, ty)?;
    let (dst, dst_not) = match inst.operands.first() {
        Some(ast::Operand::Pair(p, "_")) => (k.result(&ast::Operand::Name(p, None), Width::Pred)?, None),
        Some(ast::Operand::Pair(p, q)) => {
            let dst = k.result(&ast::Operand::Name(p, None), Width::Pred)?;
            (dst, Some(k.result(&ast::Operand::Name(q, None), Width::Pred)?))
        }
        Some(p) => (k.result(p, Width::Pred)?, None),
        None => {
            return Err(Reason::OperandCount {
                expected: "3",
                found: 0,
            });
        }
    };
    if dst_not == Some(dst) {
        return Err(Reason::Operand {
            expected: "another register than the first result",
            found: "the second".into(),
        });
    }
    if let Some(half) = half_of(ty) {
        // Of pairs the second result is that of the upper half.
        let results = compare_halves(k, &compare, half, (a, b, combine));
        for (dst, result) in [Some(dst), dst_not].into_iter().zip(results) {
            if let Some(dst) = dst {
                let src = Operand::Reg(result);
                k.emit(Op::Mov {
                    ty: Type::Pred,
                    dst,
                    src,
                });
            }
        }
        return Ok(());
    }
    k.emit(Op::Setp {
        cmp: compare.cmp,
        ty,
        ftz: compare.ftz,
        dst,
        dst_not,
        a,
        b,
        combine,
    });
    Ok(())
}

/// PTX ISA, "set".
pub(super) fn set<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let compare = compare(&mut list)?;
    let dst_ty = list.ty()?;
    let ty = list.ty()?;
    list.finish()?;
    let yes = match dst_ty {
        Type::U32 | Type::S32 => 0xFFFF_FFFF,
        Type::U16 | Type::S16 => 0xFFFF,
        Type::F32 => u64::from(1.0f32.to_bits()),
        // One in half precision and in bfloat16.
        Type::F16 | Type::F16x2 => 0x3C00,
        Type::Bf16 | Type::Bf16x2 => 0x3F80,
        _ => return Err(Reason::Type(dst_ty.name().to_owned())),
    };
    let is_mask = matches!(dst_ty, Type::U32 | Type::S32);
    let fits = match (half_of(dst_ty), half_of(ty)) {
        (None, Some(_)) => is_mask,
        (into, from) => into == from,
    };
    // Masks of 16 bits are those of halves alone.
    let is_short = matches!(dst_ty, Type::U16 | Type::S16);
    if !fits || (is_short && !matches!(ty, Type::F16 | Type::Bf16)) {
        return Err(Reason::Type(dst_ty.name().to_owned()));
    }
    let (a, b, combine) = sources(k, inst, &compare, ty)?;
    let Some(dst) = inst.operands.first() else {
        return Err(Reason::Lacks("a result"));
    };
    let dst = k.result(dst, width_of(dst_ty))?;
    if let Some(half) = half_of(ty) {
        let results = compare_halves(k, &compare, half, (a, b, combine));
        let srcs = results.map(|pred| {
            let dst = k.scratch(Width::W16);
            let (ty, a, b) = (Type::B16, Operand::Imm(yes & 0xFFFF), Operand::Imm(0));
            k.emit_unguarded(Op::Selp { ty, dst, a, b, pred });
            Operand::Reg(dst)
        });
        let (ty, srcs) = (Type::B32, srcs.to_vec());
        k.emit(Op::Pack { ty, dst, srcs });
        return Ok(());
    }
    let Compare { cmp, ftz, .. } = compare;
    let is_half = matches!(dst_ty, Type::F16 | Type::Bf16) || is_short;
    if combine.is_none() && !is_half {
        k.emit(Op::Set {
            cmp,
            dst_ty,
            ty,
            ftz,
            dst,
            a,
            b,
        });
        return Ok(());
    }
    let pred = k.scratch(Width::Pred);
    k.emit_unguarded(Op::Setp {
        cmp,
        ty,
        ftz,
        dst: pred,
        dst_not: None,
        a,
        b,
        combine,
    });
    k.emit(Op::Selp {
        ty: if is_half { Type::B16 } else { Type::B32 },
        dst,
        a: Operand::Imm(yes),
        b: Operand::Imm(0),
        pred,
    });
    Ok(())
}

/// PTX ISA, "selp".
pub(super) fn selp<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    list.finish()?;
    if matches!(ty, Type::Pred | Type::B8 | Type::U8 | Type::S8) {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let [dst, a, b, p] = operands(inst, "4")?;
    let (a, b) = (k.value(a, ty)?, k.value(b, ty)?);
    let Guard { pred, negated } = k.predicate(p)?;
    let (a, b) = if negated { (b, a) } else { (a, b) };
    let dst = k.result(dst, width_of(ty))?;
    k.emit(Op::Selp { ty, dst, a, b, pred });
    Ok(())
}

/// PTX ISA, "slct": `c >= 0 ? a : b`; a NaN selects `b`.
pub(super) fn slct<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ftz = list.take("ftz");
    let ty = list.ty()?;
    let selector = list.ty()?;
    list.finish()?;
    if matches!(ty, Type::Pred | Type::B8 | Type::U8 | Type::S8) || !matches!(selector, Type::S32 | Type::F32) {
        return Err(Reason::Type(selector.name().to_owned()));
    }
    let [dst, a, b, c] = operands(inst, "4")?;
    let (a, b, c) = (k.value(a, ty)?, k.value(b, ty)?, k.value(c, selector)?);
    let dst = k.result(dst, width_of(ty))?;
    let pred = k.scratch(Width::Pred);
    let zero = Operand::Imm(0);
    k.emit_unguarded(Op::Setp {
        cmp: Comparison::Ge,
        ty: selector,
        ftz,
        dst: pred,
        dst_not: None,
        a: c,
        b: zero,
        combine: None,
    });
    k.emit(Op::Selp { ty, dst, a, b, pred });
    Ok(())
}

/// What `testp` asks of a number's magnitude, its bits without the sign.
#[derive(Clone, Copy)]
enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

const PROPERTIES: [(&str, Property); 6] = [
    ("finite", Property::Finite),
    ("infinite", Property::Infinite),
    ("number", Property::Number),
    ("notanumber", Property::NotANumber),
    ("normal", Property::Normal),
    ("subnormal", Property::Subnormal),
];

/// PTX ISA, "testp". Zero is a normal number there.
pub(super) fn testp<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let property = list.take_from(&PROPERTIES).ok_or(Reason::Lacks("a property"))?;
    let ty = list.ty()?;
    list.finish()?;
    let (bits, unsigned, infinity, least_normal) = match ty {
        Type::F32 => (Type::B32, Type::U32, 0x7F80_0000, 1 << 23),
        Type::F64 => (Type::B64, Type::U64, 0x7FF0_0000_0000_0000, 1 << 52),
        _ => return Err(Reason::Type(ty.name().to_owned())),
    };
    let [dst, a] = operands(inst, "2")?;
    let a = k.value(a, ty)?;
    let dst = k.result(dst, Width::Pred)?;
    let width = width_of(ty);
    let not_sign = infinity | (least_normal - 1);
    let magnitude = scratch(k, AluOp::And, bits, width, vec![a, Operand::Imm(not_sign)]);
    // Zero becomes the largest number.
    let less_one = scratch(k, AluOp::Sub, unsigned, width, vec![magnitude, Operand::Imm(1)]);
    let infinity = Operand::Imm(infinity);
    let largest_subnormal = Operand::Imm(least_normal - 1);
    let (cmp, a, b) = match property {
        Property::Finite | Property::Normal => (Comparison::Lt, magnitude, infinity),
        Property::Infinite => (Comparison::Eq, magnitude, infinity),
        Property::Number => (Comparison::Le, magnitude, infinity),
        Property::NotANumber => (Comparison::Gt, magnitude, infinity),
        Property::Subnormal => (Comparison::Lt, less_one, largest_subnormal),
    };
    let setp = |dst, cmp, a, b, combine| Op::Setp {
        cmp,
        ty: unsigned,
        ftz: false,
        dst,
        dst_not: None,
        a,
        b,
        combine,
    };
    if !matches!(property, Property::Normal) {
        k.emit(setp(dst, cmp, a, b, None));
        return Ok(());
    }
    let is_finite = k.scratch(Width::Pred);
    k.emit_unguarded(setp(is_finite, cmp, a, b, None));
    let combine = Some((BoolOp::And, is_finite, false));
    k.emit(setp(dst, Comparison::Ge, less_one, largest_subnormal, combine));
    Ok(())
}
