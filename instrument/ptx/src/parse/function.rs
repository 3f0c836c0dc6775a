//! `.entry` and `.func`: header, performance directives, body (PTX ISA, "Kernel and Function Directives").

use super::{MAX_ERRORS, Parsed, Parser};
use crate::ast::{Broken, Function, Module, Registers, Statement, Variable};
use crate::error::SyntaxError;
use crate::token::Token;

/// Deepest nesting of `{ }` in a body.
const MAX_SCOPES: u32 = 64;

impl<'a> Parser<'a> {
    /// A function with its linkage already read.
    pub(super) fn function(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let line = self.line;
        let is_entry = self.dot("`.entry` or `.func`")? == "entry";
        // `.attribute(.unified(…))` may stand between.
        while let Token::Dot("attribute") = self.token {
            self.advance();
            self.skip_parentheses()?;
        }
        let (mut results, mut params, mut broken) = (Vec::new(), Vec::new(), None);
        if !is_entry && self.at(b'(') {
            match self.parameters() {
                Ok(all) => results = all,
                Err(error) => broken = Some(self.skip_to_name(error)?),
            }
        }
        let name = self.ident("a function's name")?;
        if broken.is_none() && self.at(b'(') {
            match self.parameters() {
                Ok(all) => params = all,
                Err(error) => broken = Some(error),
            }
        }
        let mut function = Function {
            line,
            name,
            is_entry,
            results,
            params,
            directives: Vec::new(),
            body: None,
            text: "",
            errors: Vec::new(),
        };
        if broken.is_none() {
            self.directives(&mut function)?;
            if self.eat(b';') {
                module.functions.push(function);
                return Ok(());
            }
            match self.expect(b'{', "`{` or `;`") {
                Ok(()) => {
                    let start = self.lexer.position();
                    let body = self.body(&mut function)?;
                    function.body = Some(body);
                    // Two tokens have been read ahead; no brace is among them.
                    let text = self.lexer.text_from(start);
                    function.text = text.rfind('}').map_or("", |end| &text[..end]);
                    module.functions.push(function);
                    return Ok(());
                }
                Err(error) => broken = Some(error),
            }
        }
        if let Some(error) = broken {
            let error = self.skip_function(error)?;
            module.broken.push(Broken { name, is_entry, error });
        }
        Ok(())
    }

    fn directives(&mut self, function: &mut Function<'a>) -> Parsed<()> {
        while let Token::Dot(directive) = self.token {
            let line = self.line;
            self.advance();
            if directive == "pragma" {
                self.skip_statement();
                continue;
            }
            let numbers = self.numbers()?;
            function.directives.push((directive, numbers, line));
        }
        Ok(())
    }

    /// Skips to a function's name behind results that could not be read; gives `error` back, as a failure if there is
    /// none.
    fn skip_to_name(&mut self, error: SyntaxError) -> Parsed<SyntaxError> {
        loop {
            match self.token {
                Token::End | Token::Punct(b'{' | b'}' | b';') => return Err(error),
                Token::Punct(b')') if matches!(self.next.0, Token::Ident(_)) => {
                    self.advance();
                    return Ok(error);
                }
                _ => {
                    self.advance();
                }
            }
        }
    }

    /// Skips the rest of a function; gives `error` back, as a failure if the text or another declaration comes first.
    fn skip_function(&mut self, error: SyntaxError) -> Parsed<SyntaxError> {
        loop {
            match self.token {
                Token::End | Token::Punct(b'}') | Token::Dot("entry" | "func" | "visible" | "extern" | "weak") => {
                    return Err(error);
                }
                Token::Punct(b';') => {
                    self.advance();
                    return Ok(error);
                }
                Token::Punct(b'{') => {
                    return if self.skip_braces() { Ok(error) } else { Err(error) };
                }
                _ => {
                    self.advance();
                }
            }
        }
    }

    fn skip_parentheses(&mut self) -> Parsed<()> {
        let mut depth = 0u32;
        loop {
            match self.advance() {
                Token::Punct(b'(') => depth = depth.saturating_add(1),
                Token::Punct(b')') => depth = depth.saturating_sub(1),
                Token::End => return self.error("`)`"),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn parameters(&mut self) -> Parsed<Vec<Variable<'a>>> {
        self.expect(b'(', "`(`")?;
        let mut all = Vec::new();
        while !self.eat(b')') {
            // `.func` may take registers; such functions are rejected where they are called.
            if let Token::Dot("reg") = self.token {
                self.advance();
                let line = self.line;
                let mut ty = self.dot("a type")?;
                let vector = match ty {
                    "v2" => 2,
                    "v4" => 4,
                    _ => 1,
                };
                if vector > 1 {
                    ty = self.dot("a type")?;
                }
                let name = self.ident("a register")?;
                all.push(register_parameter(line, name, ty, vector));
            } else {
                all.push(self.parameter()?);
            }
            if !self.at(b')') {
                self.expect(b',', "`,` or `)`")?;
            }
        }
        Ok(all)
    }

    fn numbers(&mut self) -> Parsed<Vec<u64>> {
        let mut numbers = Vec::new();
        while let Token::Int(value) | Token::Unsigned(value) = self.token {
            numbers.push(value);
            self.advance();
            if !self.eat(b',') {
                break;
            }
        }
        Ok(numbers)
    }

    /// Statements up to the body's `}`. Only the end of the text is an error here; all others are recorded.
    fn body(&mut self, function: &mut Function<'a>) -> Parsed<Vec<Statement<'a>>> {
        let mut statements = Vec::new();
        let mut depth = 0u32;
        loop {
            match self.token {
                Token::End => return self.error("`}`"),
                Token::Punct(b'{') if depth < MAX_SCOPES => {
                    self.advance();
                    depth += 1;
                    statements.push(Statement::Open);
                }
                Token::Punct(b'}') => {
                    self.advance();
                    if depth == 0 {
                        return Ok(statements);
                    }
                    depth -= 1;
                    statements.push(Statement::Close);
                }
                Token::Punct(b';') => {
                    self.advance();
                }
                _ => {
                    if let Err(error) = self.statement(&mut statements) {
                        if function.errors.len() < MAX_ERRORS {
                            function.errors.push(error);
                        }
                        if self.at(b'{') {
                            self.skip_braces();
                        }
                        self.skip_statement();
                    }
                }
            }
        }
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let line = self.line;
        match self.token {
            Token::Dot("reg") => {
                self.advance();
                let registers = self.registers(line)?;
                statements.push(Statement::Registers(registers));
            }
            Token::Dot("loc" | "file") => self.skip_line(line),
            Token::Dot("pragma" | "calltargets" | "callprototype") => self.skip_statement(),
            Token::Dot("branchtargets") => {
                self.advance();
                let mut labels = vec![self.ident("a label")?];
                while self.eat(b',') {
                    labels.push(self.ident("a label")?);
                }
                self.expect(b';', "`;`")?;
                statements.push(Statement::Targets(labels));
            }
            Token::Dot(_) => {
                let mut variables = Vec::new();
                self.variables(false, &mut variables)?;
                statements.extend(variables.into_iter().map(Statement::Variable));
                self.expect(b';', "`;`")?;
            }
            Token::Ident(name) if self.next.0 == Token::Punct(b':') => {
                self.advance();
                self.advance();
                statements.push(Statement::Label(name, line));
            }
            _ => {
                let instruction = self.instruction()?;
                statements.push(Statement::Instruction(instruction));
            }
        }
        Ok(())
    }

    /// `.b32 %r<10>, a;` after `.reg`.
    fn registers(&mut self, line: u32) -> Parsed<Registers<'a>> {
        let ty = self.dot("a type")?;
        let mut names = Vec::new();
        loop {
            let name = self.ident("a register")?;
            let mut count = None;
            if self.eat(b'<') {
                count = Some(self.int("a number of registers")?);
                self.expect(b'>', "`>`")?;
            }
            names.push((name, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';', "`;`")?;
        Ok(Registers { line, ty, names })
    }
}

fn register_parameter<'a>(line: u32, name: &'a str, ty: &'a str, vector: u64) -> Variable<'a> {
    Variable {
        line,
        name,
        space: crate::ast::DeclSpace::Param,
        ty,
        vector,
        align: None,
        dims: Vec::new(),
        init: None,
        is_extern: false,
        is_managed: false,
    }
}
