//! Loads, stores, fences and addresses (PTX ISA, "Data Movement and Conversion Instructions").
//!
//! Generic addresses are global ones: hetIR has shared and local addresses only where the space is known.
//! Vectors of up to 8 bytes that are volatile or have an order are one access.

use hetckpt_ir::inst::{Address, AddressBase, Op, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use super::super::writer::Writer;
use super::super::{Error, names};

impl Writer<'_> {
    /// Writes a load, store or fence; nothing for other instructions.
    pub(super) fn memory(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Load {
                space,
                ty,
                ordering,
                dsts,
                addr,
            } => {
                let whole = whole(*space, *ty, *ordering, dsts.len());
                let (place_ty, elements) = whole.map_or((*ty, dsts.len()), |whole| (whole, 1));
                let place = self.place(*space, place_ty, *ordering, elements, addr)?;
                match dsts.as_slice() {
                    [None] => {}
                    [Some(dst)] => {
                        let value = extended(*ty, &place);
                        self.assign(*dst, value);
                    }
                    _ => {
                        let read = match whole {
                            Some(whole) => names::unsigned(whole.size_bytes()).to_owned(),
                            None => vector(*ty, dsts.len()),
                        };
                        let element = |i: usize| match whole {
                            Some(_) => {
                                let part = names::unsigned(ty.size_bytes());
                                format!("({part})(v >> {})", 8 * ty.size_bytes() as usize * i)
                            }
                            None => format!("v.s{i}"),
                        };
                        let mut lines = vec![format!("const {read} v = {place};")];
                        for (i, dst) in dsts.iter().enumerate() {
                            if let Some(dst) = dst {
                                let value = extended(*ty, &element(i));
                                lines.push(self.assignment(*dst, value));
                            }
                        }
                        self.scope(&lines);
                    }
                }
                if has_order(*space) && matches!(ordering, Ordering::Acquire | Ordering::AcqRel | Ordering::Release) {
                    self.line("device_fence();");
                }
            }
            Op::Store {
                space,
                ty,
                ordering,
                addr,
                srcs,
            } => {
                if has_order(*space) && matches!(ordering, Ordering::Acquire | Ordering::AcqRel | Ordering::Release) {
                    self.line("device_fence();");
                }
                if *space == Space::Param {
                    return Err(self.malformed("store to a parameter"));
                }
                let whole = whole(*space, *ty, *ordering, srcs.len());
                let (place_ty, elements) = whole.map_or((*ty, srcs.len()), |whole| (whole, 1));
                let place = self.place(*space, place_ty, *ordering, elements, addr)?;
                let values: Vec<String> = srcs.iter().map(|&s| self.bits(*ty, s)).collect();
                match values.as_slice() {
                    [value] => self.line(format_args!("{place} = {value};")),
                    values if whole.is_some() => {
                        let parts = (0u32..).zip(values);
                        let parts = parts.map(|(i, value)| format!("(ulong){value} << {}", 8 * ty.size_bytes() * i));
                        let parts: Vec<String> = parts.collect();
                        self.line(format_args!("{place} = {};", parts.join(" | ")));
                    }
                    _ => {
                        let vector = vector(*ty, srcs.len());
                        self.line(format_args!("{place} = ({vector})({});", values.join(", ")));
                    }
                }
            }
            Op::Membar { scope: Scope::Cta } => self.line("block_fence();"),
            Op::Membar { .. } => self.line("device_fence();"),
            _ => {}
        }
        Ok(())
    }

    /// An address: base and offset, as wide as the base's register.
    pub(super) fn address(&self, addr: &Address) -> Result<String, Error> {
        match &addr.base {
            AddressBase::Reg(reg) => {
                let base = self.reg(*reg);
                let suffix = if self.kernel.width(*reg) == Width::W64 {
                    "ul"
                } else {
                    "u"
                };
                Ok(match addr.offset {
                    0 => base,
                    offset if offset < 0 => format!("{base} - {}{suffix}", offset.unsigned_abs()),
                    offset => format!("{base} + {offset}{suffix}"),
                })
            }
            AddressBase::Absolute => Ok(names::bits_constant(8, addr.offset.cast_unsigned())),
            AddressBase::Global(name) => Err(Error::UnboundGlobal {
                kernel: self.kernel.name.clone(),
                name: name.clone(),
            }),
        }
    }

    /// What an access reads or writes.
    fn place(
        &self,
        space: Space,
        ty: Type,
        ordering: Ordering,
        elements: usize,
        addr: &Address,
    ) -> Result<String, Error> {
        if !matches!(elements, 1 | 2 | 4 | 8) {
            return Err(self.malformed("vector access"));
        }
        if space == Space::Param
            && elements == 1
            && addr.base == AddressBase::Absolute
            && let Some(name) = self.whole_param(addr.offset, ty)
        {
            return Ok(name);
        }
        let address = self.address(addr)?;
        let bits = 8 * ty.size_bytes();
        let element = match elements {
            1 => format!("u{bits}"),
            n => format!("u{bits}x{n}"),
        };
        let volatile = if has_order(space) && !matches!(ordering, Ordering::Weak | Ordering::NonCoherent) {
            "volatile "
        } else {
            ""
        };
        let space = match space {
            Space::Global | Space::Generic => "GLOBAL",
            Space::Param => "PARAM",
            Space::Shared => "SHARED",
            Space::Local => "FRAME",
        };
        Ok(format!("{space}({volatile}{element}, {address})"))
    }

    /// The parameter that an access reads from its first byte to its last.
    fn whole_param(&self, offset: i64, ty: Type) -> Option<String> {
        let params = &self.kernel.params;
        let index = params
            .iter()
            .position(|p| i64::from(p.offset) == offset && p.size_bytes == ty.size_bytes())?;
        (params[index].align_bytes == params[index].size_bytes).then(|| format!("params.param_{index}"))
    }
}

/// The type as which a vector that others may look at meanwhile is read and written in one access: up to 8 bytes, the
/// widest that OpenCL C has for certain. PTX takes such a vector for one access for each element; programs count on
/// what GPUs do.
fn whole(space: Space, ty: Type, ordering: Ordering, elements: usize) -> Option<Type> {
    let is_seen = has_order(space) && !matches!(ordering, Ordering::Weak | Ordering::NonCoherent);
    let bytes = ty.size_bytes() as usize * elements;
    let whole = match bytes {
        2 => Type::B16,
        4 => Type::B32,
        8 => Type::B64,
        _ => return None,
    };
    (is_seen && elements > 1).then_some(whole)
}

/// Spaces whose accesses other threads can see.
const fn has_order(space: Space) -> bool {
    matches!(space, Space::Global | Space::Shared | Space::Generic)
}

/// An element as a number that a wider register takes with its sign.
fn extended(ty: Type, element: &str) -> String {
    if ty.is_signed() {
        format!("as_{}({element})", names::signed(ty.size_bytes()))
    } else {
        element.to_owned()
    }
}

/// The C type of a vector.
fn vector(ty: Type, elements: usize) -> String {
    format!("{}{elements}", names::unsigned(ty.size_bytes()))
}
