//! Pointers that programs pass in. They are looked at only here.
//!
//! The values of these types come from the C side of an entry point and are the program's promise: not NULL means valid
//! for the call. NULL is an `INVALID_VALUE` where the value is needed.
#![allow(unsafe_code, reason = "dereferences what the program passes")]

use std::ffi::{CStr, c_char};

use crate::status::{Outcome, Status};

/// Where a result goes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// Stores `value` unless the pointer is NULL.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not NULL, so the program promises room for a `T`; it may be unaligned.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Stores `values` one behind the other; the program promises room for them.
    pub fn set_all(self, values: &[T]) {
        if !self.0.is_null() {
            for (index, value) in values.iter().enumerate() {
                Self(self.0.wrapping_add(index)).set(*value);
            }
        }
    }

    /// Where the address points that is stored here.
    ///
    /// # Errors
    /// If this is NULL.
    pub fn indirect<U>(self, index: usize) -> Outcome<Out<U>> {
        In(self.0.cast::<*mut U>().cast_const()).nth(index).map(Out)
    }

    /// For callers of ours who want nothing.
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// True if nothing is wanted.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub fn addr(self) -> usize {
        self.0.expose_provenance()
    }
}

/// An argument passed by pointer, or an array of them.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The `index`-th value; NULL is an error.
    pub fn nth(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not NULL, so the program promises that many values; they may be unaligned.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` values; NULL is an error unless none is wanted.
    pub fn all(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.nth(index)).collect()
    }

    /// For callers of ours who have none.
    pub fn none() -> Self {
        Self(std::ptr::null())
    }

    /// True if there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub fn addr(self) -> usize {
        self.0.expose_provenance()
    }
}

/// A text of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text's bytes up to its NUL.
    pub fn bytes(self) -> Outcome<Vec<u8>> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not NULL, so the program promises a NUL-terminated text; it is used only during the call.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }

    /// The text; what is not UTF-8 is replaced.
    pub fn get(self) -> Outcome<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    /// The text; NULL is an empty one.
    pub fn or_empty(self) -> Outcome<String> {
        if self.is_null() { Ok(String::new()) } else { self.get() }
    }

    /// The first `length` bytes.
    pub fn prefix(self, length: usize) -> Outcome<Vec<u8>> {
        In(self.0.cast::<u8>()).all(length)
    }

    /// True if there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A function of the program's with its argument: what a callback is.
#[derive(Clone, Copy, Debug)]
pub struct Callback<F> {
    /// The function.
    pub function: F,
    /// The argument.
    pub data: usize,
}

/// `void (*)(cl_object, void *)`.
pub type ObjectFn = unsafe extern "C" fn(usize, usize);
/// `void (*)(cl_event, cl_int, void *)`.
pub type EventFn = unsafe extern "C" fn(usize, i32, usize);

impl Callback<ObjectFn> {
    /// Calls it for `object`.
    pub fn call(self, object: usize) {
        // SAFETY: the program gave this function to be called with this argument.
        unsafe { (self.function)(object, self.data) }
    }
}

impl Callback<EventFn> {
    /// Calls it for `event`.
    pub fn call(self, event: usize, status: i32) {
        // SAFETY: the program gave this function to be called with this argument.
        unsafe { (self.function)(event, status, self.data) }
    }
}
