//! See `hetckpt_fuzz::archive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::archive(data));
