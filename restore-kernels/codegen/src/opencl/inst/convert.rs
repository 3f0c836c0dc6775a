//! Conversions (PTX ISA, "cvt"; OpenCL C 1.2, section 6.2.3).

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Modifiers, Operand, Rounding};
use hetckpt_ir::types::Type;

use super::super::writer::Writer;
use super::super::{Error, names};
use super::float::flushed;

impl Writer<'_> {
    /// Writes a conversion. A register wider than the type takes the type's sign.
    pub(super) fn convert(
        &mut self,
        (to, from): (Type, Type),
        mods: Modifiers,
        dst: RegId,
        src: Operand,
    ) -> Result<(), Error> {
        if mods.rounding == Some(Rounding::Rna) || [to, from].iter().any(|ty| is_packed(*ty)) {
            return Err(self.no_form(format!("cvt.{}.{}", to.name(), from.name())));
        }
        match (to.is_float(), from.is_float()) {
            (false, false) => {
                let src = self.number(from, src);
                let value = if mods.sat {
                    format!("convert_{}_sat({src})", names::integer(to))
                } else {
                    format!("({})({src})", names::integer(to))
                };
                self.assign(dst, value);
            }
            (false, true) => self.float_to_integer((to, from), mods, dst, src)?,
            (true, false) => {
                let value = self.integer_to_float((to, from), mods, src)?;
                self.assign(dst, saturated(to, mods.sat, value));
            }
            (true, true) => {
                let value = self.float_to_float((to, from), mods, src)?;
                let value = if to == Type::F32 {
                    flushed(to, mods.ftz, value)
                } else {
                    value
                };
                self.assign(dst, saturated(to, mods.sat, value));
            }
        }
        Ok(())
    }

    /// Beyond the range the nearest number of it; what is not a number is 0 or the number with only the highest bit.
    fn float_to_integer(
        &mut self,
        (to, from): (Type, Type),
        mods: Modifiers,
        dst: RegId,
        src: Operand,
    ) -> Result<(), Error> {
        let number = self.float_operand(from, mods.ftz, src)?;
        let rounding = match self.mode(mods.rounding.or(Some(Rounding::Rzi)))? {
            0 => "rte",
            1 => "rtz",
            2 => "rtn",
            _ => "rtp",
        };
        let size = to.size_bytes();
        let is_zero = from != Type::F64 && size < 8;
        let nothing = match (is_zero, to.is_signed()) {
            (true, _) => "0".to_owned(),
            (false, true) => names::signed_constant(size, 1 << (8 * size - 1)),
            (false, false) => names::bits_constant(size.max(4), 1 << (8 * size - 1)),
        };
        let c = if from == Type::F64 { "double" } else { "float" };
        let value = format!(
            "isnan(x) ? {nothing} : convert_{}_sat_{rounding}(x)",
            names::integer(to)
        );
        let lines = [format!("const {c} x = {number};"), self.assignment(dst, value)];
        self.scope(&lines);
        Ok(())
    }

    fn integer_to_float(&self, (to, from): (Type, Type), mods: Modifiers, src: Operand) -> Result<String, Error> {
        let number = self.number(from, src);
        let rounding = self.mode(mods.rounding)?;
        let sign = if from.is_signed() { "signed" } else { "unsigned" };
        Ok(match (to, rounding) {
            (Type::F32, 0) => format!("as_uint(convert_float_rte({number}))"),
            (Type::F64, 0) => format!("as_ulong(convert_double_rte({number}))"),
            (Type::F64, _) => format!("ptx_from_{sign}({number}, 52, 11, {rounding})"),
            (Type::F32, _) => format!("(uint)ptx_from_{sign}({number}, 23, 8, {rounding})"),
            (Type::F16, _) => format!("(ushort)ptx_from_{sign}({number}, 10, 5, {rounding})"),
            _ => format!("(ushort)ptx_from_{sign}({number}, 7, 8, {rounding})"),
        })
    }

    fn float_to_float(&self, (to, from): (Type, Type), mods: Modifiers, src: Operand) -> Result<String, Error> {
        let mut x = self.float_operand(from, mods.ftz && from == Type::F32, src)?;
        let rounding = self.mode(mods.rounding)?;
        let is_integral = matches!(
            mods.rounding,
            Some(Rounding::Rni | Rounding::Rzi | Rounding::Rmi | Rounding::Rpi)
        );
        if is_integral {
            let function = ["rint", "trunc", "floor", "ceil"][rounding as usize % 4];
            x = format!("{function}({x})");
        }
        let is_double = from == Type::F64;
        Ok(match to {
            Type::F64 => format!("as_ulong((double){x})"),
            Type::F32 if !is_double => format!("as_uint({x})"),
            Type::F32 if rounding == 0 => format!("ptx_f32_from_f64({x})"),
            Type::F32 => format!("ptx_narrow_f64(as_ulong({x}), 23, 8, {rounding})"),
            Type::F16 if is_double => format!("(ushort)ptx_narrow_f64(as_ulong({x}), 10, 5, {rounding})"),
            Type::F16 => format!("(ushort)ptx_narrow_f32(as_uint({x}), 10, 5, {rounding})"),
            _ if is_double => format!("(ushort)ptx_narrow_f64(as_ulong({x}), 7, 8, {rounding})"),
            _ => format!("(ushort)ptx_narrow_f32(as_uint({x}), 7, 8, {rounding})"),
        })
    }
}

fn saturated(ty: Type, sat: bool, bits: String) -> String {
    if sat {
        format!("ptx_sat_{}({bits})", ty.name())
    } else {
        bits
    }
}

const fn is_packed(ty: Type) -> bool {
    matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::Pred)
}
