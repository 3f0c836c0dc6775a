//! What holds for the tree of sources and its documents. Needs neither CRIU nor programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod architecture;
mod circles;
mod documents;
