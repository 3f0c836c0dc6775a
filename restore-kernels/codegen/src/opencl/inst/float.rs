//! Floating-point arithmetic (PTX ISA, "Floating-Point Instructions", "Half Precision Floating-Point Instructions").
//!
//! Rounding to nearest is C's own. OpenCL C has no other for arithmetic, so the rest is computed in `double` with the
//! error of its rounding and rounded once more; for `f64`, operands are scaled, so that this error is always a
//! `double`. Halves are computed in `float`, or, where rounding twice shows, in `double`. `.ftz` and `.sat` are written
//! out, so they hold on devices that keep subnormal numbers; what is not a number is one, but its payload is the
//! device's. `.approx` functions are C's but for a few operands: most are more exact, while quotients and roots, unless
//! the program has others that must be exact, are off by up to 2.5 and 3 units in the last place where PTX allows 2 and
//! 1.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, Modifiers, Op, Operand, Rounding};
use hetckpt_ir::types::Type;

use super::super::Error;
use super::super::names;
use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes an arithmetic instruction on floating-point numbers.
    pub(super) fn float_alu(
        &mut self,
        op: AluOp,
        ty: Type,
        mods: Modifiers,
        dst: RegId,
        srcs: &[Operand],
    ) -> Result<(), Error> {
        let part = match ty {
            Type::F16x2 => Type::F16,
            Type::Bf16x2 => Type::Bf16,
            _ => {
                let srcs: Vec<String> = srcs.iter().map(|&s| self.float_bits(ty, mods.ftz, s)).collect();
                let value = self.scalar(op, ty, mods, &srcs)?;
                self.assign(dst, value);
                return Ok(());
            }
        };
        let half = |shift: u32| {
            let of = |&s: &Operand| {
                flushed(
                    part,
                    mods.ftz,
                    format!("(ushort)({} >> {shift})", self.bits(Type::B32, s)),
                )
            };
            let srcs: Vec<String> = srcs.iter().map(of).collect();
            self.scalar(op, part, mods, &srcs)
        };
        let value = format!("(uint)({}) << 16 | (uint)({})", half(16)?, half(0)?);
        self.assign(dst, value);
        Ok(())
    }

    /// Bits of an operand after `.ftz`.
    fn float_bits(&self, ty: Type, ftz: bool, operand: Operand) -> String {
        flushed(ty, ftz, self.bits(ty, operand))
    }

    /// An operand as a `float` or a `double`.
    pub(super) fn float_operand(&self, ty: Type, ftz: bool, operand: Operand) -> Result<String, Error> {
        match (ty, operand) {
            (Type::F32, Operand::Imm(bits)) if !ftz => Ok(names::float_constant(bits)),
            (Type::F64, Operand::Imm(bits)) if !ftz => Ok(names::double_constant(bits)),
            _ => number(ty, &self.float_bits(ty, ftz, operand)).ok_or_else(|| self.malformed("floating-point operand")),
        }
    }

    /// The bits of a scalar result from the bits of its operands.
    fn scalar(&self, op: AluOp, ty: Type, mods: Modifiers, srcs: &[String]) -> Result<String, Error> {
        let malformed = || self.malformed("floating-point instruction");
        let bits = |i: usize| srcs.get(i).ok_or_else(malformed);
        let name = ty.name();
        let result = match op {
            AluOp::Abs if ty == Type::F64 => return Ok(format!("{} & 0x7ffffffffffffffful", bits(0)?)),
            AluOp::Abs => return Ok(format!("ptx_abs_{name}({})", bits(0)?)),
            AluOp::Neg => return Ok(format!("ptx_neg_{name}({})", bits(0)?)),
            AluOp::Copysign => return self.copysign(ty, bits(0)?, bits(1)?),
            AluOp::Min => format!("ptx_min_{name}({}, {})", bits(0)?, bits(1)?),
            AluOp::Max => format!("ptx_max_{name}({}, {})", bits(0)?, bits(1)?),
            _ => {
                let x: Option<Vec<String>> = srcs.iter().map(|s| number(ty, s)).collect();
                let x = x.ok_or_else(malformed)?;
                let rounding = self.mode(mods.rounding)?;
                let is_exact = matches!(
                    op,
                    AluOp::Add
                        | AluOp::Sub
                        | AluOp::Mul
                        | AluOp::Fma
                        | AluOp::Mad
                        | AluOp::Div
                        | AluOp::Rcp
                        | AluOp::Sqrt
                );
                let rounds_twice = ty == Type::Bf16 || (ty == Type::F16 && matches!(op, AluOp::Fma | AluOp::Mad));
                let result = if is_exact && (rounding != 0 || rounds_twice) {
                    inexact(op, &x, ty).map(|value| format!("ptx_round_{name}({value}, {rounding})"))
                } else {
                    let value = approximate(op, &x, ty, mods).or_else(|| nearest(op, &x, ty));
                    value.map(|value| match ty {
                        Type::F64 => format!("as_ulong({value})"),
                        Type::F32 => format!("as_uint({value})"),
                        _ => format!("ptx_{name}_from_f32({value})"),
                    })
                };
                flushed(ty, mods.ftz, result.ok_or_else(malformed)?)
            }
        };
        Ok(if mods.sat {
            format!("ptx_sat_{name}({result})")
        } else {
            result
        })
    }

    fn copysign(&self, ty: Type, sign: &str, magnitude: &str) -> Result<String, Error> {
        match ty {
            Type::F32 => Ok(format!("({magnitude} & 0x7fffffffu) | ({sign} & 0x80000000u)")),
            Type::F64 => Ok(format!(
                "({magnitude} & 0x7ffffffffffffffful) | ({sign} & 0x8000000000000000ul)"
            )),
            _ => Err(self.malformed("copysign")),
        }
    }

    /// Number of a rounding as `helpers/float.cl` counts them.
    pub(super) fn mode(&self, rounding: Option<Rounding>) -> Result<u32, Error> {
        match rounding {
            None | Some(Rounding::Rn | Rounding::Rni) => Ok(0),
            Some(Rounding::Rz | Rounding::Rzi) => Ok(1),
            Some(Rounding::Rm | Rounding::Rmi) => Ok(2),
            Some(Rounding::Rp | Rounding::Rpi) => Ok(3),
            Some(Rounding::Rna) => Err(self.no_form(".rna")),
        }
    }
}

/// True for quotients and roots of `f32` that are C's, and must be the nearest numbers.
pub(in super::super) const fn is_nearest_quotient_or_root(inst: &Op) -> bool {
    matches!(
        inst,
        Op::Alu {
            op: AluOp::Div | AluOp::Rcp | AluOp::Sqrt,
            ty: Type::F32,
            mods: Modifiers {
                rounding: None | Some(Rounding::Rn),
                approx: false,
                full: false,
                ..
            },
            ..
        }
    )
}

/// Bits with subnormal numbers made zero, for types that have `.ftz`.
pub(super) fn flushed(ty: Type, ftz: bool, bits: String) -> String {
    match ty {
        Type::F16 | Type::F32 | Type::F64 if ftz => format!("ptx_ftz_{}({bits})", ty.name()),
        _ => bits,
    }
}

/// Bits as a `float` or, for `f64`, a `double`; `None` for packed types.
pub(super) fn number(ty: Type, bits: &str) -> Option<String> {
    match ty {
        Type::F64 => Some(format!("as_double({bits})")),
        Type::F32 => Some(format!("as_float({bits})")),
        Type::F16 => Some(format!("ptx_f32_from_f16({bits})")),
        Type::Bf16 => Some(format!("ptx_f32_from_bf16({bits})")),
        _ => None,
    }
}

/// A result rounded as C does; `None` if the operation is not one on floating-point numbers.
fn nearest(op: AluOp, x: &[String], ty: Type) -> Option<String> {
    let one = if ty == Type::F64 { "1.0" } else { "1.0f" };
    let x = |i: usize| x.get(i);
    Some(match op {
        AluOp::Add => format!("{} + {}", x(0)?, x(1)?),
        AluOp::Sub => format!("{} - {}", x(0)?, x(1)?),
        AluOp::Mul => format!("{} * {}", x(0)?, x(1)?),
        AluOp::Fma | AluOp::Mad => format!("fma({}, {}, {})", x(0)?, x(1)?, x(2)?),
        AluOp::Div => format!("{} / {}", x(0)?, x(1)?),
        AluOp::Rcp => format!("{one} / {}", x(0)?),
        AluOp::Sqrt => format!("sqrt({})", x(0)?),
        AluOp::Rsqrt => format!("rsqrt({})", x(0)?),
        AluOp::Sin => format!("sin({})", x(0)?),
        AluOp::Cos => format!("cos({})", x(0)?),
        AluOp::Lg2 => format!("log2({})", x(0)?),
        AluOp::Ex2 => format!("exp2({})", x(0)?),
        AluOp::Tanh => format!("tanh({})", x(0)?),
        _ => return None,
    })
}

/// What `.approx` gives where PTX, or what all of NVIDIA's devices do, is simply something else than the function's
/// value, and where drivers are known to be wrong; `None` for the rest.
fn approximate(op: AluOp, x: &[String], ty: Type, mods: Modifiers) -> Option<String> {
    let x = |i: usize| x.get(i);
    Some(match (op, ty) {
        (AluOp::Tanh, Type::F32 | Type::F16 | Type::Bf16) => format!("ptx_tanh({})", x(0)?),
        (AluOp::Sin, Type::F32) => format!("ptx_sin_approx({})", x(0)?),
        (AluOp::Cos, Type::F32) => format!("ptx_cos_approx({})", x(0)?),
        (AluOp::Div, Type::F32) if mods.approx => format!("ptx_div_approx({}, {})", x(0)?, x(1)?),
        _ => return None,
    })
}

/// A result with its rounding error.
fn inexact(op: AluOp, x: &[String], ty: Type) -> Option<String> {
    let x = |i: usize| x.get(i);
    let kind = if ty == Type::F64 { "f64" } else { "exact" };
    Some(match op {
        AluOp::Add => format!("ptx_add_{kind}({}, {})", x(0)?, x(1)?),
        // By the sign's bit: of `-x` as an argument Intel's compiler gives the error the wrong sign.
        AluOp::Sub if ty == Type::F64 => {
            format!("ptx_add_f64({}, as_double(ptx_neg_f64(as_ulong({}))))", x(0)?, x(1)?)
        }
        AluOp::Sub => format!("ptx_add_{kind}({}, -{})", x(0)?, x(1)?),
        AluOp::Mul => format!("ptx_mul_{kind}({}, {})", x(0)?, x(1)?),
        AluOp::Fma | AluOp::Mad => format!("ptx_fma_{kind}({}, {}, {})", x(0)?, x(1)?, x(2)?),
        AluOp::Div => format!("ptx_div_{kind}({}, {})", x(0)?, x(1)?),
        AluOp::Rcp => format!("ptx_div_{kind}(1.0, {})", x(0)?),
        AluOp::Sqrt => format!("ptx_sqrt_{kind}({})", x(0)?),
        _ => return None,
    })
}
