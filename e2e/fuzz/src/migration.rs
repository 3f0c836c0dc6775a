//! The frames of `hetckpt migrate`, as `hetckpt` reads them. That is a program and no library, so its files are compiled here once more:
//! they need nothing else of it.

#![allow(
    dead_code,
    reason = "what hetckpt uses of them is more than what bytes from outside reach"
)]

use crate::diagnostic::Failure;

#[path = "../../../hetckpt/src/migration/channel.rs"]
pub mod channel;
#[path = "../../../hetckpt/src/migration/message.rs"]
pub mod message;

/// Version of the protocol; any will do, since both ends are here.
pub const PROTOCOL: u32 = 1;

/// Stands for TLS, which no frame passes here.
pub mod tls {
    use super::Failure;

    /// The failure that a transport's own error is.
    pub fn refused(peer: &str, why: String) -> Failure {
        Failure::new("HK1003", peer).note(why)
    }
}
