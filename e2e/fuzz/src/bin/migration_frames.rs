//! See `hetckpt_fuzz::migration_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hetckpt_fuzz::migration_frames(data));
