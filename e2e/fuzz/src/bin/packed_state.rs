//! See `hetckpt_fuzz::packed_state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::packed_state(data));
