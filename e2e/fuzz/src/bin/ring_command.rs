//! See `hetckpt_fuzz::ring_command`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::ring_command(data));
