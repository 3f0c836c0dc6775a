//! Declarations of variables and parameters (PTX ISA, "Variables") and their initialisers.

use super::{Parsed, Parser};
use crate::ast::{DeclSpace, Init, Variable};
use crate::token::Token;

/// Deepest nesting of braces in an initialiser.
const MAX_DEPTH: u32 = 16;

/// What stands before a variable's name.
struct Prefix<'a> {
    space: DeclSpace,
    ty: &'a str,
    vector: u64,
    align: Option<u64>,
    is_managed: bool,
}

impl<'a> Parser<'a> {
    /// `.space .align n .type name[dims] = init, name…` without the `;`.
    pub(super) fn variables(&mut self, is_extern: bool, all: &mut Vec<Variable<'a>>) -> Parsed<()> {
        let prefix = self.prefix()?;
        all.push(self.declarator(&prefix, is_extern)?);
        while self.eat(b',') {
            all.push(self.declarator(&prefix, is_extern)?);
        }
        Ok(())
    }

    /// One parameter of a function.
    pub(super) fn parameter(&mut self) -> Parsed<Variable<'a>> {
        let prefix = self.prefix()?;
        self.declarator(&prefix, false)
    }

    fn prefix(&mut self) -> Parsed<Prefix<'a>> {
        let space = match self.token {
            Token::Dot("global") => DeclSpace::Global,
            Token::Dot("const") => DeclSpace::Const,
            Token::Dot("shared" | "shared::cta") => DeclSpace::Shared,
            Token::Dot("local") => DeclSpace::Local,
            Token::Dot("param") => DeclSpace::Param,
            _ => {
                let error = self.error("a state space");
                self.name_ahead();
                return error;
            }
        };
        self.advance();
        let mut prefix = Prefix {
            space,
            ty: "",
            vector: 1,
            align: None,
            is_managed: false,
        };
        while let Token::Dot(word) = self.token {
            self.advance();
            match word {
                "align" => prefix.align = Some(self.int("an alignment")?),
                "v2" => prefix.vector = 2,
                "v4" => prefix.vector = 4,
                // `.ptr .global .align 16` after a parameter's type says what it points to, not where it lies.
                "ptr" => self.pointer_attributes()?,
                "attribute" => prefix.is_managed |= self.attribute()?,
                _ if prefix.ty.is_empty() => prefix.ty = word,
                _ => {
                    let error = self.error("a type and no more");
                    self.name_ahead();
                    return error;
                }
            }
        }
        if prefix.ty.is_empty() {
            return self.error("a type");
        }
        Ok(prefix)
    }

    /// Notes the name of a declaration that cannot be read up to it.
    fn name_ahead(&mut self) {
        while let Token::Dot(_) | Token::Int(_) = self.token {
            self.advance();
        }
        if let Token::Ident(name) = self.token {
            self.declared = Some(name);
        }
    }

    fn pointer_attributes(&mut self) -> Parsed<()> {
        while let Token::Dot(word) = self.token {
            self.advance();
            if word == "align" {
                self.int("an alignment")?;
            }
        }
        Ok(())
    }

    /// `.attribute(.managed)`, `.attribute(.unified(a, b))`; true for the former.
    fn attribute(&mut self) -> Parsed<bool> {
        let (mut depth, mut is_managed) = (0u32, false);
        loop {
            match self.token {
                Token::Punct(b'(') => depth += 1,
                Token::Punct(b')') => depth = depth.saturating_sub(1),
                Token::Dot(_) | Token::Int(_) | Token::Unsigned(_) | Token::Ident(_) | Token::Punct(b',') => {}
                _ => return self.error("`)`"),
            }
            is_managed |= matches!(self.token, Token::Dot("managed"));
            self.advance();
            if depth == 0 {
                return Ok(is_managed);
            }
        }
    }

    fn declarator(&mut self, prefix: &Prefix<'a>, is_extern: bool) -> Parsed<Variable<'a>> {
        let line = self.line;
        let name = self.ident("a variable's name")?;
        self.declared = Some(name);
        let mut dims = Vec::new();
        while self.eat(b'[') {
            if self.eat(b']') {
                dims.push(None);
                continue;
            }
            dims.push(Some(self.constant_offset()?.cast_unsigned()));
            self.expect(b']', "`]`")?;
        }
        let init = if self.eat(b'=') {
            Some(self.initialiser(0)?)
        } else {
            None
        };
        let &Prefix {
            space,
            ty,
            vector,
            align,
            is_managed,
        } = prefix;
        Ok(Variable {
            line,
            name,
            space,
            ty,
            vector,
            align,
            dims,
            init,
            is_extern,
            is_managed,
        })
    }

    fn initialiser(&mut self, depth: u32) -> Parsed<Init<'a>> {
        if depth > MAX_DEPTH {
            return self.error("an initialiser nested less deeply");
        }
        if self.eat(b'{') {
            let mut list = Vec::new();
            while !self.eat(b'}') {
                list.push(self.initialiser(depth + 1)?);
                if !self.at(b'}') {
                    self.expect(b',', "`,` or `}`")?;
                }
            }
            return Ok(Init::List(list));
        }
        if let (Token::Int(mask) | Token::Unsigned(mask), Token::Punct(b'(')) = (self.token, self.next.0) {
            self.advance();
            self.advance();
            let address = self.symbol_address(Some(mask))?;
            self.expect(b')', "`)`")?;
            return Ok(address);
        }
        if self.at_constant() {
            Ok(Init::Value(self.constant()?))
        } else {
            self.symbol_address(None)
        }
    }

    /// `name`, `generic(name)`, each perhaps `+ addend`.
    fn symbol_address(&mut self, mask: Option<u64>) -> Parsed<Init<'a>> {
        let mut name = self.ident("a constant or a symbol")?;
        if name == "generic" && self.eat(b'(') {
            name = self.ident("a symbol")?;
            self.expect(b')', "`)`")?;
        }
        let addend = match self.token {
            Token::Punct(b'+') => {
                self.advance();
                self.constant_offset()?
            }
            Token::Punct(b'-') => self.constant_offset()?,
            _ => 0,
        };
        Ok(Init::Address { name, addend, mask })
    }
}
