//! Moving a program to another node: `hetckpt migrate` here, `hetckpt serve` there, a TLS connection between them.
//!
//! docs/migration.md has the protocol and what becomes of the program in each failure. In short: the target says, while
//! the program still runs, whether it could take it; the program is stopped and its snapshot streamed; the target
//! verifies and flushes it and says so; the source notes its decision, ends the program, and releases it; only a target
//! to which it was released starts it.

pub mod peer;
pub mod tls;
pub mod deadline;
pub mod message;
pub mod channel;
pub mod archive_sender;
pub mod commit;
pub mod source;
pub mod handover;
pub mod depot;
pub mod launch;
pub mod slots;
pub mod receive;
pub mod expire;
pub mod serve_options;
pub mod serve;

/// Version of the protocol. Both sides must have the same.
pub const PROTOCOL: u32 = 1;

/// Port where `migrate` looks for `serve` if none is named.
pub const DEFAULT_PORT: u16 = 7473;
