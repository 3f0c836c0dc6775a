//! PTX ISA, "mma": lanes have the parts of matrices that the ISA gives them.
//!
//! Floats of 8 bits an H200 multiplies as halves, in two instructions: first the lower two of each register, to zero,
//! and then the upper two to that; what is to be added it adds at the end. (So NVIDIA's assembler 13.0 makes it for
//! sm_90.)

use hetckpt_ir::inst::{AluOp, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::eight_bits::widened_pair;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::dot::{Adding, Factors, dot, factors};
use crate::lower::matrix::element::{ELEMENTS, Element, SUMS, Sum};
use crate::lower::matrix::emit::{lane_id, plus, word};
use crate::lower::matrix::registers::{put, register_type, sums, values};
use crate::lower::matrix::shape::{LANES, OF_MMA};
use crate::lower::matrix::shelf::{Lane, Shelf, leave};
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// Lanes that share a row of the first matrix, or a column of the second.
const SHARING: u32 = 4;

/// PTX ISA, "mma".
pub(super) fn mma<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    for needed in ["sync", "aligned", "row", "col"] {
        if !list.take(needed) {
            return Err(Reason::Lacks("`.sync.aligned.row.col`"));
        }
    }
    let shape = list.take_from(&OF_MMA).ok_or(Reason::Lacks("a shape"))?;
    let (adding, has_matches) = Adding::read(&mut list)?;
    let lacks = Reason::Lacks("types");
    let (Some(sum), Some(a), Some(b), Some(before)) = (
        list.take_from(&SUMS),
        list.take_from(&ELEMENTS),
        list.take_from(&ELEMENTS),
        list.take_from(&SUMS),
    ) else {
        return Err(lacks);
    };
    list.finish()?;
    // In half of a register there is no part of a matrix.
    let is_whole = |rows: u32| (rows * shape.k).is_multiple_of(a.per_register() * LANES);
    let is_bit = a == Element::Bit;
    let is_known = before == sum && a.goes_with(b, sum) && is_whole(shape.m.min(shape.n));
    if !is_known || is_bit != has_matches || (adding.rounding.is_some() && sum != Sum::F64) {
        return Err(Reason::Family("`mma` of this shape and these types"));
    }
    let [dst, first, second, added] = operands(inst, "4")?;
    let halves = shape.m / 8;
    let count = |rows: u32| rows * shape.k / (a.per_register() * LANES);
    let (num_first, num_second) = (count(shape.m), count(shape.n));
    let first = values(k, first, num_first, register_type(a))?;
    let second = values(k, second, num_second, register_type(b))?;
    let added = sums(k, added, 2 * halves, sum)?;

    // Parts that are multiplied one after the other.
    let (first, a, num_parts) = in_parts(k, first, a);
    let (second, b, _) = in_parts(k, second, b);
    let [first, second] = leave(k, [&first, &second], a == Element::F64)?;
    let lane = lane_id(k);
    // The first of those that have this lane's rows, and of those that have its first column.
    let of_rows = word(k, AluOp::And, Type::B32, [lane, Operand::Imm((LANES - SHARING).into())]);
    let number = word(k, AluOp::And, Type::B32, [lane, Operand::Imm((SHARING - 1).into())]);
    let of_column = word(k, AluOp::Shl, Type::B32, [number, Operand::Imm(3)]);
    let adding = Adding { sum, ..adding };
    let mut results = match num_parts {
        1 => added.clone(),
        _ => vec![Operand::Imm(0); added.len()],
    };
    for part in 0..num_parts {
        let [of_first, of_second] = [num_first, num_second].map(|num| part * num);
        let rows: Vec<Factors> = (0..halves)
            .map(|half| {
                let registers = (of_first + half..of_first + num_first).step_by(halves as usize);
                gathered(k, a, (&first, registers), of_rows)
            })
            .collect();
        let columns = [0, 1].map(|column| {
            let start = plus(k, of_column, SHARING * column);
            gathered(k, b, (&second, of_second..of_second + num_second), start)
        });
        let mut sums = vec![];
        for (row, before) in rows.iter().zip(results.as_chunks::<2>().0) {
            for (column, &before) in columns.iter().zip(before) {
                sums.push(dot(k, (row, column), (before, sum), adding));
            }
        }
        results = sums;
    }
    if num_parts > 1 {
        let (ty, width) = if sum == Sum::F16 {
            (Type::F16, Width::W16)
        } else {
            (Type::F32, Width::W32)
        };
        let sums = added.into_iter().zip(results);
        results = sums
            .map(|(added, sum)| scratch(k, AluOp::Add, ty, width, vec![added, sum]))
            .collect();
    }
    put(k, dst, results, sum)
}

/// Registers for each part that is multiplied by itself, what they are made of then, and how many parts there are.
fn in_parts(k: &mut KernelLowering<'_, '_>, registers: Vec<Operand>, element: Element) -> (Vec<Operand>, Element, u32) {
    let Element::F8(format) = element else {
        return (registers, element, 1);
    };
    let places = [0, 16]
        .into_iter()
        .flat_map(|at| registers.iter().map(move |&register| (register, at)));
    let pairs = places.map(|(register, at)| widened_pair(k, format, register, at));
    (pairs.collect(), Element::F16, 2)
}

/// A row or column that lanes from `start` on have in these registers, with its elements in their order.
fn gathered(
    k: &mut KernelLowering<'_, '_>,
    element: Element,
    (shelf, registers): (&Shelf, impl Iterator<Item = u32>),
    start: Operand,
) -> Factors {
    let lanes: Vec<Lane> = (0..SHARING)
        .map(|number| {
            let number = plus(k, start, number);
            shelf.lane(k, number)
        })
        .collect();
    let mut parts = vec![];
    for register in registers {
        for &lane in &lanes {
            parts.push(shelf.register(k, lane, register as usize));
        }
    }
    factors(k, element, &parts)
}
