//! Reads one line from left to right.

use super::error::ParseError;
use crate::text::limits::{MAX_LIST, MAX_STRING_BYTES};
use crate::text::names::TextName;

/// What is left of a line. Every method skips blanks first; a `;` ends the line.
#[derive(Clone)]
pub(super) struct Line<'a> {
    number: usize,
    rest: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn new(number: usize, text: &'a str) -> Self {
        Self { number, rest: text }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
        if self.rest.starts_with(';') {
            self.rest = "";
        }
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// The error that something else was expected here.
    pub(super) fn expected(&mut self, expected: &'static str) -> ParseError {
        self.skip_blanks();
        let word: String = self.rest.chars().take_while(|c| !c.is_whitespace()).take(40).collect();
        let found = if word.is_empty() {
            "the end of the line".into()
        } else {
            format!("`{word}`")
        };
        ParseError::Expected {
            line: self.number,
            expected,
            found,
        }
    }

    pub(super) fn limit(&self, what: &'static str, limit: usize) -> ParseError {
        ParseError::Limit {
            line: self.number,
            what,
            limit,
        }
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.expected("the end of the line"))
        }
    }

    /// Takes `token` if it comes next. For punctuation; words are taken by [`Line::accept_word`].
    pub(super) fn accept(&mut self, token: &str) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(super) fn punctuation(&mut self, token: &'static str) -> Result<(), ParseError> {
        if self.accept(token) {
            Ok(())
        } else {
            Err(self.expected(token))
        }
    }

    /// True if the next character is `c`.
    pub(super) fn starts_with(&mut self, c: char) -> bool {
        self.skip_blanks();
        self.rest.starts_with(c)
    }

    fn word_length(&self) -> usize {
        self.rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count()
    }

    /// Letters, digits and `_`.
    pub(super) fn word(&mut self, expected: &'static str) -> Result<&'a str, ParseError> {
        self.skip_blanks();
        match self.word_length() {
            0 => Err(self.expected(expected)),
            n => {
                let (word, rest) = self.rest.split_at(n);
                self.rest = rest;
                Ok(word)
            }
        }
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let n = self.word_length();
        let is_next = &self.rest[..n] == word;
        if is_next {
            self.rest = &self.rest[n..];
        }
        is_next
    }

    pub(super) fn keyword(&mut self, word: &'static str) -> Result<(), ParseError> {
        if self.accept_word(word) {
            Ok(())
        } else {
            Err(self.expected(word))
        }
    }

    /// A word that names a value.
    pub(super) fn name<T: TextName>(&mut self, expected: &'static str) -> Result<T, ParseError> {
        self.skip_blanks();
        let n = self.word_length();
        match T::from_text_name(&self.rest[..n]) {
            Some(value) => {
                self.rest = &self.rest[n..];
                Ok(value)
            }
            None => Err(self.expected(expected)),
        }
    }

    /// `.name`, no blank between.
    pub(super) fn suffix<T: TextName>(&mut self, expected: &'static str) -> Result<T, ParseError> {
        self.accept_suffix().ok_or_else(|| self.expected(expected))
    }

    /// `.name` if it comes next and names a value.
    pub(super) fn accept_suffix<T: TextName>(&mut self) -> Option<T> {
        let rest = self.rest.strip_prefix('.')?;
        let n = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count();
        let value = T::from_text_name(&rest[..n])?;
        self.rest = &rest[n..];
        Some(value)
    }

    /// `.word` if it comes next.
    pub(super) fn accept_suffix_word(&mut self, word: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix('.') else {
            return false;
        };
        let n = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count();
        let is_next = &rest[..n] == word;
        if is_next {
            self.rest = &rest[n..];
        }
        is_next
    }

    /// Decimal or `0x` hexadecimal.
    pub(super) fn u64(&mut self, expected: &'static str) -> Result<u64, ParseError> {
        self.skip_blanks();
        let n = self.word_length();
        let word = &self.rest[..n];
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        match parsed {
            Ok(value) => {
                self.rest = &self.rest[n..];
                Ok(value)
            }
            Err(_) => Err(self.expected(expected)),
        }
    }

    pub(super) fn u32(&mut self, expected: &'static str) -> Result<u32, ParseError> {
        let before = self.rest;
        let value = self.u64(expected)?;
        u32::try_from(value).map_err(|_| {
            self.rest = before;
            self.expected(expected)
        })
    }

    /// A number with an optional sign.
    pub(super) fn i64(&mut self, expected: &'static str) -> Result<i64, ParseError> {
        let before = self.rest;
        let negative = self.accept("-");
        if !negative {
            self.accept("+");
        }
        let magnitude = self.u64(expected)?;
        let value = if negative {
            0i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        };
        value.ok_or_else(|| {
            self.rest = before;
            self.expected(expected)
        })
    }

    /// `<prefix>N`: an id's number.
    pub(super) fn id(&mut self, prefix: &str, expected: &'static str) -> Result<u32, ParseError> {
        let before = self.rest;
        if !self.accept(prefix) {
            return Err(self.expected(expected));
        }
        let n = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        match self.rest[..n].parse() {
            Ok(number) => {
                self.rest = &self.rest[n..];
                Ok(number)
            }
            Err(_) => {
                self.rest = before;
                Err(self.expected(expected))
            }
        }
    }

    /// A quoted string of hexadecimal digits, of any length: a variable's initial bytes.
    pub(super) fn hex_string(&mut self) -> Result<&'a str, ParseError> {
        self.punctuation("\"")?;
        let n = self.rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (digits, rest) = self.rest.split_at(n);
        self.rest = rest;
        self.punctuation("\"")?;
        Ok(digits)
    }

    /// A quoted string.
    pub(super) fn string(&mut self, expected: &'static str) -> Result<String, ParseError> {
        self.skip_blanks();
        if !self.rest.starts_with('"') {
            return Err(self.expected(expected));
        }
        let mut out = String::new();
        let mut rest = &self.rest[1..];
        loop {
            if out.len() > MAX_STRING_BYTES {
                return Err(self.limit("bytes in a string", MAX_STRING_BYTES));
            }
            let mut chars = rest.chars();
            match chars.next() {
                Some('"') => {
                    self.rest = chars.as_str();
                    return Ok(out);
                }
                Some('\\') => {
                    let (c, after) = escape(chars.as_str()).ok_or_else(|| {
                        self.rest = rest;
                        self.expected("\\\", \\\\ or \\u{hex}")
                    })?;
                    out.push(c);
                    rest = after;
                }
                Some(c) => {
                    out.push(c);
                    rest = chars.as_str();
                }
                None => {
                    self.rest = "";
                    return Err(self.expected("a closing quote"));
                }
            }
        }
    }

    /// Items between braces, separated by commas.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        self.punctuation("{")?;
        let mut items = Vec::new();
        if self.accept("}") {
            return Ok(items);
        }
        loop {
            if items.len() == MAX_LIST {
                return Err(self.limit("items in a list", MAX_LIST));
            }
            items.push(item(self)?);
            if self.accept("}") {
                return Ok(items);
            }
            self.punctuation(",")?;
        }
    }
}

fn escape(text: &str) -> Option<(char, &str)> {
    if let Some(rest) = text.strip_prefix('"') {
        return Some(('"', rest));
    }
    if let Some(rest) = text.strip_prefix('\\') {
        return Some(('\\', rest));
    }
    let (hex, rest) = text.strip_prefix("u{")?.split_once('}')?;
    let code = u32::from_str_radix(hex, 16).ok()?;
    Some((char::from_u32(code)?, rest))
}
