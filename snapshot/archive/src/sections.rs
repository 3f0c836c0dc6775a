//! Bytes that come in sections: what changes in one leaves the parts of the others as they were.

use std::io::{self, Read};

/// Bytes in sections. At the end of each, no more are read until the next one is begun.
pub trait Sections: Read {
    /// Begins the next section; false if there is none.
    ///
    /// # Errors
    /// As reading.
    fn next_section(&mut self) -> io::Result<bool>;
}

/// One section.
#[derive(Debug)]
pub struct Whole<R>(pub R);

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read> Sections for Whole<R> {
    fn next_section(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}

impl<S: Sections + ?Sized> Sections for &mut S {
    fn next_section(&mut self) -> io::Result<bool> {
        (**self).next_section()
    }
}
