//! What is done to each half of a pair by itself, and results that are limited: `.NaN`, `.relu` and `.xorsign.abs`.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::{check_type, convert, scratch};
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;

/// Pairs of 16-bit integers, and whether they are signed.
const INTEGERS: [(&str, bool); 2] = [("s16x2", true), ("u16x2", false)];
const HALVES: [Type; 4] = [Type::F16, Type::Bf16, Type::F16x2, Type::Bf16x2];

/// True for an instruction that is lowered here, if its opcode is.
pub(super) fn has(inst: &Instruction<'_>) -> bool {
    let is_function = matches!(inst.opcode, "ex2" | "tanh");
    inst.modifiers.iter().any(|modifier| match *modifier {
        "NaN" | "relu" | "s16x2" | "u16x2" | "xorsign" => true,
        "f16" | "bf16" | "f16x2" | "bf16x2" => is_function,
        _ => false,
    })
}

/// `add`, `fma`, `min`, `max`, `ex2`, `tanh`.
pub(super) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let (keeps_nan, has_relu) = (list.take("NaN"), list.take("relu"));
    let of_magnitudes = list.take("xorsign");
    if of_magnitudes && !list.take("abs") {
        return Err(Reason::Lacks("`.abs`"));
    }
    let is_signed = list.take_from(&INTEGERS);
    let mods = list.arithmetic();
    let op = match inst.opcode {
        "add" => AluOp::Add,
        "fma" => AluOp::Fma,
        "min" => AluOp::Min,
        "max" => AluOp::Max,
        "ex2" => AluOp::Ex2,
        "tanh" => AluOp::Tanh,
        _ => return Err(Reason::Instruction),
    };
    let wrong = |modifier: &str| Err(Reason::Modifier(modifier.to_owned()));
    if let Some(is_signed) = is_signed {
        list.finish()?;
        return match op {
            _ if of_magnitudes => wrong("xorsign"),
            AluOp::Add | AluOp::Min | AluOp::Max if keeps_nan => wrong("NaN"),
            AluOp::Add if has_relu => wrong("relu"),
            AluOp::Min | AluOp::Max if has_relu && !is_signed => wrong("relu"),
            AluOp::Add | AluOp::Min | AluOp::Max => integers(k, inst, op, is_signed, has_relu),
            _ => Err(Reason::Instruction),
        };
    }
    let ty = list.ty()?;
    list.finish()?;
    if of_magnitudes {
        return match (op, has_relu) {
            (AluOp::Min | AluOp::Max, false) => min_max_of_magnitudes(k, inst, op, (ty, mods), keeps_nan),
            _ => wrong("xorsign"),
        };
    }
    match (op, keeps_nan, has_relu) {
        (AluOp::Min | AluOp::Max, true, false) => min_max_keeping_nan(k, inst, op, (ty, mods)),
        (AluOp::Min | AluOp::Max, false, true) if ty == Type::S32 => min_max_not_negative(k, inst, op),
        (AluOp::Fma, false, true) => fma_relu(k, inst, (ty, mods)),
        (AluOp::Ex2 | AluOp::Tanh, false, false) => transcendental(k, inst, op, (ty, mods)),
        (_, true, _) => wrong("NaN"),
        _ => wrong("relu"),
    }
}

/// PTX ISA, "min", "max" with `.relu`.
fn min_max_not_negative<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, op: AluOp) -> Result<(), Reason> {
    let [dst, a, b] = operands(inst, "3")?;
    let srcs = vec![k.value(a, Type::S32)?, k.value(b, Type::S32)?];
    let dst = k.result(dst, Width::W32)?;
    let number = scratch(k, op, Type::S32, Width::W32, srcs);
    k.emit(Op::Alu {
        op: AluOp::Max,
        ty: Type::S32,
        mods: Modifiers::default(),
        dst,
        srcs: vec![number, Operand::Imm(0)],
    });
    Ok(())
}

/// Element of a pair, or the type itself.
pub(super) const fn element(ty: Type) -> Type {
    match ty {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        ty => ty,
    }
}

/// The halves of 32 bits, the lower one first.
pub(super) fn halves(k: &mut KernelLowering<'_, '_>, src: Operand) -> [RegId; 2] {
    let parts = [k.scratch(Width::W16), k.scratch(Width::W16)];
    k.emit_unguarded(Op::Unpack {
        ty: Type::B32,
        dsts: parts.map(Some).to_vec(),
        src,
    });
    parts
}

/// Halves of a pair, the lower one first, or the value itself.
fn parts(k: &mut KernelLowering<'_, '_>, ty: Type, value: Operand) -> Vec<Operand> {
    if element(ty) == ty {
        return vec![value];
    }
    halves(k, value).map(Operand::Reg).to_vec()
}

/// Puts a pair's halves, or a value, into the result of an instruction.
fn put<'a>(
    k: &mut KernelLowering<'_, 'a>,
    dst: &ast::Operand<'a>,
    ty: Type,
    mut parts: Vec<Operand>,
) -> Result<(), Reason> {
    let dst = k.result(dst, width_of(ty))?;
    let op = match (parts.pop(), parts.pop()) {
        (Some(high), Some(low)) => Op::Pack {
            ty: Type::B32,
            dst,
            srcs: vec![low, high],
        },
        (Some(src), None) => {
            let ty = match width_of(ty) {
                Width::W16 => Type::B16,
                Width::W64 => Type::B64,
                _ => Type::B32,
            };
            Op::Mov { ty, dst, src }
        }
        (None, _) => return Err(Reason::Lacks("a source")),
    };
    k.emit(op);
    Ok(())
}

/// NaN as the GPU makes it.
const fn canonical_nan(ty: Type) -> u64 {
    match ty {
        Type::F32 => 0x7FFF_FFFF,
        _ => 0x7FFF,
    }
}

/// A predicate: one of two numbers is NaN.
fn is_nan(k: &mut KernelLowering<'_, '_>, ty: Type, a: Operand, b: Operand) -> RegId {
    let infinity = match ty {
        Type::F16 => 0x7C00,
        Type::Bf16 => 0x7F80,
        _ => return compare(k, (Comparison::Nan, ty), a, b, None),
    };
    // By their bits: not all GPUs compare such numbers.
    let [a, b] = [a, b].map(|value| {
        let magnitude = vec![value, Operand::Imm(0x7FFF)];
        scratch(k, AluOp::And, Type::B16, Width::W16, magnitude)
    });
    let above = (Comparison::Gt, Type::U16);
    let one = compare(k, above, a, Operand::Imm(infinity), None);
    compare(k, above, b, Operand::Imm(infinity), Some((BoolOp::Or, one, false)))
}

pub(super) fn compare(
    k: &mut KernelLowering<'_, '_>,
    (cmp, ty): (Comparison, Type),
    a: Operand,
    b: Operand,
    combine: Option<(BoolOp, RegId, bool)>,
) -> RegId {
    let dst = k.scratch(Width::Pred);
    k.emit_unguarded(Op::Setp {
        cmp,
        ty,
        ftz: false,
        dst,
        dst_not: None,
        a,
        b,
        combine,
    });
    dst
}

/// `min` or `max` of floats that is NaN if one of them is.
fn keeping_nan(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, ftz: bool, a: Operand, b: Operand) -> Operand {
    let (number, result) = (k.scratch(width_of(ty)), k.scratch(width_of(ty)));
    let mods = Modifiers {
        ftz,
        ..Modifiers::default()
    };
    k.emit_unguarded(Op::Alu {
        op,
        ty,
        mods,
        dst: number,
        srcs: vec![a, b],
    });
    let pred = is_nan(k, ty, a, b);
    k.emit_unguarded(Op::Selp {
        ty: if ty == Type::F32 { Type::B32 } else { Type::B16 },
        dst: result,
        a: Operand::Imm(canonical_nan(ty)),
        b: Operand::Reg(number),
        pred,
    });
    Operand::Reg(result)
}

/// `.relu` of a half or of single precision: zero for what is negative, NaN for NaN.
pub(super) fn relu(k: &mut KernelLowering<'_, '_>, ty: Type, value: Operand) -> Operand {
    keeping_nan(k, AluOp::Max, ty, false, value, Operand::Imm(0))
}

/// PTX ISA, "min", "max" with `.NaN`.
fn min_max_keeping_nan<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    (ty, mods): (Type, Modifiers),
) -> Result<(), Reason> {
    check_type(ty, &[&[Type::F32], &HALVES])?;
    let [dst, a, b] = operands(inst, "3")?;
    let (a, b) = (k.value(a, ty)?, k.value(b, ty)?);
    let (a, b) = (parts(k, ty, a), parts(k, ty, b));
    let limited = |(a, b)| keeping_nan(k, op, element(ty), mods.ftz, a, b);
    let results = a.into_iter().zip(b).map(limited).collect();
    put(k, dst, ty, results)
}

/// PTX ISA, "min", "max" with `.xorsign.abs`: of the magnitudes, with the product's sign.
fn min_max_of_magnitudes<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    (ty, mods): (Type, Modifiers),
    keeps_nan: bool,
) -> Result<(), Reason> {
    check_type(ty, &[&[Type::F32], &HALVES])?;
    let [dst, a, b] = operands(inst, "3")?;
    let (a, b) = (k.value(a, ty)?, k.value(b, ty)?);
    let (a, b) = (parts(k, ty, a), parts(k, ty, b));
    let (bits, sign) = match ty {
        Type::F32 => (Type::B32, 1 << 31),
        _ => (Type::B16, 1 << 15),
    };
    let element = element(ty);
    let width = width_of(element);
    let mut results = vec![];
    for (a, b) in a.into_iter().zip(b) {
        let logic = |k: &mut KernelLowering<'_, 'a>, op, srcs: [Operand; 2]| scratch(k, op, bits, width, srcs.to_vec());
        let magnitude = Operand::Imm(sign - 1);
        let [left, right] = [a, b].map(|number| logic(k, AluOp::And, [number, magnitude]));
        let number = if keeps_nan {
            keeping_nan(k, op, element, mods.ftz, left, right)
        } else {
            let dst = k.scratch(width);
            k.emit_unguarded(Op::Alu {
                op,
                ty: element,
                mods,
                dst,
                srcs: vec![left, right],
            });
            Operand::Reg(dst)
        };
        let signs = logic(k, AluOp::Xor, [a, b]);
        let signs = logic(k, AluOp::And, [signs, Operand::Imm(sign)]);
        let signed = logic(k, AluOp::Or, [number, signs]);
        // NaN has no sign.
        let (pred, dst) = (is_nan(k, element, number, number), k.scratch(width));
        k.emit_unguarded(Op::Selp {
            ty: bits,
            dst,
            a: number,
            b: signed,
            pred,
        });
        results.push(Operand::Reg(dst));
    }
    put(k, dst, ty, results)
}

/// PTX ISA, "fma" with `.relu`.
fn fma_relu<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    (ty, mods): (Type, Modifiers),
) -> Result<(), Reason> {
    check_type(ty, &[&HALVES])?;
    let [dst, a, b, c] = operands(inst, "4")?;
    let srcs = vec![k.value(a, ty)?, k.value(b, ty)?, k.value(c, ty)?];
    let sum = k.scratch(width_of(ty));
    k.emit_unguarded(Op::Alu {
        op: AluOp::Fma,
        ty,
        mods,
        dst: sum,
        srcs,
    });
    let sums = parts(k, ty, Operand::Reg(sum));
    let results = sums.into_iter().map(|sum| relu(k, element(ty), sum)).collect();
    put(k, dst, ty, results)
}

/// PTX ISA, "Half Precision Floating Point Instructions": "tanh", "ex2". In single precision, which is rounded.
fn transcendental<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    (ty, mods): (Type, Modifiers),
) -> Result<(), Reason> {
    check_type(ty, &[&HALVES])?;
    let [dst, src] = operands(inst, "2")?;
    let src = k.value(src, ty)?;
    let half = element(ty);
    let mut results = Vec::new();
    for part in parts(k, ty, src) {
        let wide = convert(k, (Type::F32, half), None, part);
        let value = k.scratch(Width::W32);
        k.emit_unguarded(Op::Alu {
            op,
            ty: Type::F32,
            mods,
            dst: value,
            srcs: vec![wide],
        });
        results.push(convert(k, (half, Type::F32), Some(Rounding::Rn), Operand::Reg(value)));
    }
    put(k, dst, ty, results)
}

/// PTX ISA, "add", "min", "max" of pairs of 16-bit integers; `.relu` (`limits`) of signed ones.
fn integers<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    op: AluOp,
    is_signed: bool,
    limits: bool,
) -> Result<(), Reason> {
    let ty = if is_signed { Type::S32 } else { Type::U32 };
    let [dst, a, b] = operands(inst, "3")?;
    let (a, b) = (k.value(a, Type::B32)?, k.value(b, Type::B32)?);
    let dst = k.result(dst, Width::W32)?;
    let mut pair = Operand::Imm(0);
    for at in [0, 16] {
        let srcs = [a, b].map(|src| {
            let part = vec![src, Operand::Imm(at), Operand::Imm(16)];
            scratch(k, AluOp::Bfe, ty, Width::W32, part)
        });
        let mut result = scratch(k, op, ty, Width::W32, srcs.to_vec());
        if limits {
            result = scratch(k, AluOp::Max, ty, Width::W32, vec![result, Operand::Imm(0)]);
        }
        let place = vec![result, pair, Operand::Imm(at), Operand::Imm(16)];
        pair = scratch(k, AluOp::Bfi, Type::B32, Width::W32, place);
    }
    k.emit(Op::Mov {
        ty: Type::B32,
        dst,
        src: pair,
    });
    Ok(())
}
