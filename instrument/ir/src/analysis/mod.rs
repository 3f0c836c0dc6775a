//! Read-only facts about a kernel: each analysis takes `&Kernel` and keeps its result apart from it.

pub mod reg_set;
pub mod liveness;
