//! Floating-point instructions.

pub(crate) mod format;
mod exact;
mod arithmetic;

pub(crate) use arithmetic::{evaluate, flush, saturate};
pub(crate) use exact::from_integer;
