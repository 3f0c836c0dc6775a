//! See `hetckpt_fuzz::control_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::control_message(data));
