//! Addresses, loads and stores (PTX ISA, "Data Movement and Conversion Instructions").
//!
//! Device addresses are added to the context's `global` pointer, offsets to the block's or thread's segment. The state
//! spaces are disjoint, which alias scopes tell LLVM; parameters and `.nc` loads never change while a kernel runs.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, Inst, Op, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use super::unsupported;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::llvm;
use crate::error::CodegenError;

/// Alias scopes of accesses to a space ([`crate::emit`] has the numbers).
pub fn scopes(space: Space) -> &'static str {
    match space {
        Space::Global | Space::Generic => ", !alias.scope !14, !noalias !24",
        Space::Shared => ", !alias.scope !12, !noalias !22",
        Space::Local => ", !alias.scope !13, !noalias !23",
        Space::Param => ", !invariant.load !31",
    }
}

/// The pointer that an access goes to.
pub fn pointer(f: &mut FunctionText<'_>, inst: &Inst, space: Space, addr: &Address) -> Result<Value, CodegenError> {
    let offset = offset_64(f, inst, space, addr)?;
    let base = match space {
        // The front end lowers generic accesses only where they are global.
        Space::Global | Space::Generic => "%global",
        Space::Shared => "%shared",
        Space::Local => "%local",
        Space::Param => "%params",
    };
    Ok(f.def(format!("getelementptr i8, ptr {base}, i64 {offset}")))
}

/// Address or offset as 64 bits; arithmetic wraps in the width of the space.
fn offset_64(f: &mut FunctionText<'_>, inst: &Inst, space: Space, addr: &Address) -> Result<Value, CodegenError> {
    let is_wide = matches!(space, Space::Global | Space::Generic);
    let reg = match &addr.base {
        AddressBase::Global(name) => {
            return Err(unsupported(
                inst,
                format!("the variable `{name}`, which has no address yet"),
            ));
        }
        AddressBase::Absolute if is_wide => return Ok(addr.offset.to_string()),
        AddressBase::Absolute => return Ok((addr.offset as u32).to_string()),
        AddressBase::Reg(reg) => *reg,
    };
    if is_wide {
        let value = if f.kernel.width(reg) == Width::W64 {
            f.read_reg(reg, Type::B64)
        } else {
            let narrow = f.read_reg(reg, Type::B32);
            f.def(format!("zext i32 {narrow} to i64"))
        };
        return Ok(if addr.offset == 0 {
            value
        } else {
            f.def(format!("add i64 {value}, {}", addr.offset))
        });
    }
    let value = f.read_reg(reg, Type::B32);
    let value = if addr.offset == 0 {
        value
    } else {
        f.def(format!("add i32 {value}, {}", addr.offset as i32))
    };
    Ok(f.def(format!("zext i32 {value} to i64")))
}

/// Writes an [`Op::AddrOf`].
pub fn address_of(
    f: &mut FunctionText<'_>,
    inst: &Inst,
    dst: RegId,
    space: Space,
    addr: &Address,
) -> Result<(), CodegenError> {
    let value = offset_64(f, inst, space, addr)?;
    f.write(dst, Type::B64, value);
    Ok(())
}

/// How LLVM writes a scalar access of this ordering: words before the type, words after the pointer.
fn atomic_words(ordering: Ordering, is_store: bool) -> Option<(&'static str, &'static str)> {
    match ordering {
        Ordering::Weak | Ordering::NonCoherent => None,
        Ordering::Volatile => Some(("atomic volatile ", " monotonic")),
        Ordering::Relaxed => Some(("atomic ", " monotonic")),
        _ if is_store => Some(("atomic ", " release")),
        _ => Some(("atomic ", " acquire")),
    }
}

/// Writes an [`Op::Load`].
pub fn load(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Load {
        space,
        ty,
        ordering,
        dsts,
        addr,
    } = &inst.op
    else {
        return Err(unsupported(inst, "a load"));
    };
    let (space, ty) = (*space, *ty);
    if ty == Type::Pred {
        return Err(unsupported(inst, "a load of a predicate"));
    }
    let (t, size) = (llvm(ty), ty.size_bytes());
    if space == Space::Param && addr.base == AddressBase::Absolute {
        // A constant place in the parameters: loaded before the first thread runs.
        for (i, dst) in (0..).zip(dsts) {
            if let Some(dst) = dst {
                let offset = addr.offset + i64::from(i * size);
                let at = f.def_once(format!("getelementptr i8, ptr %params, i64 {offset}"));
                let value = f.def_once(format!("load {t}, ptr {at}, align {size}, !invariant.load !31"));
                f.write(*dst, ty, value);
            }
        }
        return Ok(());
    }
    let at = pointer(f, inst, space, addr)?;
    let scopes = scopes(space);
    if let Some((before, after)) = atomic_words(*ordering, false) {
        for (i, dst) in (0..).zip(dsts) {
            let element = element_pointer(f, &at, i * size);
            let value = f.def(format!("load {before}{t}, ptr {element}{after}, align {size}{scopes}"));
            if let Some(dst) = dst {
                f.write(*dst, ty, value);
            }
        }
        return Ok(());
    }
    let invariant = if *ordering == Ordering::NonCoherent && space != Space::Param {
        ", !invariant.load !31"
    } else {
        ""
    };
    if let [Some(dst)] = dsts[..] {
        let value = f.def(format!("load {t}, ptr {at}, align {size}{scopes}{invariant}"));
        f.write(dst, ty, value);
        return Ok(());
    }
    let count = dsts.len();
    let all = f.def(format!(
        "load <{count} x {t}>, ptr {at}, align {}{scopes}{invariant}",
        size as usize * count.next_power_of_two()
    ));
    for (i, dst) in dsts.iter().enumerate() {
        if let Some(dst) = dst {
            let value = f.def(format!("extractelement <{count} x {t}> {all}, i32 {i}"));
            f.write(*dst, ty, value);
        }
    }
    Ok(())
}

/// Writes an [`Op::Store`].
pub fn store(f: &mut FunctionText<'_>, inst: &Inst) -> Result<(), CodegenError> {
    let Op::Store {
        space,
        ty,
        ordering,
        addr,
        srcs,
    } = &inst.op
    else {
        return Err(unsupported(inst, "a store"));
    };
    let (space, ty) = (*space, *ty);
    if ty == Type::Pred || space == Space::Param {
        return Err(unsupported(inst, "a store of a predicate or to parameters"));
    }
    let (t, size) = (llvm(ty), ty.size_bytes());
    let at = pointer(f, inst, space, addr)?;
    let scopes = scopes(space);
    let values: Vec<Value> = srcs.iter().map(|s| f.read(*s, ty)).collect();
    if let Some((before, after)) = atomic_words(*ordering, true) {
        for (i, value) in (0..).zip(&values) {
            let element = element_pointer(f, &at, i * size);
            f.put(format!(
                "store {before}{t} {value}, ptr {element}{after}, align {size}{scopes}"
            ));
        }
        return Ok(());
    }
    if let [value] = &values[..] {
        f.put(format!("store {t} {value}, ptr {at}, align {size}{scopes}"));
        return Ok(());
    }
    let count = values.len();
    let mut all = "poison".to_owned();
    for (i, value) in values.iter().enumerate() {
        all = f.def(format!("insertelement <{count} x {t}> {all}, {t} {value}, i32 {i}"));
    }
    f.put(format!(
        "store <{count} x {t}> {all}, ptr {at}, align {}{scopes}",
        size as usize * count.next_power_of_two()
    ));
    Ok(())
}

fn element_pointer(f: &mut FunctionText<'_>, first: &str, offset: u32) -> Value {
    if offset == 0 {
        first.to_owned()
    } else {
        f.def(format!("getelementptr i8, ptr {first}, i64 {offset}"))
    }
}
