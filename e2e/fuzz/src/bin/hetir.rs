//! See `hetckpt_fuzz::hetir`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::hetir(data));
