//! Loads, stores, atomics and addresses.

use super::error::Rule;
use super::operand::{Operands, count};
use crate::inst::{Address, AddressBase, AtomOp, Op};
use crate::types::{Space, Type, Width};

pub(super) fn access(operands: Operands<'_>, op: &Op) -> Result<(), Rule> {
    match op {
        Op::AddrOf { dst, space, addr } => {
            if *space == Space::Generic {
                return Err(Rule::Space(*space));
            }
            address(operands, *space, addr, 0)?;
            if *space == Space::Global {
                operands.width(*dst, Width::W64)
            } else {
                operands.at_least(*dst, Type::B32)
            }
        }
        Op::Load {
            space, ty, dsts, addr, ..
        } => {
            let size_bytes = access_bytes(*ty, dsts.len())?;
            dsts.iter().flatten().try_for_each(|d| operands.at_least(*d, *ty))?;
            address(operands, *space, addr, size_bytes)
        }
        Op::Store {
            space, ty, srcs, addr, ..
        } => {
            if *space == Space::Param {
                return Err(Rule::Space(*space));
            }
            let size_bytes = access_bytes(*ty, srcs.len())?;
            srcs.iter().try_for_each(|s| operands.wide_source(*s, *ty))?;
            address(operands, *space, addr, size_bytes)
        }
        Op::Atom {
            op,
            space,
            ty,
            dst,
            addr,
            srcs,
            ..
        } => {
            if matches!(space, Space::Param | Space::Local) {
                return Err(Rule::Space(*space));
            }
            if *ty == Type::Pred || ty.size_bytes() < 2 {
                return Err(Rule::Type(*ty));
            }
            count(srcs.len(), if *op == AtomOp::Cas { 2 } else { 1 })?;
            srcs.iter().try_for_each(|s| operands.source(*s, *ty))?;
            dst.map_or(Ok(()), |d| operands.exact(d, *ty))?;
            address(operands, *space, addr, ty.size_bytes())
        }
        _ => Ok(()),
    }
}

/// Length of an access of `n` elements.
fn access_bytes(ty: Type, n: usize) -> Result<u32, Rule> {
    let n = match (ty, n) {
        (Type::Pred, _) => return Err(Rule::Type(ty)),
        (_, 1) => 1,
        (_, 2) => 2,
        (_, 4) => 4,
        (_, 8) => 8,
        _ => return Err(Rule::VectorLength(n)),
    };
    Ok(n * ty.size_bytes())
}

fn address(operands: Operands<'_>, space: Space, addr: &Address, size_bytes: u32) -> Result<(), Rule> {
    match (&addr.base, space) {
        (AddressBase::Reg(reg), Space::Global | Space::Generic) => operands.width(*reg, Width::W64),
        (AddressBase::Reg(reg), _) => operands.at_least(*reg, Type::B32),
        (AddressBase::Global(_), Space::Global) => Ok(()),
        (AddressBase::Global(_), _) => Err(Rule::Space(space)),
        (AddressBase::Absolute, Space::Global | Space::Generic) => Ok(()),
        (AddressBase::Absolute, _) => {
            let segment = match space {
                Space::Param => operands.kernel.param_bytes(),
                Space::Local => operands.kernel.local.size_bytes,
                // Dynamic shared memory follows the static part; its size is known at the launch.
                _ => u32::MAX,
            };
            let end = addr.offset.checked_add(i64::from(size_bytes));
            let is_inside = addr.offset >= 0 && end.is_some_and(|end| end <= i64::from(segment));
            if is_inside {
                Ok(())
            } else {
                Err(Rule::AddressRange {
                    space,
                    offset: addr.offset,
                    size_bytes,
                })
            }
        }
    }
}
