//! Harness of the end-to-end tests: programs are started, dumped and restored with the staged `hetckpt` and the real
//! CRIU, and what they print is compared with an uninterrupted run.
//!
//! Not for unit tests: it reaches the parts only through the command line and CRIU, as users do.

pub mod random;
pub mod runner;
pub mod installation;
pub mod program;
pub mod user;
pub mod sandbox;
pub mod early_end;
pub mod executable;
pub mod process;
pub mod hetckpt;
pub mod job;
pub mod outside;
pub mod once_per_key;
pub mod calibration;
pub mod baseline;
mod baseline_file;
pub mod plain_criu;
pub mod criu_rpc;
pub mod actors;
pub mod statistics;
