//! See `hetckpt_fuzz::launch_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::launch_record(data));
