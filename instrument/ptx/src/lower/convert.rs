//! Conversions (PTX ISA, "cvt").

use hetckpt_ir::inst::{AluOp, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::halves::{element, relu};
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// PTX ISA, "cvt.pack": two numbers, limited to what the type holds, side by side; above numbers of 8 bits or less
/// stands what a third source has in its lower bits.
pub(super) fn cvt_pack<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    const PARTS: [(&str, (u64, bool)); 8] = [
        ("u16", (16, false)),
        ("s16", (16, true)),
        ("u8", (8, false)),
        ("s8", (8, true)),
        ("u4", (4, false)),
        ("s4", (4, true)),
        ("u2", (2, false)),
        ("s2", (2, true)),
    ];
    let mut list = ModifierList::new(inst);
    list.take("pack");
    if !list.take("sat") {
        return Err(Reason::Lacks("`.sat`"));
    }
    let (bits, is_signed) = list.take_from(&PARTS).ok_or(Reason::Lacks("a type"))?;
    let has_third = list.take("b32");
    if !list.take("s32") {
        return Err(Reason::Lacks("`.s32`"));
    }
    list.finish()?;
    let (dst, high, low, above) = match inst.operands.as_slice() {
        [dst, high, low] if !has_third && bits == 16 => (dst, high, low, None),
        [dst, high, low, above] if has_third && bits < 16 => (dst, high, low, Some(above)),
        _ => {
            return Err(Reason::OperandCount {
                expected: "3, or 4 for numbers of 8 bits or less",
                found: inst.operands.len(),
            });
        }
    };
    let sources = [k.value(low, Type::S32)?, k.value(high, Type::S32)?];
    let above = above.map_or(Ok(Operand::Imm(0)), |above| k.value(above, Type::B32))?;
    let dst = k.result(dst, Width::W32)?;
    let largest = (1_i64 << (bits - u64::from(is_signed))) - 1;
    let smallest = if is_signed { -largest - 1 } else { 0 };
    let word = |number: i64| Operand::Imm(u64::from(number as u32));
    let mut whole = scratch(
        k,
        AluOp::Shl,
        Type::B32,
        Width::W32,
        vec![above, Operand::Imm(2 * bits)],
    );
    for (src, at) in sources.into_iter().zip([0, bits]) {
        let limited = scratch(k, AluOp::Min, Type::S32, Width::W32, vec![src, word(largest)]);
        let limited = scratch(k, AluOp::Max, Type::S32, Width::W32, vec![limited, word(smallest)]);
        let place = vec![limited, whole, Operand::Imm(at), Operand::Imm(bits)];
        whole = scratch(k, AluOp::Bfi, Type::B32, Width::W32, place);
    }
    k.emit(Op::Mov {
        ty: Type::B32,
        dst,
        src: whole,
    });
    Ok(())
}

/// PTX ISA, "cvt".
pub(super) fn cvt<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let mods = list.arithmetic();
    let has_relu = list.take("relu");
    let dst_ty = list.ty()?;
    let src_ty = list.ty()?;
    list.finish()?;
    for ty in [dst_ty, src_ty] {
        if matches!(ty, Type::Pred | Type::B8 | Type::B16 | Type::B32 | Type::B64) {
            return Err(Reason::Type(ty.name().to_owned()));
        }
    }
    if let Type::F16x2 | Type::Bf16x2 = dst_ty {
        return cvt_pair(k, inst, dst_ty, src_ty, mods, has_relu);
    }
    if let Type::F16x2 | Type::Bf16x2 = src_ty {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let [dst, src] = operands(inst, "2")?;
    let src = k.wide_value(src, src_ty)?;
    if has_relu {
        return match (dst_ty, src_ty) {
            (Type::F16 | Type::Bf16, Type::F32) => {
                let dst = k.result(dst, Width::W16)?;
                let src = rounded(k, dst_ty, mods, src, true);
                k.emit(Op::Mov {
                    ty: Type::B16,
                    dst,
                    src,
                });
                Ok(())
            }
            _ => Err(Reason::Modifier("relu".to_owned())),
        };
    }
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

/// A half made of single precision.
fn rounded(k: &mut KernelLowering<'_, '_>, half: Type, mods: Modifiers, src: Operand, has_relu: bool) -> Operand {
    let dst = k.scratch(Width::W16);
    k.emit_unguarded(Op::Cvt {
        dst_ty: half,
        src_ty: Type::F32,
        mods,
        dst,
        src,
    });
    match has_relu {
        true => relu(k, half, Operand::Reg(dst)),
        false => Operand::Reg(dst),
    }
}

/// `cvt.rn.f16x2.f32 d, a, b`: the first source becomes the upper half.
fn cvt_pair<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    pair: Type,
    src_ty: Type,
    mods: Modifiers,
    has_relu: bool,
) -> Result<(), Reason> {
    if src_ty != Type::F32 {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let [dst, high, low] = operands(inst, "3")?;
    let sources = [k.value(low, src_ty)?, k.value(high, src_ty)?];
    let mut srcs = Vec::with_capacity(2);
    for src in sources {
        srcs.push(rounded(k, element(pair), mods, src, has_relu));
    }
    let dst = k.result(dst, Width::W32)?;
    k.emit(Op::Pack {
        ty: Type::B32,
        dst,
        srcs,
    });
    Ok(())
}
