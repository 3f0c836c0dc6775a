//! See `hetckpt_fuzz::forged_archive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::forged_archive(data));
