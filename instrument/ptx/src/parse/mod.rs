//! Tokens to AST. Recovers at `;` in bodies and at the next declaration outside, so that all errors are found at once.
//! If a declaration at the top level cannot be read but its name can, only kernels that use that name fail.

mod constant;
mod variable;
mod function;
mod instruction;

use crate::ast::{Broken, Module};
use crate::error::SyntaxError;
use crate::token::{Lexer, Token};

/// Syntax errors kept per function or module: later ones are mostly echoes.
const MAX_ERRORS: usize = 32;

/// Parses a text; what is wrong lies in the result's error lists.
pub(crate) fn parse_module(text: &str) -> Module<'_> {
    let mut parser = Parser::new(text);
    let mut module = Module::default();
    while parser.token != Token::End {
        if let Err(error) = parser.item(&mut module) {
            if module.errors.len() < MAX_ERRORS {
                module.errors.push(error);
            }
            parser.skip_to_item();
        }
    }
    module
}

pub(crate) type Parsed<T> = Result<T, SyntaxError>;

/// Two tokens of look-ahead over the text.
pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    line: u32,
    next: (Token<'a>, u32),
    /// What the declaration being read declares, once that is known.
    declared: Option<&'a str>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let (token, line) = lexer.next();
        let next = lexer.next();
        Self {
            lexer,
            token,
            line,
            next,
            declared: None,
        }
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.token;
        (self.token, self.line) = self.next;
        self.next = self.lexer.next();
        token
    }

    fn error<T>(&self, expected: &'static str) -> Parsed<T> {
        Err(SyntaxError {
            line: self.line,
            expected,
            found: self.token.describe(),
        })
    }

    fn at(&self, punct: u8) -> bool {
        self.token == Token::Punct(punct)
    }

    fn eat(&mut self, punct: u8) -> bool {
        let found = self.at(punct);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, punct: u8, expected: &'static str) -> Parsed<()> {
        if self.eat(punct) { Ok(()) } else { self.error(expected) }
    }

    fn ident(&mut self, expected: &'static str) -> Parsed<&'a str> {
        if let Token::Ident(name) = self.token {
            self.advance();
            Ok(name)
        } else {
            self.error(expected)
        }
    }

    fn dot(&mut self, expected: &'static str) -> Parsed<&'a str> {
        if let Token::Dot(name) = self.token {
            self.advance();
            Ok(name)
        } else {
            self.error(expected)
        }
    }

    fn int(&mut self, expected: &'static str) -> Parsed<u64> {
        if let Token::Int(value) | Token::Unsigned(value) = self.token {
            self.advance();
            Ok(value)
        } else {
            self.error(expected)
        }
    }

    /// Skips the tokens left on `line`: for directives that end with their line.
    fn skip_line(&mut self, line: u32) {
        while self.line == line && self.token != Token::End {
            self.advance();
        }
    }

    /// Skips `{ … }`, nested ones included; false if the text ends before.
    fn skip_braces(&mut self) -> bool {
        let mut depth = 0u32;
        while self.token != Token::End {
            match self.advance() {
                Token::Punct(b'{') => depth = depth.saturating_add(1),
                Token::Punct(b'}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Skips to the next token that can start a module-level declaration; at least one token.
    fn skip_to_item(&mut self) {
        self.advance();
        loop {
            match self.token {
                Token::End => return,
                Token::Punct(b'{') => {
                    self.skip_braces();
                }
                Token::Dot(
                    "entry" | "func" | "global" | "const" | "visible" | "extern" | "weak" | "file" | "section",
                ) => return,
                _ => {
                    self.advance();
                }
            }
        }
    }

    /// PTX ISA, "Directives".
    fn item(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let line = self.line;
        let Token::Dot(directive) = self.token else {
            return self.error("a directive");
        };
        match directive {
            "version" => {
                self.advance();
                match self.token {
                    Token::F64(_) | Token::Int(_) => self.advance(),
                    _ => return self.error("a version number"),
                };
            }
            "target" => {
                self.advance();
                self.ident("a target")?;
                while self.eat(b',') {
                    self.ident("a target")?;
                }
            }
            "address_size" => {
                self.advance();
                module.address_size = Some((self.int("32 or 64")?, line));
            }
            "file" | "loc" => self.skip_line(line),
            "section" => {
                self.skip_braces();
            }
            "pragma" | "alias" => self.skip_statement(),
            _ => self.declaration(module)?,
        }
        Ok(())
    }

    /// Skips past the next `;`, but not past a brace.
    fn skip_statement(&mut self) {
        loop {
            match self.token {
                Token::End | Token::Punct(b'{' | b'}') => return,
                Token::Punct(b';') => {
                    self.advance();
                    return;
                }
                _ => {
                    self.advance();
                }
            }
        }
    }

    /// A variable or function with its linkage.
    fn declaration(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let mut is_extern = false;
        while let Token::Dot(linkage @ ("visible" | "extern" | "weak" | "common")) = self.token {
            is_extern |= linkage == "extern";
            self.advance();
        }
        if let Token::Dot("entry" | "func") = self.token {
            return self.function(module);
        }
        self.declared = None;
        let result = self.variables(is_extern, &mut module.variables);
        let result = result.and_then(|()| self.expect(b';', "`;`"));
        match (result, self.declared) {
            (Err(error), Some(name)) if self.skip_variable() => {
                let is_entry = false;
                module.broken.push(Broken { name, is_entry, error });
                Ok(())
            }
            (result, _) => result,
        }
    }

    /// Skips to behind the `;` of a variable, or to the next declaration; false if the text ends before.
    fn skip_variable(&mut self) -> bool {
        loop {
            match self.token {
                Token::End => return false,
                Token::Punct(b'{') => {
                    self.skip_braces();
                }
                Token::Punct(b';') => {
                    self.advance();
                    return true;
                }
                Token::Dot("entry" | "func" | "visible" | "extern" | "weak" | "common" | "file" | "section") => {
                    return true;
                }
                _ => {
                    self.advance();
                }
            }
        }
    }
}
