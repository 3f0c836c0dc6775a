//! Prints what instructions, terminators and declarations have in common: operands, guards and quoted strings.

use std::fmt::Write;

use crate::inst::{Guard, Operand};

/// `%r1` or `!%r1`.
pub(super) struct GuardText(pub Guard);

impl std::fmt::Display for GuardText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.0.negated { "!" } else { "" }, self.0.pred)
    }
}

/// `%r1`, `12` or `0x3f800000`.
pub(super) struct OperandText(pub Operand);

impl std::fmt::Display for OperandText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Operand::Reg(r) => write!(f, "{r}"),
            Operand::Imm(bits) if bits < 0x10000 => write!(f, "{bits}"),
            Operand::Imm(bits) => write!(f, "{bits:#x}"),
        }
    }
}

/// A quoted string: printable ASCII as it is, all else as `\u{…}`.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(c),
            _ => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}
