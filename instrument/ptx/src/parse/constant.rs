//! Constant expressions (PTX ISA, "Constant Expressions"), with the results of NVIDIA's assembler.
//!
//! Integers have 64 bits, with or without a sign: literals have one unless they do not fit or end in `U`. An operation
//! is unsigned if one of its operands is; `%` and `~` always are, comparisons and logic never. Shifts go by the low six
//! bits of their amount.

use super::{Parsed, Parser};
use crate::ast::Const;
use crate::token::Token;

/// Deepest nesting of parentheses, signs and conditions.
const MAX_DEPTH: u32 = 32;

/// A constant while it is calculated with.
#[derive(Clone, Copy)]
enum Value {
    Int { bits: u64, is_unsigned: bool },
    F32(u32),
    F64(f64),
}

impl Value {
    const fn signed(bits: u64) -> Self {
        Self::Int {
            bits,
            is_unsigned: false,
        }
    }
}

/// Binary operators.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    LogicalOr,
    LogicalAnd,
    Or,
    Xor,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    /// How strongly it binds; as in C.
    const fn level(self) -> u32 {
        match self {
            Self::LogicalOr => 0,
            Self::LogicalAnd => 1,
            Self::Or => 2,
            Self::Xor => 3,
            Self::And => 4,
            Self::Equal | Self::NotEqual => 5,
            Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual => 6,
            Self::ShiftLeft | Self::ShiftRight => 7,
            Self::Add | Self::Subtract => 8,
            Self::Multiply | Self::Divide | Self::Remainder => 9,
        }
    }
}

impl Parser<'_> {
    /// True if the token can start a constant.
    pub(super) fn at_constant(&self) -> bool {
        matches!(
            self.token,
            Token::Int(_)
                | Token::Unsigned(_)
                | Token::F32(_)
                | Token::F64(_)
                | Token::Punct(b'+' | b'-' | b'~' | b'!' | b'(')
        )
    }

    /// A constant expression.
    pub(super) fn constant(&mut self) -> Parsed<Const> {
        Ok(match self.conditional(0)? {
            Value::Int { bits, .. } => Const::Int(bits),
            Value::F32(bits) => Const::F32(bits),
            Value::F64(value) => Const::F64(value.to_bits()),
        })
    }

    /// A constant integer, signed.
    pub(super) fn constant_offset(&mut self) -> Parsed<i64> {
        match self.constant()? {
            Const::Int(value) => Ok(value.cast_signed()),
            Const::F32(_) | Const::F64(_) => self.error("an integer"),
        }
    }

    /// `a ? b : c`, or one without a condition.
    fn conditional(&mut self, depth: u32) -> Parsed<Value> {
        let condition = self.binary(0, depth)?;
        if !self.eat(b'?') {
            return Ok(condition);
        }
        let Value::Int { bits, .. } = condition else {
            return self.error("an integer before `?`");
        };
        let if_true = self.conditional(depth + 1)?;
        self.expect(b':', "`:`")?;
        let if_false = self.conditional(depth + 1)?;
        Ok(if bits == 0 { if_false } else { if_true })
    }

    fn binary(&mut self, min_level: u32, depth: u32) -> Parsed<Value> {
        let mut left = self.unary(depth)?;
        while let Some((operator, num_tokens)) = self.operator() {
            if operator.level() < min_level {
                break;
            }
            for _ in 0..num_tokens {
                self.advance();
            }
            let right = self.binary(operator.level() + 1, depth + 1)?;
            left = match apply(operator, left, right) {
                Ok(value) => value,
                Err(expected) => return self.error(expected),
            };
        }
        Ok(left)
    }

    /// The binary operator that stands here, and of how many tokens it is.
    fn operator(&self) -> Option<(Operator, u32)> {
        let Token::Punct(first) = self.token else { return None };
        let second = if let Token::Punct(c) = self.next.0 { c } else { 0 };
        let two = match (first, second) {
            (b'|', b'|') => Some(Operator::LogicalOr),
            (b'&', b'&') => Some(Operator::LogicalAnd),
            (b'=', b'=') => Some(Operator::Equal),
            (b'!', b'=') => Some(Operator::NotEqual),
            (b'<', b'=') => Some(Operator::LessEqual),
            (b'>', b'=') => Some(Operator::GreaterEqual),
            (b'<', b'<') => Some(Operator::ShiftLeft),
            (b'>', b'>') => Some(Operator::ShiftRight),
            _ => None,
        };
        if let Some(operator) = two {
            return Some((operator, 2));
        }
        let one = match first {
            b'|' => Operator::Or,
            b'^' => Operator::Xor,
            b'&' => Operator::And,
            b'<' => Operator::Less,
            b'>' => Operator::Greater,
            b'+' => Operator::Add,
            b'-' => Operator::Subtract,
            b'*' => Operator::Multiply,
            b'/' => Operator::Divide,
            b'%' => Operator::Remainder,
            _ => return None,
        };
        Some((one, 1))
    }

    fn unary(&mut self, depth: u32) -> Parsed<Value> {
        if depth > MAX_DEPTH {
            return self.error("a constant nested less deeply");
        }
        let token = self.token;
        if let Token::Punct(b'(') = token {
            return self.parenthesised(depth);
        }
        if let Token::Int(_)
        | Token::Unsigned(_)
        | Token::F32(_)
        | Token::F64(_)
        | Token::Punct(b'+' | b'-' | b'~' | b'!') = token
        {
            self.advance();
        }
        match token {
            Token::Int(bits) => Ok(Value::Int {
                bits,
                is_unsigned: i64::try_from(bits).is_err(),
            }),
            Token::Unsigned(bits) => Ok(Value::Int {
                bits,
                is_unsigned: true,
            }),
            Token::F32(bits) => Ok(Value::F32(bits)),
            Token::F64(bits) => Ok(Value::F64(f64::from_bits(bits))),
            Token::Punct(b'+') => self.unary(depth + 1),
            Token::Punct(b'-') => Ok(match self.unary(depth + 1)? {
                Value::Int { bits, is_unsigned } => Value::Int {
                    bits: bits.wrapping_neg(),
                    is_unsigned,
                },
                Value::F32(bits) => Value::F32(bits ^ (1 << 31)),
                Value::F64(value) => Value::F64(-value),
            }),
            Token::Punct(b'~') => Ok(Value::Int {
                bits: !self.integer(depth)?,
                is_unsigned: true,
            }),
            Token::Punct(b'!') => Ok(Value::signed(u64::from(self.integer(depth)? == 0))),
            _ => self.error("a constant"),
        }
    }

    fn integer(&mut self, depth: u32) -> Parsed<u64> {
        match self.unary(depth + 1)? {
            Value::Int { bits, .. } => Ok(bits),
            Value::F32(_) | Value::F64(_) => self.error("an integer"),
        }
    }

    /// `(expression)`, or the casts `(.s64)` and `(.u64)`.
    fn parenthesised(&mut self, depth: u32) -> Parsed<Value> {
        self.advance();
        if let Token::Dot(ty @ ("s64" | "u64")) = self.token {
            self.advance();
            self.expect(b')', "`)`")?;
            let bits = self.integer(depth)?;
            return Ok(Value::Int {
                bits,
                is_unsigned: ty == "u64",
            });
        }
        let value = self.conditional(depth + 1)?;
        self.expect(b')', "`)`")?;
        Ok(value)
    }
}

/// The result, or what the operands should be.
fn apply(operator: Operator, a: Value, b: Value) -> Result<Value, &'static str> {
    match (a, b) {
        (
            Value::Int {
                bits: a,
                is_unsigned: a_unsigned,
            },
            Value::Int {
                bits: b,
                is_unsigned: b_unsigned,
            },
        ) => integers(operator, (a, a_unsigned), (b, b_unsigned)),
        (Value::F64(a), Value::F64(b)) => doubles(operator, a, b),
        _ => Err("two integers or two doubles around the operator"),
    }
}

fn integers(
    operator: Operator,
    (a, a_unsigned): (u64, bool),
    (b, b_unsigned): (u64, bool),
) -> Result<Value, &'static str> {
    use Operator as O;
    const DIVISOR: &str = "a divisor that is not zero";
    let is_unsigned = a_unsigned || b_unsigned;
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    let order = if is_unsigned {
        a.cmp(&b)
    } else {
        signed_a.cmp(&signed_b)
    };
    let claim = |holds: bool| Ok(Value::signed(u64::from(holds)));
    let amount = (b & 63) as u32;
    let bits = match operator {
        O::LogicalOr => return claim(a != 0 || b != 0),
        O::LogicalAnd => return claim(a != 0 && b != 0),
        O::Equal => return claim(a == b),
        O::NotEqual => return claim(a != b),
        O::Less => return claim(order.is_lt()),
        O::LessEqual => return claim(order.is_le()),
        O::Greater => return claim(order.is_gt()),
        O::GreaterEqual => return claim(order.is_ge()),
        O::ShiftLeft | O::ShiftRight => {
            let bits = match operator {
                O::ShiftLeft => a << amount,
                _ if a_unsigned => a >> amount,
                _ => (signed_a >> amount).cast_unsigned(),
            };
            return Ok(Value::Int {
                bits,
                is_unsigned: a_unsigned,
            });
        }
        O::Remainder => return a.checked_rem(b).map(Value::signed).ok_or(DIVISOR),
        O::Divide if b == 0 => return Err(DIVISOR),
        O::Divide if is_unsigned => a / b,
        O::Divide => signed_a.wrapping_div(signed_b).cast_unsigned(),
        O::Or => a | b,
        O::Xor => a ^ b,
        O::And => a & b,
        O::Add => a.wrapping_add(b),
        O::Subtract => a.wrapping_sub(b),
        O::Multiply => a.wrapping_mul(b),
    };
    Ok(Value::Int { bits, is_unsigned })
}

fn doubles(operator: Operator, a: f64, b: f64) -> Result<Value, &'static str> {
    use Operator as O;
    let claim = |holds: bool| Ok(Value::signed(u64::from(holds)));
    #[allow(clippy::float_cmp, reason = "PTX compares them so")]
    let is_equal = a == b;
    match operator {
        O::Add => Ok(Value::F64(a + b)),
        O::Subtract => Ok(Value::F64(a - b)),
        O::Multiply => Ok(Value::F64(a * b)),
        O::Divide if b == 0.0 => Err("a divisor that is not zero"),
        O::Divide => Ok(Value::F64(a / b)),
        O::Equal => claim(is_equal),
        O::NotEqual => claim(!is_equal),
        O::Less => claim(a < b),
        O::LessEqual => claim(a <= b),
        O::Greater => claim(a > b),
        O::GreaterEqual => claim(a >= b),
        _ => Err("integers around the operator"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;

    fn value(text: &str) -> Const {
        Parser::new(text).constant().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// What NVIDIA's assembler (13.0) puts into a `.u64` with this initialiser.
    #[test]
    fn integers_are_the_assemblers() {
        for (text, expected) in [
            ("5 > 3", 1),
            ("-1 > 3", 0),
            ("-1 > 3U", 1),
            ("0xffffffffffffffff > 3", 1),
            ("(.s64)0xffffffffffffffff > 3", 0),
            ("~5 > 3", 1),
            ("(-1 | 0) > 3", 0),
            ("-1 >> 1", u64::MAX),
            ("~5 >> 1", 0x7fff_ffff_ffff_fffd),
            ("0x8000000000000000 >> 1", 1 << 62),
            ("1 << 64", 1),
            ("1 << 70", 64),
            ("1 << -1", 1 << 63),
            ("-7 / 2", 3u64.wrapping_neg()),
            ("-7 / 2U", 0x7fff_ffff_ffff_fffc),
            ("-7 % 3", 0),
            ("-9223372036854775808 / -1", 0),
            ("1 ? 5 : 6", 5),
            ("1 ? 0 ? 1 : 2 : 3", 2),
            ("0 ? 1 : 0 ? 2 : 3", 3),
            ("(1 ? -1 : 1U) > 3", 0),
            ("!5", 0),
            ("!!5", 1),
            ("!0", 1),
            ("+5", 5),
            ("1 || 0 && 0", 1),
            ("1 < 2 == 1", 1),
            ("3 >= 4", 0),
            ("1 | 2 ^ 3 & 4", 3),
            ("2 + 3 * 4", 14),
            ("2.5 > 1.5", 1),
            ("2 != 2", 0),
        ] {
            assert_eq!(value(text), Const::Int(expected), "{text}");
        }
    }

    #[test]
    fn doubles_are_calculated_with() {
        assert_eq!(value("1.5 + 2.5"), Const::F64(4.0f64.to_bits()));
        assert_eq!(value("1.5 - 0d3FF0000000000000"), Const::F64(0.5f64.to_bits()));
        assert_eq!(value("0 ? 1.5 : -2.5"), Const::F64((-2.5f64).to_bits()));
    }

    #[test]
    fn what_has_no_value_is_an_error() {
        for text in [
            "5 / 0",
            "5 % 0",
            "1.0 / 0.0",
            "1 + 1.5",
            "2.5 ? 1 : 2",
            "!2.5",
            "1 ? 2",
            "0f3F800000 + 1.0",
        ] {
            assert!(Parser::new(text).constant().is_err(), "{text}");
        }
        let chain = "1 ? 1 : ".repeat(100_000);
        assert!(Parser::new(&format!("{chain}1")).constant().is_err());
    }
}
