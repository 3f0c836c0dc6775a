//! Resegmentation: rebuilds a probed kernel for the resume points at which the threads of a snapshot stopped.
//!
//! Input is the probed kernel as the archive holds it; output a [`hetckpt_abi::program::Program`] that generators turn
//! into a continuation kernel. No snapshot bytes here, and no target: how a thread finds its resume point is the
//! generators'.

pub mod continuation;
mod peel;
