//! Files that can be made again, by the hash of what they are made from.

pub mod folder;
pub mod place;
