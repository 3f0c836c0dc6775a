//! Pointers that programs pass in. They are looked at only here.
//!
//! The values of these types come from the C side of an entry point and are the program's promise: not NULL means valid
//! for the call. NULL is an `INVALID_VALUE` where the value is needed.
#![allow(unsafe_code, reason = "dereferences what the program passes")]

use std::ffi::{CStr, c_char};

use crate::result::{CuResult, Outcome};

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Nothing is wanted.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Stores `value`.
    pub fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not NULL, so the program promises room for a `T`; it may be unaligned.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// What is there before.
    pub fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }

    /// Stores `value` unless the pointer is NULL.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Where the `index`-th of an array of results goes.
    pub fn nth(self, index: usize) -> Self {
        if self.0.is_null() {
            self
        } else {
            Self(self.0.wrapping_add(index))
        }
    }

    /// As an address, for results whose type is known only from another argument.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// True if nothing is wanted.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A place of our own.
    #[cfg(test)]
    pub fn to(value: &mut T) -> Self {
        Self(value)
    }
}

/// An argument passed by pointer, or an array of them.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// No argument.
    pub const NULL: Self = Self(std::ptr::null());

    /// The value.
    pub fn get(self) -> Outcome<T> {
        self.nth(0)
    }

    /// The `index`-th value.
    pub fn nth(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not NULL, so the program promises that many values; they may be unaligned.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` values; none need to be there for none.
    pub fn list(self, count: u64) -> Outcome<Vec<T>> {
        (0..count as usize).map(|index| self.nth(index)).collect()
    }

    /// True if there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// An array of our own, for the program to look at while it is there.
    pub fn to(values: &[T]) -> Self {
        Self(values.as_ptr())
    }

    /// Of our own.
    #[cfg(test)]
    pub fn from_slice(values: &[T]) -> Self {
        Self(values.as_ptr())
    }
}

/// A text of the program's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text.
    pub fn get(self) -> Outcome<&'static str> {
        let bytes = self.bytes().ok_or(CuResult::INVALID_VALUE)?;
        std::str::from_utf8(bytes).map_err(|_| CuResult::INVALID_VALUE)
    }

    /// Its bytes, whatever they are; none if there is no text.
    pub fn bytes(self) -> Option<&'static [u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL, so the program promises a NUL-terminated text; it is used only during the call.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Room for a text.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct TextOut(*mut c_char);

impl TextOut {
    /// Stores as much of `text` as fits into `room` bytes, its NUL included.
    pub fn set(self, text: &str, room: usize) -> Outcome {
        if self.0.is_null() || room == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let length = text.len().min(room - 1);
        // SAFETY: the program promises `room` bytes; `length + 1` are written.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), length) };
        // SAFETY: as above.
        unsafe { self.0.wrapping_add(length).write(0) };
        Ok(())
    }
}

/// Memory of the program's, by address: what a copy reads and writes.
pub struct HostMemory;

impl HostMemory {
    /// Bytes at an address that the program told us to read.
    pub fn bytes<'a>(addr: u64, length: usize) -> &'a [u8] {
        if length == 0 {
            return &[];
        }
        // SAFETY: the program promises that the range can be read during the call.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(addr as usize), length) }
    }

    /// Bytes at an address that the program told us to write.
    pub fn bytes_mut<'a>(addr: u64, length: usize) -> &'a mut [u8] {
        if length == 0 {
            return &mut [];
        }
        // SAFETY: the program promises that the range can be written during the call.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(addr as usize), length) }
    }

    /// Copies within the program's memory; the ranges may overlap.
    pub fn copy(dst: u64, src: u64, length: usize) {
        let from = std::ptr::with_exposed_provenance::<u8>(src as usize);
        // SAFETY: the program promises both ranges.
        unsafe { std::ptr::copy(from, std::ptr::with_exposed_provenance_mut::<u8>(dst as usize), length) }
    }
}

impl TextOut {
    /// Room at an address that the program passed as a number.
    pub fn at(addr: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr as usize))
    }
}
