//! The CRIU program: where it is, what it can do, running it.

pub mod locate;
pub mod images;
pub mod run;
