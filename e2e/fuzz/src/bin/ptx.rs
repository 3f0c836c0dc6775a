//! See `hetckpt_fuzz::ptx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::ptx(data));
