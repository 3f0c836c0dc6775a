//! Video instructions (PTX ISA, "Scalar Video Instructions", "SIMD Video Instructions"), by the pseudocode there: parts
//! of words are widened, calculated with, perhaps saturated, and then added to another word or put into it.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Comparison, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::{check_type, convert, scratch};
use crate::lower::compare::COMPARISONS;
use crate::lower::halves;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::scope::width_of;

/// What is done to two parts.
#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Alu(AluOp),
    AbsoluteDifference,
    Average,
    Set(Comparison),
    Shift(AluOp, Amount),
}

/// What becomes of the amount of a shift.
#[derive(Clone, Copy, PartialEq)]
enum Amount {
    Clamp,
    Wrap,
}

/// What is done to the result and a third word.
const SECOND: [(&str, AluOp); 3] = [("add", AluOp::Add), ("min", AluOp::Min), ("max", AluOp::Max)];

/// A part of a word, from bit `at` on.
#[derive(Clone, Copy)]
struct Part {
    at: u64,
    bits: u64,
}

const WHOLE: Part = Part { at: 0, bits: 32 };

/// True for an opcode that is lowered here.
pub(super) fn has(opcode: &str) -> bool {
    let base = opcode.strip_suffix(['2', '4']).unwrap_or(opcode);
    match base {
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vset" => true,
        "vavrg" => base != opcode,
        "vshl" | "vshr" | "vmad" => base == opcode,
        _ => false,
    }
}

/// Those for which [`has`] holds.
pub(super) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    if inst.opcode == "vmad" {
        return multiply_add(k, inst);
    }
    let lanes = match inst.opcode.as_bytes().last() {
        Some(b'2') => Some(2),
        Some(b'4') => Some(4),
        _ => None,
    };
    let mut list = ModifierList::new(inst);
    let is_set = inst.opcode.starts_with("vset");
    // The result of a comparison has no type of its own.
    let dst_ty = if is_set { Type::U32 } else { word_type(&mut list)? };
    let types = [word_type(&mut list)?, word_type(&mut list)?];
    let operation = match inst.opcode.trim_end_matches(['2', '4']) {
        "vadd" => Operation::Alu(AluOp::Add),
        "vsub" => Operation::Alu(AluOp::Sub),
        "vmin" => Operation::Alu(AluOp::Min),
        "vmax" => Operation::Alu(AluOp::Max),
        "vabsdiff" => Operation::AbsoluteDifference,
        "vavrg" => Operation::Average,
        "vset" => Operation::Set(list.take_from(&COMPARISONS).ok_or(Reason::Lacks("a comparison"))?),
        shift => {
            let op = if shift == "vshl" { AluOp::Shl } else { AluOp::Shr };
            let amounts = [("clamp", Amount::Clamp), ("wrap", Amount::Wrap)];
            let amount = list.take_from(&amounts).ok_or(Reason::Lacks("`.clamp` or `.wrap`"))?;
            Operation::Shift(op, amount)
        }
    };
    let saturates = !is_set && list.take("sat");
    let second = list.take_from(&SECOND);
    list.finish()?;
    let video = Video {
        operation,
        dst_ty,
        types,
        saturates,
        second,
    };
    match lanes {
        None => video.scalar(k, inst),
        Some(lanes) => video.lanes(k, inst, lanes),
    }
}

fn word_type(list: &mut ModifierList<'_>) -> Result<Type, Reason> {
    let ty = list.ty()?;
    check_type(ty, &[&[Type::U32, Type::S32]])?;
    Ok(ty)
}

/// An instruction but for its operands.
struct Video {
    operation: Operation,
    dst_ty: Type,
    types: [Type; 2],
    saturates: bool,
    second: Option<AluOp>,
}

impl Video {
    /// True for a scalar instruction of which NVIDIA's driver 580 makes something else for an H200 than the pseudocode
    /// says, or of a kind that does: such are refused, as neither is surely what a program was tried with.
    fn differs_on_gpus(&self, place: Option<Part>) -> bool {
        let types = [self.dst_ty, self.types[0], self.types[1]];
        let is_mixed = types.iter().any(|&ty| ty != Type::S32);
        let is_left_shift = matches!(self.operation, Operation::Shift(AluOp::Shl, _));
        let limits = matches!(self.second, Some(AluOp::Min | AluOp::Max));
        let extends = matches!(
            self.operation,
            Operation::Alu(AluOp::Add | AluOp::Sub) | Operation::AbsoluteDifference
        );
        let wraps = is_left_shift || (extends && is_mixed);
        let takes_upper_half = place.is_some_and(|part| part.at == 16 && part.bits == 16);
        (self.saturates && (wraps || place.is_some())) || (limits && wraps) || takes_upper_half
    }

    /// One part of each source, calculated with in 64 bits.
    fn scalar<'a>(&self, k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
        let (dst, a, b, c) = match inst.operands.as_slice() {
            [dst, a, b] if self.second.is_none() => (dst, a, b, None),
            [dst, a, b, c] => (dst, a, b, Some(c)),
            _ => return Err(count(inst, "3 or 4")),
        };
        let (dst, place) = part_of(dst)?;
        if self.differs_on_gpus(place) {
            return Err(Reason::DiffersOnGpus);
        }
        let dst = k.result(&dst, Width::W32)?;
        let [left, right] = [(a, self.types[0]), (b, self.types[1])].map(|(operand, ty)| widened(k, operand, ty));
        let mut result = calculate(k, self.operation, Type::S64, left?, right?);
        let place = place.unwrap_or(WHOLE);
        if self.saturates {
            result = clamp(k, Type::S64, result, self.dst_ty, place.bits);
        }
        let third = c.map(|c| k.value(c, self.dst_ty)).transpose()?;
        let result = match (self.second, third) {
            (Some(op), Some(third)) => {
                let third = convert(k, (Type::S64, self.dst_ty), None, third);
                let sum = scratch(k, op, Type::S64, Width::W64, vec![result, third]);
                low_word(k, sum)
            }
            (None, Some(third)) if place.bits < 32 => {
                let word = low_word(k, result);
                insert(k, word, third, place)
            }
            (None, None) if place.bits == 32 => low_word(k, result),
            _ => {
                return Err(count(
                    inst,
                    "a third source with a second operation, or with a part of the result",
                ));
            }
        };
        put(k, dst, result);
        Ok(())
    }

    /// Two halves or four bytes of each source.
    fn lanes<'a>(&self, k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, lanes: u64) -> Result<(), Reason> {
        if self.second.is_some_and(|op| op != AluOp::Add) {
            return Err(Reason::Modifier("min".to_owned()));
        }
        let [dst, a, b, c] = inst.operands.as_slice() else {
            return Err(count(inst, "4"));
        };
        let (dst, mask) = selected(dst)?;
        let mask = written(mask, lanes)?;
        let ((a, of_a), (b, of_b)) = (selected(a)?, selected(b)?);
        let of_a = selection(of_a, lanes, 0)?;
        let of_b = selection(of_b, lanes, lanes)?;
        let (a, b) = (k.value(&a, Type::B32)?, k.value(&b, Type::B32)?);
        let mut result = k.value(c, Type::B32)?;
        let dst = k.result(&dst, Width::W32)?;
        let bits = 32 / lanes;
        let part = |k: &mut KernelLowering<'_, '_>, number: u64, ty| {
            let (word, at) = if number < lanes {
                (a, number)
            } else {
                (b, number - lanes)
            };
            let srcs = vec![word, Operand::Imm(at * bits), Operand::Imm(bits)];
            scratch(k, AluOp::Bfe, ty, Width::W32, srcs)
        };
        for lane in (0..lanes).filter(|lane| mask & (1 << lane) != 0) {
            let at = lane as usize;
            let left = part(k, of_a[at], self.types[0]);
            let right = part(k, of_b[at], self.types[1]);
            let mut value = calculate(k, self.operation, Type::S32, left, right);
            if self.saturates {
                value = clamp(k, Type::S32, value, self.dst_ty, bits);
            }
            result = match self.second {
                Some(_) => scratch(k, AluOp::Add, Type::U32, Width::W32, vec![result, value]),
                None => insert(k, value, result, Part { at: lane * bits, bits }),
            };
        }
        put(k, dst, result);
        Ok(())
    }
}

/// PTX ISA, "vmad".
fn multiply_add<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let types = [word_type(&mut list)?, word_type(&mut list)?, word_type(&mut list)?];
    let one_more = list.take("po");
    let saturates = list.take("sat");
    let shift = list.take_from(&[("shr7", 7), ("shr15", 15)]).unwrap_or(0);
    list.finish()?;
    let [dst, a, b, c] = inst.operands.as_slice() else {
        return Err(count(inst, "4"));
    };
    if (saturates || shift > 0) && types[1..] != [Type::S32; 2] {
        return Err(Reason::DiffersOnGpus);
    }
    let is_signed = types[1] == Type::S32 || types[2] == Type::S32;
    let (wide, narrow) = if is_signed {
        (Type::S64, Type::S32)
    } else {
        (Type::U64, Type::U32)
    };
    let (a, b) = (widened(k, a, types[1])?, widened(k, b, types[2])?);
    let c = k.value(c, narrow)?;
    let dst = k.result(dst, Width::W32)?;
    let c = convert(k, (wide, narrow), None, c);
    // Exact: factors and summand have 32 bits.
    let mut sum = scratch(k, AluOp::Mad, wide, Width::W64, vec![a, b, c]);
    for (op, number, is_wanted) in [(AluOp::Add, 1, one_more), (AluOp::Shr, shift, shift > 0)] {
        if is_wanted {
            sum = scratch(k, op, wide, Width::W64, vec![sum, Operand::Imm(number)]);
        }
    }
    if saturates && is_signed {
        sum = clamp(k, wide, sum, Type::S32, 32);
    } else if saturates {
        sum = scratch(
            k,
            AluOp::Min,
            wide,
            Width::W64,
            vec![sum, Operand::Imm(u32::MAX.into())],
        );
    }
    let result = low_word(k, sum);
    put(k, dst, result);
    Ok(())
}

fn count(inst: &Instruction<'_>, expected: &'static str) -> Reason {
    Reason::OperandCount {
        expected,
        found: inst.operands.len(),
    }
}

/// A register without what stands behind its dot, and that.
fn selected<'a>(operand: &ast::Operand<'a>) -> Result<(ast::Operand<'a>, Option<&'a str>), Reason> {
    match operand {
        ast::Operand::Name(name, selector) => Ok((ast::Operand::Name(name, None), *selector)),
        other => Ok((other.clone(), None)),
    }
}

/// A register, and which part of it is meant.
fn part_of<'a>(operand: &ast::Operand<'a>) -> Result<(ast::Operand<'a>, Option<Part>), Reason> {
    let (register, selector) = selected(operand)?;
    let part = |at, bits| Some(Part { at, bits });
    let part = match selector {
        None => None,
        Some("b0") => part(0, 8),
        Some("b1") => part(8, 8),
        Some("b2") => part(16, 8),
        Some("b3") => part(24, 8),
        Some("h0") => part(0, 16),
        Some("h1") => part(16, 16),
        Some(_) => {
            return Err(Reason::Operand {
                expected: "a byte or half of a register",
                found: operand.describe(),
            });
        }
    };
    Ok((register, part))
}

/// Digits behind `h` or `b`, as many as `lanes` at most, the last one first.
fn digits(selector: &str, lanes: u64, below: u64) -> Result<Vec<u64>, Reason> {
    let wrong = || Reason::Operand {
        expected: "a selection of halves or bytes",
        found: selector.to_owned(),
    };
    let prefix = if lanes == 2 { 'h' } else { 'b' };
    let text = selector.strip_prefix(prefix).ok_or_else(wrong)?;
    let digits = text.chars().rev().map(|c| c.to_digit(10).map(u64::from));
    let digits: Vec<u64> = digits.collect::<Option<_>>().ok_or_else(wrong)?;
    if digits.is_empty() || digits.len() as u64 > lanes || digits.iter().any(|&digit| digit >= below) {
        return Err(wrong());
    }
    Ok(digits)
}

/// Which parts of both sources a source's lanes are, the lowest first; by default its own, from `first` on.
fn selection(selector: Option<&str>, lanes: u64, first: u64) -> Result<Vec<u64>, Reason> {
    let Some(selector) = selector else {
        return Ok((first..first + lanes).collect());
    };
    let found = digits(selector, lanes, 2 * lanes)?;
    if found.len() as u64 == lanes {
        Ok(found)
    } else {
        Err(Reason::Operand {
            expected: "a selection of all halves or bytes",
            found: selector.to_owned(),
        })
    }
}

/// Which lanes are written, a bit each.
fn written(selector: Option<&str>, lanes: u64) -> Result<u64, Reason> {
    let Some(selector) = selector else {
        return Ok((1 << lanes) - 1);
    };
    Ok(digits(selector, lanes, lanes)?
        .iter()
        .fold(0, |mask, digit| mask | 1 << digit))
}

/// A source's part in 64 bits.
fn widened<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>, ty: Type) -> Result<Operand, Reason> {
    let (register, part) = part_of(operand)?;
    let word = k.value(&register, ty)?;
    let word = match part {
        None => word,
        Some(Part { at, bits }) => {
            let srcs = vec![word, Operand::Imm(at), Operand::Imm(bits)];
            scratch(k, AluOp::Bfe, ty, Width::W32, srcs)
        }
    };
    Ok(convert(k, (Type::S64, ty), None, word))
}

/// Both sources have been widened to `ty`, which is signed and holds every result.
fn calculate(k: &mut KernelLowering<'_, '_>, operation: Operation, ty: Type, a: Operand, b: Operand) -> Operand {
    let width = width_of(ty);
    match operation {
        Operation::Alu(op) => scratch(k, op, ty, width, vec![a, b]),
        Operation::AbsoluteDifference => {
            let difference = scratch(k, AluOp::Sub, ty, width, vec![a, b]);
            scratch(k, AluOp::Abs, ty, width, vec![difference])
        }
        Operation::Average => {
            let sum = scratch(k, AluOp::Add, ty, width, vec![a, b]);
            // -1 if it is negative, which is rounded down as the others are rounded up.
            let sign = scratch(k, AluOp::Shr, ty, width, vec![sum, Operand::Imm(31)]);
            let sum = scratch(k, AluOp::Add, ty, width, vec![sum, sign]);
            let sum = scratch(k, AluOp::Add, ty, width, vec![sum, Operand::Imm(1)]);
            scratch(k, AluOp::Shr, ty, width, vec![sum, Operand::Imm(1)])
        }
        Operation::Set(cmp) => {
            let pred = halves::compare(k, (cmp, ty), a, b, None);
            let dst = k.scratch(width);
            k.emit_unguarded(Op::Selp {
                ty: if width == Width::W64 { Type::B64 } else { Type::B32 },
                dst,
                a: Operand::Imm(1),
                b: Operand::Imm(0),
                pred,
            });
            Operand::Reg(dst)
        }
        Operation::Shift(op, amount) => {
            let by = low_word(k, b);
            let by = match amount {
                Amount::Clamp => scratch(k, AluOp::Min, Type::U32, Width::W32, vec![by, Operand::Imm(32)]),
                Amount::Wrap => scratch(k, AluOp::And, Type::B32, Width::W32, vec![by, Operand::Imm(31)]),
            };
            let shifted = if op == AluOp::Shl { Type::B64 } else { ty };
            scratch(k, op, shifted, width, vec![a, by])
        }
    }
}

/// The nearest number of `bits` bits, signed or not as `like` is.
fn clamp(k: &mut KernelLowering<'_, '_>, ty: Type, value: Operand, like: Type, bits: u64) -> Operand {
    let (least, most) = if like == Type::S32 {
        (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
    } else {
        (0, (1i64 << bits) - 1)
    };
    let width = width_of(ty);
    let imm = |number: i64| Operand::Imm(crate::lower::operand::truncate(number.cast_unsigned(), ty));
    let value = scratch(k, AluOp::Max, ty, width, vec![value, imm(least)]);
    scratch(k, AluOp::Min, ty, width, vec![value, imm(most)])
}

fn low_word(k: &mut KernelLowering<'_, '_>, value: Operand) -> Operand {
    let dst = k.scratch(Width::W32);
    k.emit_unguarded(Op::Unpack {
        ty: Type::B64,
        dsts: vec![Some(dst), None],
        src: value,
    });
    Operand::Reg(dst)
}

fn insert(k: &mut KernelLowering<'_, '_>, value: Operand, into: Operand, Part { at, bits }: Part) -> Operand {
    let srcs = vec![value, into, Operand::Imm(at), Operand::Imm(bits)];
    scratch(k, AluOp::Bfi, Type::B32, Width::W32, srcs)
}

fn put(k: &mut KernelLowering<'_, '_>, dst: RegId, src: Operand) {
    k.emit(Op::Mov {
        ty: Type::B32,
        dst,
        src,
    });
}
