//! Snapshot archive: a tar of zstd members.
