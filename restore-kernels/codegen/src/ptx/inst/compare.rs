//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions").

use hetckpt_ir::inst::{BoolOp, Comparison, Op};

use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes `setp`, `set` or `selp`; nothing for other instructions.
    pub(super) fn compare(&mut self, guard: &str, op: &Op) {
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
                let (a, b) = (self.operand(*ty, *a), self.operand(*ty, *b));
                let mut dst = self.reg(*dst);
                if let Some(not) = dst_not {
                    dst = format!("{dst}|{}", self.reg(*not));
                }
                let (combine_op, combine_src) = match combine {
                    None => ("", String::new()),
                    Some((op, pred, negated)) => (
                        bool_op(*op),
                        format!(", {}{}", if *negated { "!" } else { "" }, self.reg(*pred)),
                    ),
                };
                let ftz = if *ftz { ".ftz" } else { "" };
                let cmp = comparison(*cmp);
                self.line(format_args!(
                    "{guard}setp.{cmp}{combine_op}{ftz}.{} {dst}, {a}, {b}{combine_src}",
                    ty.name()
                ));
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
                let (a, b) = (self.operand(*ty, *a), self.operand(*ty, *b));
                let ftz = if *ftz { ".ftz" } else { "" };
                let (cmp, dst) = (comparison(*cmp), self.reg(*dst));
                self.line(format_args!(
                    "{guard}set.{cmp}{ftz}.{}.{} {dst}, {a}, {b}",
                    dst_ty.name(),
                    ty.name()
                ));
            }
            Op::Selp { ty, dst, a, b, pred } => {
                let (a, b) = (self.operand(*ty, *a), self.operand(*ty, *b));
                let (dst, pred) = (self.reg(*dst), self.reg(*pred));
                self.line(format_args!("{guard}selp.{} {dst}, {a}, {b}, {pred}", ty.name()));
            }
            _ => {}
        }
    }
}

const fn bool_op(op: BoolOp) -> &'static str {
    match op {
        BoolOp::And => ".and",
        BoolOp::Or => ".or",
        BoolOp::Xor => ".xor",
    }
}

const fn comparison(cmp: Comparison) -> &'static str {
    match cmp {
        Comparison::Eq => "eq",
        Comparison::Ne => "ne",
        Comparison::Lt => "lt",
        Comparison::Le => "le",
        Comparison::Gt => "gt",
        Comparison::Ge => "ge",
        Comparison::Lo => "lo",
        Comparison::Ls => "ls",
        Comparison::Hi => "hi",
        Comparison::Hs => "hs",
        Comparison::Equ => "equ",
        Comparison::Neu => "neu",
        Comparison::Ltu => "ltu",
        Comparison::Leu => "leu",
        Comparison::Gtu => "gtu",
        Comparison::Geu => "geu",
        Comparison::Num => "num",
        Comparison::Nan => "nan",
    }
}
