//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions").

use hetckpt_ir::inst::{BoolOp, Comparison, Op, Operand};
use hetckpt_ir::types::Type;

use super::super::Error;
use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes `setp`, `set` or `selp`; nothing for other instructions.
    pub(super) fn compare(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Setp {
                cmp,
                ty,
                ftz,
                dst,
                dst_not,
                a,
                b,
                combine,
            } => {
                let holds = self.comparison(*cmp, *ty, *ftz, [*a, *b])?;
                let with = |holds: &str| match combine {
                    None => holds.to_owned(),
                    Some((op, pred, negated)) => {
                        let pred = format!("{}{}", if *negated { "!" } else { "" }, self.reg(*pred));
                        match op {
                            BoolOp::And => format!("{holds} && {pred}"),
                            BoolOp::Or => format!("{holds} || {pred}"),
                            BoolOp::Xor => format!("{holds} != ({pred})"),
                        }
                    }
                };
                match dst_not {
                    None if combine.is_none() => self.assign(*dst, holds),
                    None => {
                        let value = with(&format!("({holds})"));
                        self.assign(*dst, value);
                    }
                    Some(not) => {
                        let lines = [
                            format!("const bool holds = {holds};"),
                            format!("const bool first = {};", with("holds")),
                            self.assignment(*not, with("(!holds)")),
                            self.assignment(*dst, "first"),
                        ];
                        self.scope(&lines);
                    }
                }
            }
            Op::Set {
                cmp,
                dst_ty,
                ty,
                ftz,
                dst,
                a,
                b,
            } => {
                let holds = self.comparison(*cmp, *ty, *ftz, [*a, *b])?;
                let yes = if *dst_ty == Type::F32 {
                    "0x3f800000u"
                } else {
                    "0xffffffffu"
                };
                self.assign(*dst, format_args!("({holds}) ? {yes} : 0u"));
            }
            Op::Selp { ty, dst, a, b, pred } => {
                let (a, b, pred) = (self.bits(*ty, *a), self.bits(*ty, *b), self.reg(*pred));
                self.assign(*dst, format_args!("{pred} ? {a} : {b}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn comparison(&self, cmp: Comparison, ty: Type, ftz: bool, operands: [Operand; 2]) -> Result<String, Error> {
        use Comparison as C;
        if ty.is_float() {
            let [a, b] = operands.map(|o| self.float_operand(ty, ftz, o));
            let (a, b) = (a?, b?);
            return Ok(match cmp {
                C::Eq => format!("{a} == {b}"),
                C::Ne => format!("islessgreater({a}, {b})"),
                C::Lt | C::Lo => format!("{a} < {b}"),
                C::Le | C::Ls => format!("{a} <= {b}"),
                C::Gt | C::Hi => format!("{a} > {b}"),
                C::Ge | C::Hs => format!("{a} >= {b}"),
                C::Equ => format!("!islessgreater({a}, {b})"),
                C::Neu => format!("{a} != {b}"),
                C::Ltu => format!("!({a} >= {b})"),
                C::Leu => format!("!({a} > {b})"),
                C::Gtu => format!("!({a} <= {b})"),
                C::Geu => format!("!({a} < {b})"),
                C::Num => format!("isordered({a}, {b})"),
                C::Nan => format!("isunordered({a}, {b})"),
            });
        }
        let sign = match (cmp, cmp_symbol(cmp)) {
            (_, None) => return Err(self.malformed("comparison of integers")),
            (C::Lo | C::Ls | C::Hi | C::Hs, Some(symbol)) => (true, symbol),
            (_, Some(symbol)) => (false, symbol),
        };
        let ty = match (sign.0, ty) {
            (true, Type::S8) => Type::U8,
            (true, Type::S16) => Type::U16,
            (true, Type::S32) => Type::U32,
            (true, Type::S64) => Type::U64,
            (_, ty) => ty,
        };
        let [a, b] = operands.map(|o| {
            if ty == Type::Pred {
                self.bits(ty, o)
            } else {
                self.number(ty, o)
            }
        });
        Ok(format!("{a} {} {b}", sign.1))
    }
}

const fn cmp_symbol(cmp: Comparison) -> Option<&'static str> {
    use Comparison as C;
    match cmp {
        C::Eq | C::Equ => Some("=="),
        C::Ne | C::Neu => Some("!="),
        C::Lt | C::Lo | C::Ltu => Some("<"),
        C::Le | C::Ls | C::Leu => Some("<="),
        C::Gt | C::Hi | C::Gtu => Some(">"),
        C::Ge | C::Hs | C::Geu => Some(">="),
        C::Num | C::Nan => None,
    }
}
