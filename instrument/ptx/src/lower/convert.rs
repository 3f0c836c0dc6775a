//! Conversions (PTX ISA, "cvt").

use hetckpt_ir::inst::{Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// PTX ISA, "cvt".
pub(super) fn cvt<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let mods = list.arithmetic();
    let dst_ty = list.ty()?;
    let src_ty = list.ty()?;
    list.finish()?;
    for ty in [dst_ty, src_ty] {
        if matches!(ty, Type::Pred | Type::B8 | Type::B16 | Type::B32 | Type::B64) {
            return Err(Reason::Type(ty.name().to_owned()));
        }
    }
    if let Type::F16x2 | Type::Bf16x2 = dst_ty {
        return cvt_pair(k, inst, dst_ty, src_ty, mods);
    }
    if let Type::F16x2 | Type::Bf16x2 = src_ty {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let [dst, src] = operands(inst, "2")?;
    let src = k.wide_value(src, src_ty)?;
    let dst = k.wide_result(dst, dst_ty)?;
    k.emit(Op::Cvt {
        dst_ty,
        src_ty,
        mods,
        dst,
        src,
    });
    Ok(())
}

/// `cvt.rn.f16x2.f32 d, a, b`: the first source becomes the upper half.
fn cvt_pair<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    pair: Type,
    src_ty: Type,
    mods: Modifiers,
) -> Result<(), Reason> {
    if src_ty != Type::F32 {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let half = if pair == Type::F16x2 { Type::F16 } else { Type::Bf16 };
    let [dst, high, low] = operands(inst, "3")?;
    let sources = [k.value(low, src_ty)?, k.value(high, src_ty)?];
    let mut srcs = Vec::with_capacity(2);
    for src in sources {
        let part = k.scratch(Width::W16);
        k.emit_unguarded(Op::Cvt {
            dst_ty: half,
            src_ty,
            mods,
            dst: part,
            src,
        });
        srcs.push(Operand::Reg(part));
    }
    let dst = k.result(dst, Width::W32)?;
    k.emit(Op::Pack {
        ty: Type::B32,
        dst,
        srcs,
    });
    Ok(())
}
