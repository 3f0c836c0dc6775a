//! Parts of matrices that lanes have, and their registers.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::matrix::element::{Element, Sum};
use crate::lower::matrix::emit::{pack, unpack};
use crate::lower::moves;

/// The registers of an operand, as many as there must be.
pub(crate) fn registers<'o, 'a>(operand: &'o ast::Operand<'a>, count: u32) -> Result<&'o [ast::Operand<'a>], Reason> {
    let parts = match operand {
        ast::Operand::Vector(parts) => parts.as_slice(),
        single => std::slice::from_ref(single),
    };
    match parts.len() == count as usize {
        true => Ok(parts),
        false => Err(Reason::Operand {
            expected: "as many registers as the shape takes",
            found: operand.describe(),
        }),
    }
}

/// The values of an operand's registers.
pub(crate) fn values<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operand: &ast::Operand<'a>,
    count: u32,
    ty: Type,
) -> Result<Vec<Operand>, Reason> {
    registers(operand, count)?
        .iter()
        .map(|part| k.value(part, ty))
        .collect()
}

/// Type of the registers that hold an element.
pub(crate) const fn register_type(element: Element) -> Type {
    match element {
        Element::F64 => Type::B64,
        _ => Type::B32,
    }
}

/// Type of the registers that hold a sum.
pub(crate) const fn sum_type(sum: Sum) -> Type {
    match sum {
        Sum::F64 => Type::B64,
        _ => Type::B32,
    }
}

/// How many registers hold `count` sums.
pub(crate) const fn sum_registers(sum: Sum, count: u32) -> u32 {
    match sum {
        Sum::F16 => count / 2,
        _ => count,
    }
}

/// The sums in an operand's registers.
pub(crate) fn sums<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operand: &ast::Operand<'a>,
    count: u32,
    sum: Sum,
) -> Result<Vec<Operand>, Reason> {
    let values = values(k, operand, sum_registers(sum, count), sum_type(sum))?;
    Ok(match sum {
        Sum::F16 => values
            .into_iter()
            .flat_map(|pair| unpack(k, Type::B32, Width::W16, pair))
            .collect(),
        _ => values,
    })
}

/// Puts sums into an operand's registers.
pub(crate) fn put<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operand: &ast::Operand<'a>,
    results: Vec<Operand>,
    sum: Sum,
) -> Result<(), Reason> {
    let results = match sum {
        Sum::F16 => {
            let (pairs, _) = results.as_chunks::<2>();
            pairs.iter().map(|&pair| pack(k, Type::B32, pair)).collect()
        }
        _ => results,
    };
    put_registers(k, operand, results, sum_type(sum))
}

/// Puts values into an operand's registers, all of them once all are computed: they may be sources, too.
pub(crate) fn put_registers<'a>(
    k: &mut KernelLowering<'_, 'a>,
    operand: &ast::Operand<'a>,
    results: Vec<Operand>,
    ty: Type,
) -> Result<(), Reason> {
    let count = u32::try_from(results.len()).unwrap_or(u32::MAX);
    let width = match ty {
        Type::B64 => Width::W64,
        _ => Width::W32,
    };
    let dsts = moves::results(k, registers(operand, count)?, |k, part| k.result(part, width))?;
    for (dst, src) in dsts.into_iter().zip(results) {
        move_to(k, ty, dst, src);
    }
    Ok(())
}

fn move_to(k: &mut KernelLowering<'_, '_>, ty: Type, dst: Option<RegId>, src: Operand) {
    if let Some(dst) = dst {
        k.emit(Op::Mov { ty, dst, src });
    }
}
