//! One instruction of hetIR as statements of C, by family.

mod alu;
mod atomic;
mod compare;
mod convert;
mod float;
mod memory;
mod special;

use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::types::Type;

use super::writer::Writer;
use super::{Error, names};

pub(super) use float::is_nearest_quotient_or_root;

impl Writer<'_> {
    /// Writes one instruction, under its guard.
    pub(super) fn inst(&mut self, inst: &Inst) -> Result<(), Error> {
        let start = self.num_lines();
        self.unguarded(&inst.op)?;
        if let Some(guard) = inst.guard {
            let condition = self.condition(guard);
            self.guard_lines(start, &condition);
        }
        Ok(())
    }

    fn unguarded(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Alu {
                op,
                ty,
                mods,
                dst,
                srcs,
            } if ty.is_float() => self.float_alu(*op, *ty, *mods, *dst, srcs)?,
            Op::Alu {
                op,
                ty,
                mods,
                dst,
                srcs,
            } => self.integer_alu(*op, *ty, *mods, *dst, srcs)?,
            Op::Mov { ty, dst, src } => {
                let src = self.bits(*ty, *src);
                self.assign(*dst, src);
            }
            Op::Pack { ty, dst, srcs } => {
                let part = self.part_type(*ty, srcs.len())?;
                let whole = names::unsigned(ty.size_bytes());
                let bits = 8 * part.size_bytes();
                let parts: Vec<String> = (0u32..)
                    .zip(srcs)
                    .map(|(i, &src)| format!("({whole}){} << {}", self.bits(part, src), bits * i))
                    .collect();
                self.assign(*dst, parts.join(" | "));
            }
            Op::Unpack { ty, dsts, src } => {
                let part = self.part_type(*ty, dsts.len())?;
                let bits = 8 * part.size_bytes();
                let whole = names::unsigned(ty.size_bytes());
                let mut lines = vec![format!("const {whole} whole = {};", self.bits(*ty, *src))];
                for (i, dst) in (0u32..).zip(dsts) {
                    if let Some(dst) = dst {
                        let value = format!("({})(whole >> {})", names::unsigned(part.size_bytes()), bits * i);
                        lines.push(self.assignment(*dst, value));
                    }
                }
                self.scope(&lines);
            }
            Op::AddrOf { dst, addr, .. } => {
                let address = self.address(addr)?;
                self.assign(*dst, address);
            }
            Op::ReadSpecial { dst, special } => self.read_special(*dst, *special),
            Op::Setp { .. } | Op::Set { .. } | Op::Selp { .. } => self.compare(op)?,
            Op::Cvt {
                dst_ty,
                src_ty,
                mods,
                dst,
                src,
            } => self.convert((*dst_ty, *src_ty), *mods, *dst, *src)?,
            Op::Load { .. } | Op::Store { .. } | Op::Membar { .. } => self.memory(op)?,
            Op::Atom { .. } => self.atomic(op)?,
            // OpenCL C has no way to wait.
            Op::Nanosleep { .. } => {}
            // After the probe pass they stand alone, in blocks that regions end at.
            Op::Warp { .. } => return Err(self.malformed("warp-level operation")),
            Op::Opaque { text, .. } => return Err(self.no_form(format!("`{text}`"))),
        }
        Ok(())
    }

    /// Type of the parts when `ty` is cut in `count`.
    fn part_type(&self, ty: Type, count: usize) -> Result<Type, Error> {
        let count = u32::try_from(count).ok().filter(|&c| c > 0);
        match count.map(|c| ty.size_bytes() / c) {
            Some(1) => Ok(Type::B8),
            Some(2) => Ok(Type::B16),
            Some(4) => Ok(Type::B32),
            Some(8) => Ok(Type::B64),
            _ => Err(self.malformed("mov of a vector")),
        }
    }
}
