//! See `hetckpt_fuzz::page_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::page_server(data));
