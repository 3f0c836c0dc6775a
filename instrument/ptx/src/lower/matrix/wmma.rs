//! PTX ISA, "wmma": which lane has which part of a matrix is for the device to say. Here each lane has neighbours: of a
//! row of the first matrix and of the result, of a column of the second one.

use hetckpt_ir::inst::{AluOp, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::address::Start;
use crate::lower::matrix::dot::{Adding, Factors, dot, factors};
use crate::lower::matrix::element::{ELEMENTS, Element, SUMS, Sum};
use crate::lower::matrix::emit::{lane_id, pack, plus, word};
use crate::lower::matrix::registers::{put, put_registers, register_type, sum_type, sums, values};
use crate::lower::matrix::shape::{LANES, OF_WMMA, Shape};
use crate::lower::matrix::shelf::{Shelf, leave};
use crate::lower::memory;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;

/// Registers of a matrix of half precision, whatever its shape.
const HALF_REGISTERS: u32 = 8;

/// Rows of a matrix (or columns), as lanes share them.
#[derive(Clone, Copy)]
struct Sharing {
    /// Lanes for each.
    lanes: u32,
    /// What a lane has of it: registers of factors, or sums.
    parts: u32,
}

impl Sharing {
    /// Of `rows` rows with so many parts each.
    const fn new(rows: u32, parts: u32) -> Self {
        let lanes = LANES / rows;
        Self {
            lanes,
            parts: parts / lanes,
        }
    }

    /// Of the factors of a product of this shape, or nothing where a lane would have no whole register, or too many.
    fn of_factors(rows: u32, length: u32, element: Element) -> Result<Self, Reason> {
        let sharing = Self::new(rows, length / element.per_register());
        let most = match element {
            Element::F16 => HALF_REGISTERS,
            _ => LANES,
        };
        match (1..=most).contains(&sharing.parts) {
            true => Ok(sharing),
            false => Err(Reason::Family("`wmma` of this shape and these types")),
        }
    }

    /// The lane's row, and its first part there.
    fn place(self, k: &mut KernelLowering<'_, '_>) -> (Operand, Operand) {
        let lane = lane_id(k);
        let shift = Operand::Imm(self.lanes.trailing_zeros().into());
        let row = word(k, AluOp::Shr, Type::U32, [lane, shift]);
        let number = word(k, AluOp::And, Type::B32, [lane, Operand::Imm((self.lanes - 1).into())]);
        let first = word(k, AluOp::Mul, Type::U32, [number, Operand::Imm(self.parts.into())]);
        (row, first)
    }
}

/// PTX ISA, "wmma.load", "wmma.store", "wmma.mma".
pub(super) fn wmma<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let which = list.take_from(&[("load", "load"), ("store", "store"), ("mma", "mma")]);
    if !(list.take("sync") && list.take("aligned")) {
        return Err(Reason::Lacks("`.sync.aligned`"));
    }
    match which {
        Some("load") => load(k, inst, list),
        Some("store") => store(k, inst, list),
        Some(_) => multiply(k, inst, list),
        None => Err(Reason::Lacks("`.load`, `.store` or `.mma`")),
    }
}

/// How a matrix lies in memory: true if its rows are wholes.
const LAYOUTS: [(&str, bool); 2] = [("row", true), ("col", false)];

fn load<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, mut list: ModifierList<'_>) -> Result<(), Reason> {
    let matrix = list.take_from(&[("a", 'a'), ("b", 'b'), ("c", 'c')]);
    let matrix = matrix.ok_or(Reason::Lacks("a matrix"))?;
    let by_rows = list.take_from(&LAYOUTS).ok_or(Reason::Lacks("a layout"))?;
    let shape = list.take_from(&OF_WMMA).ok_or(Reason::Lacks("a shape"))?;
    let (space, _) = list.space();
    let sum = (matrix == 'c').then(|| list.take_from(&SUMS)).flatten();
    let element = (matrix != 'c').then(|| list.take_from(&ELEMENTS)).flatten();
    list.finish()?;
    let (dst, address, stride) = match inst.operands.as_slice() {
        [dst, address] => (dst, address, None),
        [dst, address, stride] => (dst, address, Some(stride)),
        _ => return Err(wrong_count(inst)),
    };
    let stride = stride.map(|stride| k.value(stride, Type::U32)).transpose()?;
    let target = memory::memory_target(k, address, space)?;
    let start = Start::new(k, target);
    match (sum, element) {
        (Some(sum), _) => {
            let places = places_of_sums(k, shape, sum, (by_rows, stride));
            let ty = stored_type(sum);
            let width = width_of(ty);
            let loaded = places
                .into_iter()
                .map(|bytes| start.behind(k, start.address, bytes).load(k, ty, width))
                .collect();
            put(k, dst, loaded, sum)
        }
        (None, Some(element)) => {
            let rows = if matrix == 'a' { shape.m } else { shape.n };
            let is_whole = by_rows == (matrix == 'a');
            let mut loaded = load_factors(k, start, element, (rows, shape.k), (is_whole, stride))?;
            if element == Element::F16 {
                let kept = loaded.clone();
                loaded = kept.into_iter().cycle().take(HALF_REGISTERS as usize).collect();
            }
            put_registers(k, dst, loaded, register_type(element))
        }
        (None, None) => Err(Reason::Lacks("a type")),
    }
}

fn wrong_count(inst: &Instruction<'_>) -> Reason {
    Reason::OperandCount {
        expected: "2 or 3",
        found: inst.operands.len(),
    }
}

/// The lane's registers of a matrix with `rows` rows (or columns) of `length` elements, whose rows are wholes in memory
/// or not.
fn load_factors(
    k: &mut KernelLowering<'_, '_>,
    start: Start,
    element: Element,
    (rows, length): (u32, u32),
    (is_whole, stride): (bool, Option<Operand>),
) -> Result<Vec<Operand>, Reason> {
    let (per_register, bits) = (element.per_register(), element.bits());
    let sharing = Sharing::of_factors(rows, length, element)?;
    let (row, first) = sharing.place(k);
    let first = word(k, AluOp::Mul, Type::U32, [first, Operand::Imm(per_register.into())]);
    let bytes = |k: &mut KernelLowering<'_, '_>, elements: Operand| match bits {
        8.. => word(k, AluOp::Mul, Type::U32, [elements, Operand::Imm((bits / 8).into())]),
        _ => word(k, AluOp::Div, Type::U32, [elements, Operand::Imm((8 / bits).into())]),
    };
    let mut loaded = vec![];
    for register in 0..sharing.parts {
        let column = plus(k, first, register * per_register);
        if is_whole {
            let stride = stride.unwrap_or(Operand::Imm(length.into()));
            let at = word(k, AluOp::Mad, Type::U32, [row, stride, column]);
            let at = bytes(k, at);
            let place = start.behind(k, start.address, at);
            loaded.push(match element {
                Element::F64 => place.load(k, Type::B64, Width::W64),
                _ => place.load(k, Type::B32, Width::W32),
            });
            continue;
        }
        let stride = stride.unwrap_or(Operand::Imm(rows.into()));
        let mut parts = vec![];
        for part in 0..per_register {
            let column = plus(k, column, part);
            let at = word(k, AluOp::Mad, Type::U32, [column, stride, row]);
            let at = bytes(k, at);
            parts.push(start.behind(k, start.address, at));
        }
        let value = match (element, parts.as_slice()) {
            (Element::F64, [place]) => place.load(k, Type::B64, Width::W64),
            (_, [place]) => place.load(k, Type::B32, Width::W32),
            (_, &[low, high]) => {
                let halves = [low, high].map(|place| place.load(k, Type::B16, Width::W16));
                pack(k, Type::B32, halves)
            }
            (_, places) if bits == 8 => (0..).zip(places).fold(Operand::Imm(0), |sum, (at, place)| {
                let byte = place.load(k, Type::U8, Width::W32);
                let byte = word(k, AluOp::Shl, Type::B32, [byte, Operand::Imm(8 * at)]);
                word(k, AluOp::Or, Type::B32, [sum, byte])
            }),
            _ => return Err(Reason::Family("matrices of less than bytes whose rows are not wholes")),
        };
        loaded.push(value);
    }
    Ok(loaded)
}

/// Type of a sum in memory.
const fn stored_type(sum: Sum) -> Type {
    match sum {
        Sum::F16 => Type::B16,
        _ => sum_type(sum),
    }
}

/// Where the lane's sums lie, in bytes from the matrix's start.
fn places_of_sums(
    k: &mut KernelLowering<'_, '_>,
    shape: Shape,
    sum: Sum,
    (by_rows, stride): (bool, Option<Operand>),
) -> Vec<Operand> {
    let sharing = Sharing::new(shape.m, shape.n);
    let (row, first) = sharing.place(k);
    let whole = if by_rows { shape.n } else { shape.m };
    let stride = stride.unwrap_or(Operand::Imm(whole.into()));
    let size = Operand::Imm(stored_type(sum).size_bytes().into());
    let mut places = vec![];
    for part in 0..sharing.parts {
        let column = plus(k, first, part);
        let srcs = match by_rows {
            true => [row, stride, column],
            false => [column, stride, row],
        };
        let at = word(k, AluOp::Mad, Type::U32, srcs);
        places.push(word(k, AluOp::Mul, Type::U32, [at, size]));
    }
    places
}

fn store<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>, mut list: ModifierList<'_>) -> Result<(), Reason> {
    if !list.take("d") {
        return Err(Reason::Lacks("a matrix"));
    }
    let by_rows = list.take_from(&LAYOUTS).ok_or(Reason::Lacks("a layout"))?;
    let shape = list.take_from(&OF_WMMA).ok_or(Reason::Lacks("a shape"))?;
    let (space, _) = list.space();
    let sum = list.take_from(&SUMS).ok_or(Reason::Lacks("a type"))?;
    list.finish()?;
    let (address, src, stride) = match inst.operands.as_slice() {
        [address, src] => (address, src, None),
        [address, src, stride] => (address, src, Some(stride)),
        _ => return Err(wrong_count(inst)),
    };
    let stride = stride.map(|stride| k.value(stride, Type::U32)).transpose()?;
    let target = memory::memory_target(k, address, space)?;
    let start = Start::new(k, target);
    let stored = sums(k, src, shape.m * shape.n / LANES, sum)?;
    let places = places_of_sums(k, shape, sum, (by_rows, stride));
    for (value, bytes) in stored.into_iter().zip(places) {
        start.behind(k, start.address, bytes).store(k, stored_type(sum), value);
    }
    Ok(())
}

fn multiply<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    mut list: ModifierList<'_>,
) -> Result<(), Reason> {
    // How the matrices lay in memory.
    let layouts = [list.take_from(&LAYOUTS), list.take_from(&LAYOUTS)];
    let shape = list.take_from(&OF_WMMA).ok_or(Reason::Lacks("a shape"))?;
    let (adding, has_matches) = Adding::read(&mut list)?;
    let sum = list.take_from(&SUMS);
    // Of half precision if they are not named.
    let named = inst
        .modifiers
        .iter()
        .filter(|name| ELEMENTS.iter().any(|(element, _)| element == *name));
    let (a, b) = match named.count() {
        2.. if matches!(sum, Some(Sum::F64)) || !inst.modifiers.contains(&"f16") => {
            (list.take_from(&ELEMENTS), list.take_from(&ELEMENTS))
        }
        _ => (Some(Element::F16), Some(Element::F16)),
    };
    let (Some(sum), Some(a), Some(b), Some(before)) = (sum, a, b, list.take_from(&SUMS)) else {
        return Err(Reason::Lacks("types"));
    };
    list.finish()?;
    let is_known = a.goes_with(b, sum) && a.goes_with(b, before) && layouts.iter().all(Option::is_some);
    if !is_known || (a == Element::Bit) != has_matches || (adding.rounding.is_some() && sum != Sum::F64) {
        return Err(Reason::Family("`wmma` of this shape and these types"));
    }
    let [dst, first, second, added] = operands(inst, "4")?;
    let [rows, columns] = [shape.m, shape.n].map(|rows| Sharing::of_factors(rows, shape.k, a));
    let (rows, columns) = (rows?, columns?);
    let mut taken = |operand: &ast::Operand<'a>, sharing: Sharing| {
        let count = match a {
            Element::F16 => HALF_REGISTERS,
            _ => sharing.parts,
        };
        values(k, operand, count, register_type(a))
    };
    let (first, second) = (taken(first, rows)?, taken(second, columns)?);
    let count = shape.m * shape.n / LANES;
    let added = sums(k, added, count, before)?;

    let first = &first[..rows.parts as usize];
    let second = &second[..columns.parts as usize];
    let [first, second] = leave(k, [first, second], a == Element::F64)?;
    let (row, first_column) = Sharing::new(shape.m, shape.n).place(k);
    let row = gathered(k, a, &first, rows, row);
    let adding = Adding { sum, ..adding };
    let mut results = vec![];
    for (number, &added) in (0..).zip(&added) {
        let column = plus(k, first_column, number);
        let column = gathered(k, b, &second, columns, column);
        let sum = row.iter().zip(&column).fold((added, before), |sum, (row, column)| {
            (dot(k, (row, column), sum, adding), adding.sum)
        });
        results.push(sum.0);
    }
    put(k, dst, results, sum)
}

/// A row (or column), of which several lanes have parts. What is added up at once is together.
fn gathered(
    k: &mut KernelLowering<'_, '_>,
    element: Element,
    shelf: &Shelf,
    sharing: Sharing,
    row: Operand,
) -> Vec<Factors> {
    let start = word(k, AluOp::Mul, Type::U32, [row, Operand::Imm(sharing.lanes.into())]);
    let mut parts = vec![];
    for lane in 0..sharing.lanes {
        let lane = plus(k, start, lane);
        let lane = shelf.lane(k, lane);
        for register in 0..sharing.parts {
            parts.push(shelf.register(k, lane, register as usize));
        }
    }
    let at_once = match element {
        // As an H200 was seen to; `mma` adds eight of them at once.
        Element::Tf32 => 4,
        _ => parts.len(),
    };
    parts.chunks(at_once).map(|parts| factors(k, element, parts)).collect()
}
