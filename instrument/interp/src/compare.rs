//! `setp` and `set`.
//!
//! # Source
//! PTX ISA 9.0, "Comparison and Selection Instructions".

use std::cmp::Ordering;

use hetckpt_ir::inst::{BoolOp, Comparison};
use hetckpt_ir::types::Type;

use crate::float;
use crate::float::format::decode;
use crate::integer::{number, truncate};

/// Whether `a cmp b` holds.
pub(crate) fn holds(cmp: Comparison, ty: Type, ftz: bool, a: u64, b: u64) -> bool {
    use Comparison as C;
    if ty.is_float() {
        let value = |bits| decode(float::flush(truncate(bits, 8 * ty.size_bytes()), ty, ftz), ty);
        return ordered(cmp, value(a).partial_cmp(&value(b)));
    }
    let is_unsigned = matches!(cmp, C::Lo | C::Ls | C::Hi | C::Hs);
    let bits = 8 * ty.size_bytes();
    let value = |v| {
        if is_unsigned {
            i128::from(truncate(v, bits))
        } else {
            number(v, ty)
        }
    };
    ordered(cmp, Some(value(a).cmp(&value(b))))
}

/// `None` means that one of the two is not a number.
fn ordered(cmp: Comparison, ordering: Option<Ordering>) -> bool {
    use Comparison as C;
    let Some(ordering) = ordering else {
        return matches!(cmp, C::Equ | C::Neu | C::Ltu | C::Leu | C::Gtu | C::Geu | C::Nan);
    };
    match cmp {
        C::Eq | C::Equ => ordering.is_eq(),
        C::Ne | C::Neu => ordering.is_ne(),
        C::Lt | C::Lo | C::Ltu => ordering.is_lt(),
        C::Le | C::Ls | C::Leu => ordering.is_le(),
        C::Gt | C::Hi | C::Gtu => ordering.is_gt(),
        C::Ge | C::Hs | C::Geu => ordering.is_ge(),
        C::Num => true,
        C::Nan => false,
    }
}

/// `result op p`.
pub(crate) fn combine(result: bool, with: Option<(BoolOp, bool)>) -> bool {
    match with {
        None => result,
        Some((BoolOp::And, p)) => result & p,
        Some((BoolOp::Or, p)) => result | p,
        Some((BoolOp::Xor, p)) => result ^ p,
    }
}
