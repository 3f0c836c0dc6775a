//! Addresses, loads and stores (PTX ISA, "Data Movement and Conversion Instructions").
//!
//! Device addresses are added to the context's `global` pointer, offsets to the block's or thread's segment. The state
//! spaces are disjoint, which alias scopes tell LLVM; parameters and `.nc` loads never change while a kernel runs.
//!
//! Vectors of up to 16 bytes are *one* access, as on GPUs: kernels pack a state and its value into one, and read both
//! without a lock. Where another thread can see them, that is, in global memory or where an ordering is asked for, they
//! are LLVM's atomic accesses to an integer of their size, weak ones of the ordering `unordered`. Plain vector accesses
//! will not do: LLVM makes scalar ones of them where that is cheaper. `unordered` costs nothing: loads become the same
//! `mov` or `vmovaps`, and loops with vectors in them are not vectorised over threads in either way.
//!
//! 16 bytes are an aligned `vmovaps`, which is atomic on every processor with AVX (Intel SDM 3A, "Guaranteed Atomic
//! Operations"; AMD APM 2, "Access Atomicity"), or `cmpxchg16b` on one without: LLVM chooses by the host's features.
//! (On one that has neither, none of the last twenty years, it calls a function that is not there, and the kernel
//! cannot be loaded.) Rejected: always `cmpxchg16b`, which is far slower and writes where a kernel only reads. Longer
//! vectors are pieces of 16 bytes, which is what GPUs make of them too.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, Inst, Op, Ordering};
use hetckpt_ir::types::{Space, Type, Width};

use super::unsupported;
use crate::emit::function::{FunctionText, Value};
use crate::emit::types::{int, int_of_bits, llvm};
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
    let access = Access::new(space, ty, *ordering, false, dsts.len());
    let invariant = if *ordering == Ordering::NonCoherent && space != Space::Param {
        ", !invariant.load !31"
    } else {
        ""
    };
    for (piece, dsts) in (0..).zip(dsts.chunks(access.piece_len)) {
        let from = element_pointer(f, &at, piece * access.piece_bytes());
        let value = f.def(format!(
            "load {}{}, ptr {from}{}, align {}{scopes}{invariant}",
            access.before,
            access.loaded(),
            access.after,
            access.align_bytes
        ));
        let value = f.cast_bits(value, &access.loaded(), &access.vector());
        for (i, dst) in dsts.iter().enumerate() {
            let Some(dst) = dst else { continue };
            let part = if access.piece_len == 1 {
                value.clone()
            } else {
                f.def(format!("extractelement {} {value}, i32 {i}", access.vector()))
            };
            let part = f.cast_bits(part, access.element, llvm(ty));
            f.write(*dst, ty, part);
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
    let at = pointer(f, inst, space, addr)?;
    let scopes = scopes(space);
    let values: Vec<Value> = srcs.iter().map(|s| f.read_bits(*s, ty)).collect();
    let access = Access::new(space, ty, *ordering, true, values.len());
    for (piece, values) in (0..).zip(values.chunks(access.piece_len)) {
        let to = element_pointer(f, &at, piece * access.piece_bytes());
        let mut all = "poison".to_owned();
        for (i, value) in values.iter().enumerate() {
            let value = f.cast_bits(value.clone(), llvm(ty), access.element);
            all = if access.piece_len == 1 {
                value
            } else {
                f.def(format!(
                    "insertelement {} {all}, {} {value}, i32 {i}",
                    access.vector(),
                    access.element
                ))
            };
        }
        let all = f.cast_bits(all, &access.vector(), &access.loaded());
        f.put(format!(
            "store {}{} {all}, ptr {to}{}, align {}{scopes}",
            access.before,
            access.loaded(),
            access.after,
            access.align_bytes
        ));
    }
    Ok(())
}

/// The longest access that is one on every processor.
const MAX_WHOLE_BYTES: u32 = 16;

/// How LLVM writes a load or store, piece by piece.
struct Access {
    /// Elements in a piece.
    piece_len: usize,
    element: &'static str,
    element_bytes: u32,
    align_bytes: u32,
    /// Words before the type and after the pointer.
    before: &'static str,
    after: &'static str,
}

impl Access {
    fn new(space: Space, ty: Type, ordering: Ordering, is_store: bool, count: usize) -> Self {
        let size = ty.size_bytes();
        let is_weak = matches!(ordering, Ordering::Weak | Ordering::NonCoherent);
        // A block's threads run on one processor, so nobody sees in between what is done to its own memory.
        let is_seen = matches!(space, Space::Global | Space::Generic) && ordering != Ordering::NonCoherent;
        let words = match atomic_words(ordering, is_store) {
            None if count > 1 && is_seen => Some(("atomic ", " unordered")),
            words => words,
        };
        let longest = (MAX_WHOLE_BYTES / size) as usize;
        let all = size * u32::try_from(count.next_power_of_two()).unwrap_or(1);
        let piece_len = count.min(if is_weak && !is_seen { count } else { longest });
        let (before, after) = words.unwrap_or_default();
        Self {
            piece_len,
            // No vectors of pairs of halves.
            element: if llvm(ty).starts_with('<') { int(ty) } else { llvm(ty) },
            element_bytes: size,
            align_bytes: if piece_len == count {
                all
            } else {
                all.min(MAX_WHOLE_BYTES)
            },
            before,
            after,
        }
    }

    fn piece_bytes(&self) -> u32 {
        self.element_bytes * u32::try_from(self.piece_len).unwrap_or(1)
    }

    /// The piece as LLVM's vector.
    fn vector(&self) -> String {
        match self.piece_len {
            1 => self.element.to_owned(),
            n => format!("<{n} x {}>", self.element),
        }
    }

    /// The piece as it is accessed: atomic vectors as integers.
    fn loaded(&self) -> String {
        if self.piece_len > 1 && !self.before.is_empty() {
            int_of_bits(8 * self.piece_bytes()).to_owned()
        } else {
            self.vector()
        }
    }
}

fn element_pointer(f: &mut FunctionText<'_>, first: &str, offset: u32) -> Value {
    if offset == 0 {
        first.to_owned()
    } else {
        f.def(format!("getelementptr i8, ptr {first}, i64 {offset}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type and the ordering of each piece of a load.
    fn pieces(space: Space, ty: Type, ordering: Ordering, count: usize) -> (usize, String) {
        let access = Access::new(space, ty, ordering, false, count);
        let text = format!(
            "{}{}{}, align {}",
            access.before,
            access.loaded(),
            access.after,
            access.align_bytes
        );
        (count / access.piece_len, text)
    }

    #[test]
    fn vectors_that_others_see_are_one_access() {
        let one = |text: &str| (1, text.to_owned());
        let (weak, relaxed) = (Ordering::Weak, Ordering::Relaxed);
        assert_eq!(
            pieces(Space::Global, Type::U32, weak, 2),
            one("atomic i64 unordered, align 8")
        );
        assert_eq!(
            pieces(Space::Global, Type::F32, weak, 4),
            one("atomic i128 unordered, align 16")
        );
        assert_eq!(
            pieces(Space::Global, Type::U8, relaxed, 4),
            one("atomic i32 monotonic, align 4")
        );
        assert_eq!(
            pieces(Space::Generic, Type::U64, Ordering::Acquire, 2),
            one("atomic i128 acquire, align 16")
        );
        assert_eq!(
            pieces(Space::Shared, Type::F16x2, Ordering::Volatile, 4),
            one("atomic volatile i128 monotonic, align 16")
        );
        assert_eq!(
            pieces(Space::Global, Type::F64, relaxed, 4),
            (2, "atomic i128 monotonic, align 16".to_owned())
        );
    }

    #[test]
    fn what_nobody_sees_in_between_is_left_to_llvm() {
        let text = |space, ty, ordering, count| pieces(space, ty, ordering, count).1;
        assert_eq!(text(Space::Global, Type::F32, Ordering::Weak, 1), "float, align 4");
        assert_eq!(
            text(Space::Local, Type::F32, Ordering::Weak, 4),
            "<4 x float>, align 16"
        );
        assert_eq!(
            text(Space::Global, Type::F64, Ordering::NonCoherent, 4),
            "<4 x double>, align 32"
        );
    }
}
