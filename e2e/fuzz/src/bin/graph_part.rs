//! See `hetckpt_fuzz::graph_part`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::graph_part(data));
