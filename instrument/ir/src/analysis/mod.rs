//! Read-only facts about a kernel: each analysis takes `&Kernel` and keeps its result apart from it.
//!
//! They expect a kernel whose ids are in range ([`crate::validate`]).

pub mod reg_set;
pub mod definitions;
pub mod cfg;
pub mod dominators;
pub mod loops;
pub mod liveness;
pub mod uniformity;
pub mod induction;
pub mod short_loops;
pub mod linear_forms;
pub mod unsynchronized;
#[cfg(test)]
mod tests;
