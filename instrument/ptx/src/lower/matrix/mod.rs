//! Tensor cores (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"): `mma`, `wmma`, `ldmatrix`,
//! `stmatrix`, `movmatrix`.
//!
//! Lanes hand one another the parts of matrices through shared memory ([`shelf`]), and each computes its elements of
//! the result as an H200 was seen to ([`dot`]).

pub(super) mod emit;
pub(super) mod element;
pub(super) mod shape;
pub(super) mod dot;
pub(super) mod registers;
pub(super) mod shelf;
pub(super) mod address;
pub(super) mod mma;
pub(super) mod ldmatrix;
pub(super) mod wmma;

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;

/// `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.
pub(super) fn lower<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    k.multiplies_matrices = true;
    // All lanes take part.
    let not_taken = k.branch_on_guard();
    match inst.opcode {
        "mma" => mma::mma(k, inst)?,
        "wmma" => wmma::wmma(k, inst)?,
        "ldmatrix" => ldmatrix::ldmatrix(k, inst)?,
        "stmatrix" => ldmatrix::stmatrix(k, inst)?,
        "movmatrix" => ldmatrix::movmatrix(k, inst)?,
        _ => return Err(Reason::Instruction),
    }
    k.leave_guard(not_taken);
    Ok(())
}
