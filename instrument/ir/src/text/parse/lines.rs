//! Reads a text line by line.

use super::error::ParseError;
use super::line::Line;
use crate::text::limits::MAX_TEXT_BYTES;

/// The lines that hold something.
pub(super) struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Split<'a, char>>,
    last: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, ParseError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(ParseError::Limit {
                line: 1,
                what: "bytes of text",
                limit: MAX_TEXT_BYTES,
            });
        }
        Ok(Self {
            lines: text.split('\n').enumerate(),
            last: 0,
        })
    }

    pub(super) fn next(&mut self) -> Option<Line<'a>> {
        for (index, text) in self.lines.by_ref() {
            self.last = index + 1;
            let mut line = Line::new(index + 1, text);
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }

    pub(super) fn next_line(&mut self, expected: &'static str) -> Result<Line<'a>, ParseError> {
        match self.next() {
            Some(line) => Ok(line),
            None => Err(ParseError::Expected {
                line: self.last,
                expected,
                found: "the end of the text".into(),
            }),
        }
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        match self.next() {
            Some(mut line) => Err(line.expected("the end of the text")),
            None => Ok(()),
        }
    }
}
