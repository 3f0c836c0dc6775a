//! See `hetckpt_fuzz::build_id`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::build_id(data));
