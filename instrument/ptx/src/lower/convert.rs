//! Conversions (PTX ISA, "cvt").

use hetckpt_ir::inst::{AluOp, Comparison, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::halves::{compare, element, relu};
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
    let limits = Limits {
        has_relu: list.take("relu"),
        is_finite: list.take("satfinite"),
    };
    let dst_ty = list.ty()?;
    let src_ty = list.ty()?;
    list.finish()?;
    for ty in [dst_ty, src_ty] {
        if matches!(ty, Type::Pred | Type::B8 | Type::B16 | Type::B32 | Type::B64) {
            return Err(Reason::Type(ty.name().to_owned()));
        }
    }
    if let Type::F16x2 | Type::Bf16x2 = dst_ty {
        return cvt_pair(k, inst, dst_ty, src_ty, mods, limits);
    }
    if let Type::F16x2 | Type::Bf16x2 = src_ty {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let [dst, src] = operands(inst, "2")?;
    let src = k.wide_value(src, src_ty)?;
    if limits.has_relu || limits.is_finite {
        return match (dst_ty, src_ty) {
            (Type::F16 | Type::Bf16, Type::F32) => {
                let dst = k.result(dst, Width::W16)?;
                let src = rounded(k, dst_ty, mods, src, limits);
                k.emit(Op::Mov {
                    ty: Type::B16,
                    dst,
                    src,
                });
                Ok(())
            }
            _ if limits.has_relu => Err(Reason::Modifier("relu".to_owned())),
            _ => Err(Reason::Modifier("satfinite".to_owned())),
        };
    }
    let dst = k.wide_result(dst, dst_ty)?;
    let op = match (dst_ty, src_ty) {
        // An H200 only moves it, whatever is no number too.
        (Type::F32, Type::F32) if mods == Modifiers::default() => Op::Mov {
            ty: Type::B32,
            dst,
            src,
        },
        // It heeds subnormal numbers on the way to halves.
        (Type::F16, Type::F32) => Op::Cvt {
            dst_ty,
            src_ty,
            mods: Modifiers { ftz: false, ..mods },
            dst,
            src,
        },
        (Type::Bf16, Type::F64) => Op::Mov {
            ty: Type::B16,
            dst,
            src: short_of_double(k, mods, src),
        },
        _ => Op::Cvt {
            dst_ty,
            src_ty,
            mods,
            dst,
            src,
        },
    };
    k.emit(op);
    Ok(())
}

/// `cvt.bf16.f64`: what is no number keeps its sign and the upper part of its payload, as in single precision.
fn short_of_double(k: &mut KernelLowering<'_, '_>, mods: Modifiers, src: Operand) -> Operand {
    let [number, nan, dst] = [(); 3].map(|()| k.scratch(Width::W16));
    let single = k.scratch(Width::W32);
    let is_nan = k.scratch(Width::Pred);
    for (dst, dst_ty, mods) in [
        (number, Type::Bf16, mods),
        (
            single,
            Type::F32,
            Modifiers {
                rounding: Some(Rounding::Rz),
                ..Modifiers::default()
            },
        ),
    ] {
        k.emit_unguarded(Op::Cvt {
            dst_ty,
            src_ty: Type::F64,
            mods,
            dst,
            src,
        });
    }
    let upper = scratch(
        k,
        AluOp::Shr,
        Type::B32,
        Width::W32,
        vec![Operand::Reg(single), Operand::Imm(16)],
    );
    k.emit_unguarded(Op::Cvt {
        dst_ty: Type::U16,
        src_ty: Type::U32,
        mods: Modifiers::default(),
        dst: nan,
        src: upper,
    });
    k.emit_unguarded(Op::Setp {
        cmp: Comparison::Nan,
        ty: Type::F64,
        ftz: false,
        dst: is_nan,
        dst_not: None,
        a: src,
        b: src,
        combine: None,
    });
    k.emit_unguarded(Op::Selp {
        ty: Type::B16,
        dst,
        a: Operand::Reg(nan),
        b: Operand::Reg(number),
        pred: is_nan,
    });
    Operand::Reg(dst)
}

/// How a half that a conversion makes is limited.
#[derive(Clone, Copy)]
struct Limits {
    /// `.relu`: not below 0.
    has_relu: bool,
    /// `.satfinite`: not beyond the largest number.
    is_finite: bool,
}

/// What is infinite becomes the largest number of that sign.
fn finite(k: &mut KernelLowering<'_, '_>, half: Type, src: Operand) -> Operand {
    let infinity = if half == Type::F16 { 0x7C00 } else { 0x7F80 };
    let bits = |k: &mut KernelLowering<'_, '_>, mask| {
        scratch(k, AluOp::And, Type::B16, Width::W16, vec![src, Operand::Imm(mask)])
    };
    let (magnitude, sign) = (bits(k, 0x7FFF), bits(k, 0x8000));
    let is_infinite = compare(k, (Comparison::Eq, Type::U16), magnitude, Operand::Imm(infinity), None);
    let largest = vec![sign, Operand::Imm(infinity - 1)];
    let largest = scratch(k, AluOp::Or, Type::B16, Width::W16, largest);
    let dst = k.scratch(Width::W16);
    k.emit_unguarded(Op::Selp {
        ty: Type::B16,
        dst,
        a: largest,
        b: src,
        pred: is_infinite,
    });
    Operand::Reg(dst)
}

/// A half made of single precision.
fn rounded(k: &mut KernelLowering<'_, '_>, half: Type, mods: Modifiers, src: Operand, limits: Limits) -> Operand {
    let dst = k.scratch(Width::W16);
    k.emit_unguarded(Op::Cvt {
        dst_ty: half,
        src_ty: Type::F32,
        mods,
        dst,
        src,
    });
    let dst = match limits.is_finite {
        true => finite(k, half, Operand::Reg(dst)),
        false => Operand::Reg(dst),
    };
    match limits.has_relu {
        true => relu(k, half, dst),
        false => dst,
    }
}

/// `cvt.rn.f16x2.f32 d, a, b`: the first source becomes the upper half.
fn cvt_pair<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    pair: Type,
    src_ty: Type,
    mods: Modifiers,
    limits: Limits,
) -> Result<(), Reason> {
    if src_ty != Type::F32 {
        return Err(Reason::Type(src_ty.name().to_owned()));
    }
    let [dst, high, low] = operands(inst, "3")?;
    let sources = [k.value(low, src_ty)?, k.value(high, src_ty)?];
    let mut srcs = Vec::with_capacity(2);
    for src in sources {
        srcs.push(rounded(k, element(pair), mods, src, limits));
    }
    let dst = k.result(dst, Width::W32)?;
    k.emit(Op::Pack {
        ty: Type::B32,
        dst,
        srcs,
    });
    Ok(())
}
