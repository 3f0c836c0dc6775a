//! See `hetckpt_fuzz::process_state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::process_state(data));
