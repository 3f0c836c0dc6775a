//! The snapshot archive `*.hetsnap`: a tar whose members are zstd-compressed, with a readable header first and an index
//! last.
//!
//! Plain `tar` and `zstd` open it. [`writer`] makes one under a temporary name, verifies it and renames it; [`reader`]
//! treats every byte as hostile. What the members mean is not known here.

pub mod manifest;
mod hex_hash;
mod seal;
pub mod member;
mod pack;
mod unpack;
mod room;
pub mod parallel;
pub mod backing;
pub mod served_bytes;
pub mod memory_source;
pub mod known_pieces;
pub mod stripes;
pub mod chunk;
pub mod memory_file;
mod file_writer;
pub mod part_appender;
pub mod sections;
pub mod part_pipeline;
pub mod packed_state;
pub mod carried;
pub mod limits;
pub mod known_parts;
pub mod stream_writer;
pub mod file_id;
pub mod writer;
pub mod reader;
mod borrowing;
mod extract;
pub mod read_ahead;
pub mod merge;
mod opening;
pub mod verify;
pub mod error;
