//! Arithmetic of compiled code against the reference interpreter, operation by operation, on edge cases and random
//! operands. What is not a number must be one on both sides; its payload is left open.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;
mod bench;
mod operands;
mod integer;
mod float;
mod directed;
mod convert;
mod modifiers;
mod predicate;
mod memory;
