//! Text to tokens (PTX ISA, "Syntax"). Total: every text has a token list; what is no token becomes [`Token::Bad`].

/// One token, borrowing from the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// Identifier, `_` and `%r1` included.
    Ident(&'a str),
    /// `.word`, without its dot: directives, types, modifiers.
    Dot(&'a str),
    /// Integer constant; hexadecimal, octal, binary or decimal.
    Int(u64),
    /// The same with `U` behind it.
    Unsigned(u64),
    /// `0f…`: bits of a single.
    F32(u32),
    /// `0d…` or a decimal float: bits of a double.
    F64(u64),
    /// String, without its quotes.
    Str(&'a str),
    /// A single character of punctuation.
    Punct(u8),
    /// A character that PTX does not have, or a number out of range.
    Bad(&'a str),
    /// End of the text.
    End,
}

impl Token<'_> {
    /// The token as messages quote it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Ident(s) | Token::Bad(s) => format!("`{s}`"),
            Token::Dot(s) => format!("`.{s}`"),
            Token::Int(n) => format!("`{n}`"),
            Token::Unsigned(n) => format!("`{n}U`"),
            Token::F32(bits) => format!("`0f{bits:08X}`"),
            Token::F64(bits) => format!("`0d{bits:016X}`"),
            Token::Str(_) => "a string".to_owned(),
            Token::Punct(c) => format!("`{}`", char::from(*c)),
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// Cuts a text into tokens, one at a time.
#[derive(Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

const fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// Offset of what comes next, bytes.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// What has been read since `position`.
    pub(crate) fn text_from(&self, position: usize) -> &'a str {
        self.text.get(position..self.at).unwrap_or_default()
    }

    /// The next token and the line it starts on; [`Token::End`] for ever after the last.
    pub(crate) fn next(&mut self) -> (Token<'a>, u32) {
        self.skip_blanks();
        let line = self.line;
        let start = self.at;
        let Some(first) = self.peek(0) else {
            return (Token::End, line);
        };
        let token = match first {
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(is_word) => {
                self.at += 1;
                Token::Dot(self.dot_word())
            }
            b'"' => self.string(),
            b'%' if self.peek(1).is_some_and(is_word) => {
                self.at += 1;
                self.word();
                Token::Ident(self.since(start))
            }
            c if is_word(c) => Token::Ident(self.word()),
            c if c.is_ascii_punctuation() => {
                self.at += 1;
                Token::Punct(c)
            }
            _ => {
                let width = self.text[start..].chars().next().map_or(1, char::len_utf8);
                self.at += width;
                Token::Bad(self.since(start))
            }
        };
        (token, line)
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.at += 1;
                }
                // cuModuleLoadData's texts end in NUL; some carry several.
                0 => self.at += 1,
                c if c.is_ascii_whitespace() => self.at += 1,
                b'/' if self.peek(1) == Some(b'/') => {
                    while self.peek(0).is_some_and(|c| c != b'\n') {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == Some(b'*') => {
                    self.at += 2;
                    while self.at < self.text.len() && !(self.peek(0) == Some(b'*') && self.peek(1) == Some(b'/')) {
                        if self.peek(0) == Some(b'\n') {
                            self.line = self.line.saturating_add(1);
                        }
                        self.at += 1;
                    }
                    self.at = (self.at + 2).min(self.text.len());
                }
                _ => return,
            }
        }
    }

    fn word(&mut self) -> &'a str {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        self.since(start)
    }

    /// A word after a dot, with `::` inside as in `.L2::128B`.
    fn dot_word(&mut self) -> &'a str {
        let start = self.at;
        self.word();
        while self.peek(0) == Some(b':') && self.peek(1) == Some(b':') && self.peek(2).is_some_and(is_word) {
            self.at += 2;
            self.word();
        }
        self.since(start)
    }

    fn string(&mut self) -> Token<'a> {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                b'"' => return Token::Str(self.text.get(start + 1..self.at - 1).unwrap_or_default()),
                b'\n' => self.line = self.line.saturating_add(1),
                b'\\' => self.at = (self.at + 1).min(self.text.len()),
                _ => {}
            }
        }
        Token::Bad("\"")
    }

    /// PTX ISA, "Constants".
    fn number(&mut self) -> Token<'a> {
        let start = self.at;
        let word = self.word();
        if word.bytes().all(|c| c.is_ascii_digit())
            && self.peek(0) == Some(b'.')
            && self.peek(1).is_some_and(|c| c.is_ascii_digit())
        {
            self.at += 1;
            let fraction = self.word();
            let signed_exponent = fraction.ends_with(['e', 'E']) && matches!(self.peek(0), Some(b'+' | b'-'));
            if signed_exponent {
                self.at += 1;
                self.word();
            }
            let text = self.since(start);
            return text
                .parse::<f64>()
                .map_or(Token::Bad(text), |value| Token::F64(value.to_bits()));
        }
        integer_or_bits(word).unwrap_or(Token::Bad(word))
    }
}

fn integer_or_bits<'a>(word: &str) -> Option<Token<'a>> {
    let prefix = word.get(..2).unwrap_or_default();
    let rest = word.get(2..).unwrap_or_default();
    match prefix {
        "0f" | "0F" if rest.len() == 8 => return u32::from_str_radix(rest, 16).ok().map(Token::F32),
        "0d" | "0D" if rest.len() == 16 => return u64::from_str_radix(rest, 16).ok().map(Token::F64),
        _ => {}
    }
    let unsigned = word.strip_suffix('U');
    let digits = unsigned.unwrap_or(word);
    let rest = digits.get(2..).unwrap_or_default();
    let parsed = match prefix {
        "0x" | "0X" => u64::from_str_radix(rest, 16),
        "0b" | "0B" => u64::from_str_radix(rest, 2),
        _ if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        _ => digits.parse(),
    };
    // `from_str_radix` takes a sign, but no word holds one.
    let is_unsigned = unsigned.is_some();
    parsed.ok().map(|value| {
        if is_unsigned {
            Token::Unsigned(value)
        } else {
            Token::Int(value)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        let mut all = Vec::new();
        loop {
            match lexer.next().0 {
                Token::End => return all,
                token => all.push(token),
            }
        }
    }

    #[test]
    fn cuts_an_instruction() {
        assert_eq!(
            tokens("@!%p1 ld.global.L2::128B.u32 %r1, [a+-4]; // c"),
            [
                Token::Punct(b'@'),
                Token::Punct(b'!'),
                Token::Ident("%p1"),
                Token::Ident("ld"),
                Token::Dot("global"),
                Token::Dot("L2::128B"),
                Token::Dot("u32"),
                Token::Ident("%r1"),
                Token::Punct(b','),
                Token::Punct(b'['),
                Token::Ident("a"),
                Token::Punct(b'+'),
                Token::Punct(b'-'),
                Token::Int(4),
                Token::Punct(b']'),
                Token::Punct(b';'),
            ]
        );
    }

    #[test]
    fn reads_each_kind_of_number() {
        assert_eq!(
            tokens("0x1FU 017 0b101 42 0f3F800000 0d3FF0000000000000 9.0 1.5e-3 18446744073709551615"),
            [
                Token::Unsigned(31),
                Token::Int(15),
                Token::Int(5),
                Token::Int(42),
                Token::F32(0x3F80_0000),
                Token::F64(0x3FF0_0000_0000_0000),
                Token::F64(9.0f64.to_bits()),
                Token::F64(1.5e-3f64.to_bits()),
                Token::Int(u64::MAX),
            ]
        );
    }

    #[test]
    fn keeps_what_is_no_token() {
        assert_eq!(tokens("18446744073709551616"), [Token::Bad("18446744073709551616")]);
        assert_eq!(tokens("é x"), [Token::Bad("é"), Token::Ident("x")]);
        assert_eq!(tokens("0xZZ"), [Token::Bad("0xZZ")]);
    }

    #[test]
    fn counts_lines_through_comments_and_strings() {
        let mut lexer = Lexer::new("/* a\nb */ x\n\"s\nt\" y");
        assert_eq!(lexer.next(), (Token::Ident("x"), 2));
        assert_eq!(lexer.next(), (Token::Str("s\nt"), 3));
        assert_eq!(lexer.next(), (Token::Ident("y"), 4));
    }
}
