//! Floating-point instructions.

pub(crate) mod format;
mod exact;
mod wide;
mod arithmetic;

#[cfg(test)]
mod tests;

pub(crate) use arithmetic::{evaluate, flush, saturate};
pub(crate) use exact::from_integer;
