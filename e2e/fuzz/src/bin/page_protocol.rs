//! See `hetckpt_fuzz::page_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::page_protocol(data));
