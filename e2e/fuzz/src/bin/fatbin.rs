//! See `hetckpt_fuzz::fatbin`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::fatbin(data));
