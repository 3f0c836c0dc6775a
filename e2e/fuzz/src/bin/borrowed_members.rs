//! See `hetckpt_fuzz::borrowed_members`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::borrowed_members(data));
