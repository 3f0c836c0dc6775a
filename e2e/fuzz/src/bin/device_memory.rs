//! See `hetckpt_fuzz::device_memory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::device_memory(data));
