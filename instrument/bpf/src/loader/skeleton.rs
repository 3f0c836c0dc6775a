//! What libbpf-cargo generates of `trace.bpf.c`: its programs and maps.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    unsafe_code,
    dead_code,
    reason = "libbpf-cargo writes this"
)]

include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
