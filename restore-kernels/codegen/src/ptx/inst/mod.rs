//! One instruction of hetIR as one of PTX, by family.

mod alu;
mod compare;
mod memory;
mod warp;

use hetckpt_ir::inst::{Inst, Modifiers, Op, Operand, Rounding, SpecialReg};
use hetckpt_ir::types::{Type, Width};

use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// Writes one instruction of basic block `id`.
    pub(super) fn inst(&mut self, inst: &Inst) -> Result<(), Error> {
        let guard = self.guard(inst.guard);
        match &inst.op {
            Op::Alu {
                op,
                ty,
                mods,
                dst,
                srcs,
            } => self.alu(&guard, *op, *ty, *mods, *dst, srcs)?,
            Op::Mov { ty, dst, src } => {
                let (dst, src) = (self.reg(*dst), self.operand(*ty, *src));
                self.line(format_args!("{guard}mov.{} {dst}, {src}", ty.name()));
            }
            Op::Pack { ty, dst, srcs } => {
                let part = part_type(*ty, srcs.len()).ok_or_else(|| self.malformed("mov of a vector"))?;
                let parts: Vec<String> = srcs.iter().map(|&s| self.part(part, s)).collect();
                let dst = self.reg(*dst);
                self.line(format_args!("{guard}mov.{} {dst}, {{{}}}", ty.name(), parts.join(", ")));
            }
            Op::Unpack { ty, dsts, src } => {
                let dsts = self.destinations(dsts);
                let src = self.operand(*ty, *src);
                self.line(format_args!("{guard}mov.{} {{{dsts}}}, {src}", ty.name()));
            }
            Op::AddrOf { dst, space, addr } => self.address_of(&guard, *dst, *space, addr)?,
            Op::ReadSpecial { dst, special } => self.read_special(&guard, *dst, *special),
            Op::Setp { .. } | Op::Set { .. } | Op::Selp { .. } => self.compare(&guard, &inst.op),
            Op::Cvt {
                dst_ty,
                src_ty,
                mods,
                dst,
                src,
            } => {
                let (dst, src) = (self.reg(*dst), self.operand(*src_ty, *src));
                let mods = modifiers(*mods);
                self.line(format_args!(
                    "{guard}cvt{mods}.{}.{} {dst}, {src}",
                    dst_ty.name(),
                    src_ty.name()
                ));
            }
            Op::Load { .. } | Op::Store { .. } | Op::Atom { .. } | Op::Membar { .. } => {
                self.memory(&guard, &inst.op)?
            }
            Op::Nanosleep { duration } => {
                let duration = self.operand(Type::U32, *duration);
                self.line(format_args!("{guard}nanosleep.u32 {duration}"));
            }
            Op::Warp { .. } => self.warp(&guard, &inst.op)?,
            Op::Opaque { text, uses, defs } => {
                // The longest number first, so that `$1` does not take the head of `$12`.
                let registers: Vec<String> = defs.iter().chain(uses).map(|&r| self.reg(r)).collect();
                let mut text = text.trim_end_matches(';').to_owned();
                for (i, name) in registers.iter().enumerate().rev() {
                    text = text.replace(&format!("${i}"), name);
                }
                self.line(format_args!("{guard}{text}"));
            }
        }
        Ok(())
    }

    /// A part of a vector `mov`, which takes registers only.
    fn part(&mut self, ty: Type, part: Operand) -> String {
        match part {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Imm(bits) => {
                let width = match ty.size_bytes() {
                    1 | 2 => Width::W16,
                    4 => Width::W32,
                    _ => Width::W64,
                };
                let reg = self.scratch(width);
                self.line(format_args!("mov.{} {reg}, 0x{bits:X}", names::width_type(width)));
                reg
            }
        }
    }

    /// `%r1, _, %r3`.
    fn destinations(&self, dsts: &[Option<hetckpt_ir::entity::RegId>]) -> String {
        let names: Vec<String> = dsts
            .iter()
            .map(|d| d.map_or_else(|| "_".into(), |r| self.reg(r)))
            .collect();
        names.join(", ")
    }

    fn read_special(&mut self, guard: &str, dst: hetckpt_ir::entity::RegId, special: SpecialReg) {
        let is_wide = self.kernel.width(dst) == Width::W64;
        let dst = self.reg(dst);
        if special == SpecialReg::DynamicSmemSize && self.kernel.shared.static_bytes > 0 {
            let all = self.scratch(Width::W32);
            self.line(format_args!("mov.u32 {all}, %dynamic_smem_size"));
            self.line(format_args!(
                "{guard}sub.s32 {dst}, {all}, {}",
                self.kernel.shared.static_bytes
            ));
            return;
        }
        let source = match special {
            SpecialReg::Ctaid(a) if self.facts.block_list => Self::block_index(a).to_owned(),
            SpecialReg::Nctaid(a) if self.facts.block_list => Self::grid_extent(a).to_owned(),
            other => names::special(other),
        };
        self.line(format_args!(
            "{guard}mov.{} {dst}, {source}",
            if is_wide { "u64" } else { "u32" }
        ));
    }
}

/// Type of the parts when `ty` is cut in `count`.
fn part_type(ty: Type, count: usize) -> Option<Type> {
    let count = u32::try_from(count).ok().filter(|&c| c > 0)?;
    match ty.size_bytes() / count {
        1 => Some(Type::B8),
        2 => Some(Type::B16),
        4 => Some(Type::B32),
        _ => None,
    }
}

/// `.approx.rn.ftz.sat`, as far as they are there.
fn modifiers(mods: Modifiers) -> String {
    let mut text = String::new();
    if mods.approx {
        text.push_str(".approx");
    }
    if mods.full {
        text.push_str(".full");
    }
    if let Some(rounding) = mods.rounding {
        text.push_str(match rounding {
            Rounding::Rn => ".rn",
            Rounding::Rz => ".rz",
            Rounding::Rm => ".rm",
            Rounding::Rp => ".rp",
            Rounding::Rni => ".rni",
            Rounding::Rzi => ".rzi",
            Rounding::Rmi => ".rmi",
            Rounding::Rpi => ".rpi",
            Rounding::Rna => ".rna",
        });
    }
    if mods.ftz {
        text.push_str(".ftz");
    }
    if mods.sat {
        text.push_str(".sat");
    }
    text
}
