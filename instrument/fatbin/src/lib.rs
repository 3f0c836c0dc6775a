//! Finds PTX in CUDA fat binaries, and writes such.
//!
//! Takes the image of a module as a program hands it over (bare fatbin, PTX text or cubin; the shim has already
//! followed the wrapper's pointer) and gives the PTX for a device. Every byte is treated as hostile. Knows nothing of
//! PTX syntax.

pub mod error;
pub mod limits;
pub mod entry;
pub mod write;
pub mod decompress;
pub mod locate;
pub mod hidden;
mod ptx_reach;
pub mod image_contents;
pub mod host_files;
pub mod targets;
#[cfg(test)]
mod tests;
