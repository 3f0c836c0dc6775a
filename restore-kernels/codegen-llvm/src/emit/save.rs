//! Where a thread stops: its registers are saved, and loaded again where it goes on.

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::types::{Type, Width};

use super::region::Region;
use super::types::int_of_bits;
use crate::error::CodegenError;

impl Region<'_> {
    pub(super) fn live_at(&self, point: ResumePointId) -> RegSet {
        self.layout.live.get(point.index()).cloned().unwrap_or_default()
    }

    /// Loads what was saved at `point` and is needed.
    pub(super) fn load_saved(&mut self, point: ResumePointId) -> Result<(), CodegenError> {
        for reg in self.live_at(point).iter() {
            if !self.touched.contains(reg) {
                continue;
            }
            let (at, width) = self.saved_register(reg, point)?;
            let raw = int_of_bits(width.size_bytes() * 8);
            let value = self
                .f
                .def(format!("load {raw}, ptr {at}, !alias.scope !11, !noalias !21"));
            let value = if width == Width::Pred {
                self.f.def(format!("trunc i8 {value} to i1"))
            } else {
                value
            };
            self.f.write(reg, bits_of(width), value);
        }
        Ok(())
    }

    /// Address of this thread's saved register.
    fn saved_register(&mut self, reg: RegId, point: ResumePointId) -> Result<(String, Width), CodegenError> {
        let column = self.layout.column(reg).ok_or_else(|| CodegenError::NotSaved {
            what: reg.to_string(),
            point,
        })?;
        let width = self.kernel.width(reg);
        let start = self.f.def_once(format!("mul i64 %num.threads64, {column}"));
        let base = self
            .f
            .def_once(format!("getelementptr inbounds i8, ptr %registers, i64 {start}"));
        let element = int_of_bits(width.size_bytes() * 8);
        Ok((
            self.f
                .def(format!("getelementptr inbounds {element}, ptr {base}, i64 %t64")),
            width,
        ))
    }

    /// Saves what is live at `point` and not saved already, and lets the thread rest there. A register has one place,
    /// wherever the thread stops.
    pub(super) fn stop_at(&mut self, point: ResumePointId) -> Result<(), CodegenError> {
        for reg in self.live_at(point).iter() {
            if self.kept.contains(reg) {
                continue;
            }
            let (at, width) = self.saved_register(reg, point)?;
            let mut value = self.f.read_reg(reg, bits_of(width));
            if width == Width::Pred {
                value = self.f.def(format!("zext i1 {value} to i8"));
            }
            let raw = int_of_bits(width.size_bytes() * 8);
            self.f
                .put(format!("store {raw} {value}, ptr {at}, !alias.scope !11, !noalias !21"));
        }
        self.rest(point.0);
        Ok(())
    }

    /// Lets the thread rest at `point`.
    pub(super) fn rest(&mut self, point: u32) {
        self.f.put(format!(
            "store i32 {point}, ptr %my.point, !alias.scope !11, !noalias !21"
        ));
        self.f.put("br label %thread.next");
    }
}

fn bits_of(width: Width) -> Type {
    match width {
        Width::Pred => Type::Pred,
        Width::W16 => Type::B16,
        Width::W32 => Type::B32,
        Width::W64 => Type::B64,
    }
}
