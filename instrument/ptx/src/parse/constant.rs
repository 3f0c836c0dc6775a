//! Constant expressions (PTX ISA, "Constant Expressions").

use super::{Parsed, Parser};
use crate::ast::Const;
use crate::token::Token;

/// Deepest nesting of parentheses and signs.
const MAX_DEPTH: u32 = 32;

impl Parser<'_> {
    /// True if the token can start a constant.
    pub(super) fn at_constant(&self) -> bool {
        matches!(
            self.token,
            Token::Int(_) | Token::F32(_) | Token::F64(_) | Token::Punct(b'-' | b'~' | b'(')
        )
    }

    /// A constant expression.
    pub(super) fn constant(&mut self) -> Parsed<Const> {
        self.binary(0, 0)
    }

    /// A constant integer, signed.
    pub(super) fn constant_offset(&mut self) -> Parsed<i64> {
        match self.constant()? {
            Const::Int(value) => Ok(value.cast_signed()),
            Const::F32(_) | Const::F64(_) => self.error("an integer"),
        }
    }

    fn binary(&mut self, min_level: u32, depth: u32) -> Parsed<Const> {
        let mut left = self.unary(depth)?;
        while let Some((operator, level)) = self.operator() {
            if level < min_level {
                break;
            }
            self.advance();
            if matches!(operator, b'<' | b'>') {
                self.advance();
            }
            let right = self.binary(level + 1, depth + 1)?;
            left = match (left, right) {
                (Const::Int(a), Const::Int(b)) => match apply(operator, a, b) {
                    Some(value) => Const::Int(value),
                    None => return self.error("a divisor that is not zero"),
                },
                _ => return self.error("integers around the operator"),
            };
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(u8, u32)> {
        let Token::Punct(punct) = self.token else { return None };
        let level = match punct {
            b'|' => 0,
            b'^' => 1,
            b'&' => 2,
            b'<' | b'>' if self.next.0 == Token::Punct(punct) => 3,
            b'+' | b'-' => 4,
            b'*' | b'/' | b'%' => 5,
            _ => return None,
        };
        Some((punct, level))
    }

    fn unary(&mut self, depth: u32) -> Parsed<Const> {
        if depth > MAX_DEPTH {
            return self.error("a constant nested less deeply");
        }
        match self.token {
            Token::Int(value) => {
                self.advance();
                Ok(Const::Int(value))
            }
            Token::F32(bits) => {
                self.advance();
                Ok(Const::F32(bits))
            }
            Token::F64(bits) => {
                self.advance();
                Ok(Const::F64(bits))
            }
            Token::Punct(b'-') => {
                self.advance();
                Ok(match self.unary(depth + 1)? {
                    Const::Int(value) => Const::Int(value.wrapping_neg()),
                    Const::F32(bits) => Const::F32(bits ^ (1 << 31)),
                    Const::F64(bits) => Const::F64(bits ^ (1 << 63)),
                })
            }
            Token::Punct(b'~') => {
                self.advance();
                match self.unary(depth + 1)? {
                    Const::Int(value) => Ok(Const::Int(!value)),
                    Const::F32(_) | Const::F64(_) => self.error("an integer"),
                }
            }
            Token::Punct(b'(') => self.parenthesised(depth),
            _ => self.error("a constant"),
        }
    }

    /// `(expression)`, or the casts `(.s64)` and `(.u64)`.
    fn parenthesised(&mut self, depth: u32) -> Parsed<Const> {
        self.advance();
        if let Token::Dot("s64" | "u64") = self.token {
            self.advance();
            self.expect(b')', "`)`")?;
            return self.unary(depth + 1);
        }
        let value = self.binary(0, depth + 1)?;
        self.expect(b')', "`)`")?;
        Ok(value)
    }
}

fn apply(operator: u8, a: u64, b: u64) -> Option<u64> {
    let shift = |b: u64| u32::try_from(b).unwrap_or(u32::MAX);
    Some(match operator {
        b'|' => a | b,
        b'^' => a ^ b,
        b'&' => a & b,
        b'<' => a.checked_shl(shift(b)).unwrap_or(0),
        b'>' => a.checked_shr(shift(b)).unwrap_or(0),
        b'+' => a.wrapping_add(b),
        b'-' => a.wrapping_sub(b),
        b'*' => a.wrapping_mul(b),
        b'/' => a.cast_signed().checked_div(b.cast_signed())?.cast_unsigned(),
        _ => a.cast_signed().checked_rem(b.cast_signed())?.cast_unsigned(),
    })
}
