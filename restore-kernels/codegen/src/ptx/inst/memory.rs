//! Loads, stores, atomics, fences and addresses (PTX ISA, "Data Movement and Conversion Instructions").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AtomOp, Op, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use super::super::writer::Writer;
use super::super::{Error, names};

impl Writer<'_> {
    /// Writes a memory instruction; nothing for other instructions.
    pub(super) fn memory(&mut self, guard: &str, op: &Op) -> Result<(), Error> {
        match op {
            Op::Load {
                space,
                ty,
                ordering,
                dsts,
                addr,
            } => {
                let address = self.address(*space, addr)?;
                let vector = self.vector(dsts.len())?;
                let mut dsts_text = self.destinations(dsts);
                if dsts.len() > 1 {
                    dsts_text = format!("{{{dsts_text}}}");
                }
                let kind = load_kind(*space, *ordering);
                self.line(format_args!(
                    "{guard}ld{kind}{vector}.{} {dsts_text}, {address}",
                    ty.name()
                ));
            }
            Op::Store {
                space,
                ty,
                ordering,
                addr,
                srcs,
            } => {
                let address = self.address(*space, addr)?;
                let vector = self.vector(srcs.len())?;
                let srcs: Vec<String> = srcs.iter().map(|&s| self.operand(*ty, s)).collect();
                let srcs = if srcs.len() > 1 {
                    format!("{{{}}}", srcs.join(", "))
                } else {
                    srcs.concat()
                };
                let kind = store_kind(*space, *ordering);
                self.line(format_args!("{guard}st{kind}{vector}.{} {address}, {srcs}", ty.name()));
            }
            Op::Atom {
                op,
                space,
                ty,
                ordering,
                scope,
                dst,
                addr,
                srcs,
            } => {
                let address = self.address(*space, addr)?;
                let srcs: Vec<String> = srcs.iter().map(|&s| self.operand(*ty, s)).collect();
                let kind = format!(
                    "{}{}.{}.{}",
                    atom_order(*ordering, *scope),
                    space_suffix(*space),
                    atom_name(*op),
                    ty.name()
                );
                self.atom(guard, &kind, *op, *ty, *dst, &address, &srcs.join(", "));
            }
            Op::Membar { scope } => {
                let level = match scope {
                    Scope::Cta => "cta",
                    Scope::Gpu => "gl",
                    Scope::Sys => "sys",
                };
                self.line(format_args!("{guard}membar.{level}"));
            }
            _ => {}
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one instruction")]
    fn atom(&mut self, guard: &str, kind: &str, op: AtomOp, ty: Type, dst: Option<RegId>, addr: &str, srcs: &str) {
        match dst {
            Some(dst) => {
                let dst = self.reg(dst);
                self.line(format_args!("{guard}atom{kind} {dst}, {addr}, {srcs}"));
            }
            None if matches!(op, AtomOp::Exch | AtomOp::Cas) => {
                let unused = self.scratch(match ty.size_bytes() {
                    8 => Width::W64,
                    2 => Width::W16,
                    _ => Width::W32,
                });
                self.line(format_args!("{guard}atom{kind} {unused}, {addr}, {srcs}"));
            }
            None => self.line(format_args!("{guard}red{kind} {addr}, {srcs}")),
        }
    }

    fn vector(&self, elements: usize) -> Result<&'static str, Error> {
        match elements {
            1 => Ok(""),
            2 => Ok(".v2"),
            4 => Ok(".v4"),
            8 => Ok(".v8"),
            _ => Err(self.malformed("vector access")),
        }
    }

    /// Writes `AddrOf`.
    pub(super) fn address_of(&mut self, guard: &str, dst: RegId, space: Space, addr: &Address) -> Result<(), Error> {
        let size = names::width_type(self.kernel.width(dst));
        let dst_name = self.reg(dst);
        match &addr.base {
            AddressBase::Reg(base) => {
                let base = self.reg(*base);
                self.line(format_args!(
                    "{guard}add.s{} {dst_name}, {base}, {}",
                    &size[1..],
                    addr.offset
                ));
            }
            AddressBase::Absolute => {
                let bits = addr.offset.cast_unsigned();
                let bits = if size == "b32" { bits & 0xffff_ffff } else { bits };
                let _ = space;
                self.line(format_args!("{guard}mov.{size} {dst_name}, 0x{bits:X}"));
            }
            AddressBase::Global(name) => return Err(self.unbound(name)),
        }
        Ok(())
    }

    fn unbound(&self, name: &str) -> Error {
        Error::UnboundGlobal {
            kernel: self.kernel.name.clone(),
            name: name.to_owned(),
        }
    }

    /// The bracketed address of an access.
    fn address(&mut self, space: Space, addr: &Address) -> Result<String, Error> {
        match (space, &addr.base) {
            (_, AddressBase::Global(name)) => Err(self.unbound(name)),
            (Space::Param, AddressBase::Absolute) => self.param_address(addr.offset),
            (Space::Param, AddressBase::Reg(reg)) => {
                let base = self.wide(*reg);
                let at = self.scratch(Width::W64);
                let first = self
                    .kernel
                    .params
                    .first()
                    .ok_or_else(|| self.malformed("parameter access"))?
                    .name
                    .clone();
                self.line(format_args!("mov.u64 {at}, {first}"));
                self.line(format_args!("add.s64 {at}, {at}, {base}"));
                Ok(displaced(&at, addr.offset))
            }
            (Space::Shared, AddressBase::Absolute) => Ok(displaced("hetckpt_shared", addr.offset)),
            (Space::Shared, AddressBase::Reg(reg)) => {
                let offset = addr.offset + i64::from(self.options.shared_base);
                Ok(displaced(&self.reg(*reg), offset))
            }
            (Space::Local, AddressBase::Absolute) => Ok(displaced("hetckpt_local", addr.offset)),
            (Space::Local, AddressBase::Reg(reg)) => {
                let base = self.wide(*reg);
                let at = self.scratch(Width::W64);
                self.line(format_args!("add.s64 {at}, {base}, %local"));
                Ok(displaced(&at, addr.offset))
            }
            (Space::Global | Space::Generic, AddressBase::Absolute) => {
                let at = self.scratch(Width::W64);
                self.line(format_args!("mov.u64 {at}, 0x{:X}", addr.offset));
                Ok(format!("[{at}]"))
            }
            (Space::Global | Space::Generic, AddressBase::Reg(reg)) => {
                let base = self.wide(*reg);
                if i32::try_from(addr.offset).is_ok() {
                    return Ok(displaced(&base, addr.offset));
                }
                let at = self.scratch(Width::W64);
                self.line(format_args!("add.s64 {at}, {base}, {}", addr.offset));
                Ok(format!("[{at}]"))
            }
        }
    }

    /// A register as 64 bits, zero-extended if it is narrower.
    fn wide(&mut self, reg: RegId) -> String {
        let name = self.reg(reg);
        if self.kernel.width(reg) == Width::W64 {
            return name;
        }
        let wide = self.scratch(Width::W64);
        self.line(format_args!("cvt.u64.u32 {wide}, {name}"));
        wide
    }

    fn param_address(&self, offset: i64) -> Result<String, Error> {
        let found = self.kernel.params.iter().find(|p| {
            let first = i64::from(p.offset);
            (first..first + i64::from(p.size_bytes)).contains(&offset)
        });
        let param = found.ok_or_else(|| self.malformed("parameter access"))?;
        Ok(displaced(&param.name, offset - i64::from(param.offset)))
    }
}

/// `[base]` or `[base+4]`.
pub(in super::super) fn displaced(base: &str, offset: i64) -> String {
    if offset == 0 {
        format!("[{base}]")
    } else {
        format!("[{base}+{offset}]")
    }
}

const fn space_suffix(space: Space) -> &'static str {
    match space {
        Space::Global => ".global",
        Space::Param => ".param",
        Space::Shared => ".shared",
        Space::Local => ".local",
        Space::Generic => "",
    }
}

/// Loads and stores carry no scope in hetIR; the widest one is right for any.
fn load_kind(space: Space, ordering: Ordering) -> String {
    let suffix = space_suffix(space);
    let has_order = matches!(space, Space::Global | Space::Shared | Space::Generic);
    match ordering {
        Ordering::NonCoherent if space == Space::Global => ".global.nc".into(),
        Ordering::Volatile if has_order => format!(".volatile{suffix}"),
        Ordering::Relaxed if has_order => format!(".relaxed.sys{suffix}"),
        Ordering::Acquire | Ordering::AcqRel | Ordering::Release if has_order => format!(".acquire.sys{suffix}"),
        _ => suffix.into(),
    }
}

fn store_kind(space: Space, ordering: Ordering) -> String {
    let suffix = space_suffix(space);
    let has_order = matches!(space, Space::Global | Space::Shared | Space::Generic);
    match ordering {
        Ordering::Volatile if has_order => format!(".volatile{suffix}"),
        Ordering::Relaxed if has_order => format!(".relaxed.sys{suffix}"),
        Ordering::Release | Ordering::AcqRel | Ordering::Acquire if has_order => format!(".release.sys{suffix}"),
        _ => suffix.into(),
    }
}

/// The default, relaxed at GPU scope, is left out.
const fn atom_order(ordering: Ordering, scope: Scope) -> &'static str {
    match (ordering, scope) {
        (Ordering::Acquire, Scope::Cta) => ".acquire.cta",
        (Ordering::Acquire, Scope::Gpu) => ".acquire.gpu",
        (Ordering::Acquire, Scope::Sys) => ".acquire.sys",
        (Ordering::Release, Scope::Cta) => ".release.cta",
        (Ordering::Release, Scope::Gpu) => ".release.gpu",
        (Ordering::Release, Scope::Sys) => ".release.sys",
        (Ordering::AcqRel, Scope::Cta) => ".acq_rel.cta",
        (Ordering::AcqRel, Scope::Gpu) => ".acq_rel.gpu",
        (Ordering::AcqRel, Scope::Sys) => ".acq_rel.sys",
        (_, Scope::Gpu) => "",
        (_, Scope::Cta) => ".relaxed.cta",
        (_, Scope::Sys) => ".relaxed.sys",
    }
}

const fn atom_name(op: AtomOp) -> &'static str {
    match op {
        AtomOp::Add => "add",
        AtomOp::Min => "min",
        AtomOp::Max => "max",
        AtomOp::And => "and",
        AtomOp::Or => "or",
        AtomOp::Xor => "xor",
        AtomOp::Exch => "exch",
        AtomOp::Cas => "cas",
        AtomOp::Inc => "inc",
        AtomOp::Dec => "dec",
    }
}
