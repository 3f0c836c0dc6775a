//! Which driver calls a process makes, when and how long: what is measured, and what is known of the functions.
//!
//! The program `hetckpt-tracer` of this crate loads `trace.bpf.c` into Linux and puts probes on what driver libraries
//! export. It is a program of its own because it needs libbpf, and so libelf and zlib, which nothing else of hetckpt
//! does. It speaks JSON ([`protocol`]). Nothing here decides anything about the process.

pub mod boundary;
pub mod description;
pub mod function_table;
pub mod histogram;
pub mod measured;
pub mod protocol;
