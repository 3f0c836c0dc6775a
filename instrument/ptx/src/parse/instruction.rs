//! One instruction: guard, opcode, modifiers, operands (PTX ISA, "Instruction Statements", "Instruction Operands").

use super::{Parsed, Parser};
use crate::ast::{Instruction, Operand};
use crate::token::Token;

/// Deepest nesting of operands: a call's list may hold vectors.
const MAX_DEPTH: u32 = 3;

impl<'a> Parser<'a> {
    pub(super) fn instruction(&mut self) -> Parsed<Instruction<'a>> {
        let line = self.line;
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            guard = Some((self.ident("a predicate")?, negated));
        }
        let opcode = self.ident("an instruction")?;
        let mut modifiers = Vec::new();
        while let Token::Dot(modifier) = self.token {
            modifiers.push(modifier);
            self.advance();
        }
        let mut operands = Vec::new();
        while !self.at(b';') {
            operands.push(self.operand(opcode == "call", 0)?);
            if !self.at(b';') {
                self.expect(b',', "`,` or `;`")?;
            }
        }
        self.advance();
        Ok(Instruction {
            line,
            guard,
            opcode,
            modifiers,
            operands,
        })
    }

    fn operand(&mut self, is_call: bool, depth: u32) -> Parsed<Operand<'a>> {
        if depth > MAX_DEPTH {
            return self.error("an operand nested less deeply");
        }
        match self.token {
            Token::Punct(b'{') => {
                self.advance();
                Ok(Operand::Vector(self.operands_until(b'}', is_call, depth)?))
            }
            Token::Punct(b'(') if is_call => {
                self.advance();
                Ok(Operand::List(self.operands_until(b')', is_call, depth)?))
            }
            Token::Punct(b'[') => {
                self.advance();
                self.address(depth)
            }
            Token::Punct(b'!') if matches!(self.next.0, Token::Ident(_)) => {
                self.advance();
                Ok(Operand::Not(self.ident("a predicate")?))
            }
            Token::Ident(name) => {
                self.advance();
                self.named(name)
            }
            _ if self.at_constant() => Ok(Operand::Const(self.constant()?)),
            _ => self.error("an operand"),
        }
    }

    fn operands_until(&mut self, close: u8, is_call: bool, depth: u32) -> Parsed<Vec<Operand<'a>>> {
        let mut list = Vec::new();
        while !self.eat(close) {
            list.push(self.operand(is_call, depth + 1)?);
            if !self.at(close) {
                self.expect(b',', "`,` or a closing bracket")?;
            }
        }
        Ok(list)
    }

    fn named(&mut self, name: &'a str) -> Parsed<Operand<'a>> {
        match self.token {
            Token::Dot(component) => {
                self.advance();
                Ok(Operand::Name(name, Some(component)))
            }
            Token::Punct(b'|') => {
                self.advance();
                Ok(Operand::Pair(name, self.ident("a second result")?))
            }
            Token::Punct(b'+' | b'-') => Ok(Operand::Offset(name, self.offset()?)),
            // The first element of an array; others would have to be counted in its type.
            Token::Punct(b'[') => {
                self.advance();
                if self.token != Token::Int(0) {
                    return self.error("0, the first element");
                }
                self.advance();
                self.expect(b']', "`]`")?;
                Ok(Operand::Name(name, None))
            }
            _ => Ok(Operand::Name(name, None)),
        }
    }

    /// `+8`, `-8`, `+-8`.
    fn offset(&mut self) -> Parsed<i64> {
        self.eat(b'+');
        self.constant_offset()
    }

    /// What follows `[`.
    fn address(&mut self, depth: u32) -> Parsed<Operand<'a>> {
        let base = if let Token::Ident(name) = self.token {
            self.advance();
            Some(name)
        } else {
            None
        };
        let offset = match self.token {
            Token::Punct(b'+' | b'-') => self.offset()?,
            Token::Punct(b']' | b',') => 0,
            _ if base.is_none() => self.constant_offset()?,
            _ => return self.error("`]`"),
        };
        if self.eat(b']') {
            return Ok(Operand::Address(base, offset));
        }
        let (Some(base), 0) = (base, offset) else {
            return self.error("`]`");
        };
        let mut parts = vec![Operand::Name(base, None)];
        while !self.eat(b']') {
            self.expect(b',', "`]`")?;
            parts.push(self.operand(false, depth + 1)?);
        }
        Ok(Operand::Brackets(parts))
    }
}
