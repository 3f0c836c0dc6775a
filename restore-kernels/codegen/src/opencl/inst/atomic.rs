//! Atomics (PTX ISA, "atom"; OpenCL C 1.2, section 6.12.11; cl_khr_int64_base_atomics and its extended sibling).

use hetckpt_ir::inst::{AtomOp, Op, Ordering};
use hetckpt_ir::types::{Space, Type};

use super::super::Error;
use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes an atomic read-modify-write; nothing for other instructions.
    pub(super) fn atomic(&mut self, inst: &Op) -> Result<(), Error> {
        let Op::Atom {
            op,
            space,
            ty,
            ordering,
            dst,
            addr,
            srcs,
            ..
        } = inst
        else {
            return Ok(());
        };
        let number = if ty.is_signed() { "" } else { "u" };
        let element = match ty.size_bytes() {
            2 => format!("{number}short"),
            4 => format!("{number}int"),
            8 => format!("{number}long"),
            _ => return Err(self.no_form(format!("atom.{}", ty.name()))),
        };
        let (mut function, is_helper) = self.function(*op, *ty, *space)?;
        let (segment, place) = match space {
            Space::Global | Space::Generic => ("global", "GLOBAL"),
            Space::Shared => ("local", "SHARED"),
            Space::Param | Space::Local => return Err(self.malformed("atomic")),
        };
        // The functions of our own take bits.
        let element = if is_helper {
            element.trim_start_matches('u')
        } else {
            &element
        };
        let element = if is_helper {
            format!("u{element}")
        } else {
            element.to_owned()
        };
        if is_helper {
            function = format!("{function}_{segment}");
        }
        let address = self.address(addr)?;
        let mut arguments = vec![format!("(volatile __{segment} {element} *)&{place}(u8, {address})")];
        for &src in srcs {
            arguments.push(if is_helper {
                self.bits(*ty, src)
            } else {
                self.number(*ty, src)
            });
        }
        let is_ordered = matches!(ordering, Ordering::Acquire | Ordering::Release | Ordering::AcqRel);
        if is_ordered {
            self.line("device_fence();");
        }
        let call = format!("{function}({})", arguments.join(", "));
        match dst {
            Some(dst) => self.assign(*dst, call),
            None => self.line(format_args!("{call};")),
        }
        if is_ordered {
            self.line("device_fence();");
        }
        Ok(())
    }

    /// The function, and whether it is one of ours.
    fn function(&self, op: AtomOp, ty: Type, space: Space) -> Result<(String, bool), Error> {
        let is_wide = ty.size_bytes() == 8;
        let family = if is_wide { "atom" } else { "atomic" };
        let bits = 8 * ty.size_bytes();
        let sign = if ty.is_signed() { "s" } else { "u" };
        let native_if_extended = |name: &str, helper: String| {
            if !is_wide || self.options.has_int64_extended_atomics {
                (format!("{family}_{name}"), false)
            } else {
                (helper, true)
            }
        };
        Ok(match op {
            // Subnormal numbers become zero, but in shared memory.
            AtomOp::Add if ty == Type::F32 && space != Space::Shared => ("ptx_atom_add_ftz_f32".to_owned(), true),
            AtomOp::Add if ty == Type::F32 || ty == Type::F64 => (format!("ptx_atom_add_{}", ty.name()), true),
            _ if ty.is_float() && !matches!(op, AtomOp::Exch | AtomOp::Cas) => {
                return Err(self.no_form(format!("atom of {} other than add", ty.name())));
            }
            AtomOp::Add => (format!("{family}_add"), false),
            AtomOp::Cas if bits == 16 => ("ptx_atom_cas_b16".to_owned(), true),
            _ if bits == 16 => return Err(self.no_form(format!("atom of {} other than cas", ty.name()))),
            AtomOp::Exch => (format!("{family}_xchg"), false),
            AtomOp::Cas => (format!("{family}_cmpxchg"), false),
            AtomOp::Min => native_if_extended("min", format!("ptx_atom_min_{sign}{bits}")),
            AtomOp::Max => native_if_extended("max", format!("ptx_atom_max_{sign}{bits}")),
            AtomOp::And => native_if_extended("and", "ptx_atom_and_b64".to_owned()),
            AtomOp::Or => native_if_extended("or", "ptx_atom_or_b64".to_owned()),
            AtomOp::Xor => native_if_extended("xor", "ptx_atom_xor_b64".to_owned()),
            AtomOp::Inc if !is_wide => ("ptx_atom_inc_u32".to_owned(), true),
            AtomOp::Dec if !is_wide => ("ptx_atom_dec_u32".to_owned(), true),
            AtomOp::Inc | AtomOp::Dec => return Err(self.malformed("atomic")),
        })
    }
}
