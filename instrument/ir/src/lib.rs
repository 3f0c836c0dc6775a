//! hetIR: the one representation of a GPU kernel from which everything is generated.
//!
//! Register-based (not SSA) and close to PTX, so that a saved register has a stable identity on every target.
//! Front end (`hetckpt-ptx`) → this crate's data → probes → resegmentation → generators. No target names here.

pub mod entity;
pub mod types;
pub mod inst;
mod operands;
pub mod basic_block;
pub mod grid_workspace;
pub mod kernel;
pub mod module;
pub mod text;
pub mod validate;
pub mod analysis;
