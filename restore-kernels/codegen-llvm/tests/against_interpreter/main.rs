//! Arithmetic of compiled code against the reference interpreter, operation by operation, on edge cases and random
//! operands. What is not a number has the GPU's bits; of `f64` alone they are left open.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod run;

use run::CompiledBlock;

hetckpt_conformance::tests!(
    CompiledBlock,
    integer,
    float,
    directed,
    convert,
    modifiers,
    edges,
    flushed,
    predicate,
    memory
);
