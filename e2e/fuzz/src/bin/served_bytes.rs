//! See `hetckpt_fuzz::served_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::served_bytes(data));
