//! See `hetckpt_fuzz::criu_images`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::criu_images(data));
