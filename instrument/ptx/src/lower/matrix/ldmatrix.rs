//! PTX ISA, "ldmatrix", "stmatrix" and "movmatrix": matrices of eight rows of eight elements of 16 bits, of which each
//! lane has two neighbours.

use hetckpt_ir::inst::{AluOp, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::address::{Place as InPlace, Start};
use crate::lower::matrix::emit::{lane_id, pack, plus, shuffle, shuffle_long, unpack, word};
use crate::lower::matrix::registers::{put_registers, values};
use crate::lower::memory;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

const ROWS: u32 = 8;
const COUNTS: [(&str, u32); 3] = [("x1", 1), ("x2", 2), ("x4", 4)];

/// A lane's row of a matrix, and the first of its two columns.
struct Place {
    row: Operand,
    column: Operand,
}

fn place(k: &mut KernelLowering<'_, '_>) -> Place {
    let lane = lane_id(k);
    let number = word(k, AluOp::And, Type::B32, [lane, Operand::Imm(3)]);
    Place {
        row: word(k, AluOp::Shr, Type::U32, [lane, Operand::Imm(2)]),
        column: word(k, AluOp::Shl, Type::B32, [number, Operand::Imm(1)]),
    }
}

/// Matrices in memory.
struct InMemory {
    count: u32,
    is_transposed: bool,
    start: Start,
}

impl InMemory {
    /// By what an instruction says, and its operand for addresses: each lane gives that of one row.
    fn new<'a>(
        k: &mut KernelLowering<'_, 'a>,
        inst: &Instruction<'a>,
        address: &ast::Operand<'a>,
    ) -> Result<Self, Reason> {
        let mut list = ModifierList::new(inst);
        if !(list.take("sync") && list.take("aligned") && list.take("m8n8") && list.take("b16")) {
            return Err(Reason::Family(
                "matrices in memory of other elements than eight by eight of 16 bits",
            ));
        }
        let count = list.take_from(&COUNTS).ok_or(Reason::Lacks("a number of matrices"))?;
        let is_transposed = list.take("trans");
        let (space, _) = list.space();
        list.finish()?;
        let target = memory::memory_target(k, address, space)?;
        Ok(Self {
            count,
            is_transposed,
            start: Start::new(k, target),
        })
    }

    /// Where an element lies.
    fn at(&self, k: &mut KernelLowering<'_, '_>, matrix: u32, row: Operand, column: Operand) -> InPlace {
        let lane = plus(k, row, ROWS * matrix);
        let row = match self.start.width {
            Width::W64 => shuffle_long(k, self.start.address, lane),
            _ => shuffle(k, self.start.address, lane),
        };
        let bytes = word(k, AluOp::Shl, Type::B32, [column, Operand::Imm(1)]);
        self.start.behind(k, row, bytes)
    }
}

/// PTX ISA, "ldmatrix".
pub(super) fn ldmatrix<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let [dst, address] = operands(inst, "2")?;
    let matrices = InMemory::new(k, inst, address)?;
    let Place { row, column } = place(k);
    let mut results = vec![];
    for matrix in 0..matrices.count {
        results.push(match matrices.is_transposed {
            false => matrices.at(k, matrix, row, column).load(k, Type::B32, Width::W32),
            true => {
                let parts = [0, 1].map(|part| {
                    let other = plus(k, column, part);
                    matrices.at(k, matrix, other, row).load(k, Type::B16, Width::W16)
                });
                pack(k, Type::B32, parts)
            }
        });
    }
    put_registers(k, dst, results, Type::B32)
}

/// PTX ISA, "stmatrix".
pub(super) fn stmatrix<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let [address, src] = operands(inst, "2")?;
    let matrices = InMemory::new(k, inst, address)?;
    let Place { row, column } = place(k);
    let srcs = values(k, src, matrices.count, Type::B32)?;
    for (matrix, src) in (0..).zip(srcs) {
        if !matrices.is_transposed {
            matrices.at(k, matrix, row, column).store(k, Type::B32, src);
            continue;
        }
        let halves = unpack(k, Type::B32, Width::W16, src);
        for (part, half) in (0..).zip(halves) {
            let other = plus(k, column, part);
            matrices.at(k, matrix, other, row).store(k, Type::B16, half);
        }
    }
    Ok(())
}

/// PTX ISA, "movmatrix": the lanes' matrix, transposed.
pub(super) fn movmatrix<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    for needed in ["sync", "aligned", "m8n8", "trans", "b16"] {
        if !list.take(needed) {
            return Err(Reason::Lacks("`.sync.aligned.m8n8.trans.b16`"));
        }
    }
    list.finish()?;
    let [dst, src] = operands(inst, "2")?;
    let src = values(k, src, 1, Type::B32)?[0];
    let Place { row, column } = place(k);
    let half = word(k, AluOp::And, Type::B32, [row, Operand::Imm(1)]);
    let half = word(k, AluOp::Shl, Type::B32, [half, Operand::Imm(4)]);
    let pair = word(k, AluOp::Shr, Type::U32, [row, Operand::Imm(1)]);
    let parts = [0, 1].map(|part| {
        let other = plus(k, column, part);
        let lane = word(k, AluOp::Mad, Type::U32, [other, Operand::Imm(4), pair]);
        let both = shuffle(k, src, lane);
        let one = word(k, AluOp::Shr, Type::U32, [both, half]);
        let [one, _] = unpack(k, Type::B32, Width::W16, one);
        one
    });
    let moved = pack(k, Type::B32, parts);
    put_registers(k, dst, vec![moved], Type::B32)
}
