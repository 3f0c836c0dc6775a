//! Answers of the `clGet…Info` functions: a value of any size, with its size.

use crate::handles::Handle;
use crate::pointers::Out;
use crate::status::{Outcome, Status};

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Room, bytes.
    pub room: usize,
    /// Where the value goes, if wanted.
    pub value: Out<u8>,
    /// Where its size goes, if wanted.
    pub size: Out<usize>,
}

impl Query {
    /// Answers with `value`.
    pub fn give(self, value: impl Value) -> Outcome {
        let bytes = value.into_bytes();
        if !self.value.is_null() {
            if self.room < bytes.len() {
                return Err(Status::INVALID_VALUE);
            }
            self.value.set_all(&bytes);
        }
        self.size.set(bytes.len());
        Ok(())
    }
}

/// What an answer can be.
pub trait Value {
    /// As the program gets it.
    fn into_bytes(self) -> Vec<u8>;
}

impl Value for u32 {
    fn into_bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
}

impl Value for i32 {
    fn into_bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
}

impl Value for u64 {
    fn into_bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
}

impl Value for usize {
    fn into_bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
}

impl Value for Handle {
    fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// `cl_bool`.
impl Value for bool {
    fn into_bytes(self) -> Vec<u8> {
        u32::from(self).into_bytes()
    }
}

/// With a NUL behind it.
impl Value for &str {
    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.as_bytes().to_vec();
        bytes.push(0);
        bytes
    }
}

impl Value for String {
    fn into_bytes(self) -> Vec<u8> {
        self.as_str().into_bytes()
    }
}

impl<T: Value> Value for Vec<T> {
    fn into_bytes(self) -> Vec<u8> {
        self.into_iter().flat_map(Value::into_bytes).collect()
    }
}

impl<T: Value, const N: usize> Value for [T; N] {
    fn into_bytes(self) -> Vec<u8> {
        self.into_iter().flat_map(Value::into_bytes).collect()
    }
}

/// A value whose type is settled where its number is.
#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

impl Value for Bytes {
    fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// [`Bytes`] of a value.
pub fn bytes(value: impl Value) -> Bytes {
    Bytes(value.into_bytes())
}
