//! Who is at the other end of a connection to one of our sockets: only the same user and root may ask anything.
//!
//! The socket's folder and mode keep others out already (`hetckpt_ring::runtime_dir`); this holds should somebody have
//! opened them. In a user namespace everybody whom it has no name for has one id, root from outside among them: they
//! are refused. The command line enters a job's namespaces before it asks, and so does the CRIU that it starts.

use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

/// True if the process that has connected runs as the same user as this one, or as root.
#[must_use]
pub fn may_ask(stream: &UnixStream) -> bool {
    let Ok(credentials) = getsockopt(stream, PeerCredentials) else {
        return false;
    };
    is_allowed(credentials.uid(), geteuid().as_raw())
}

fn is_allowed(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_same_user_and_root_may_ask() {
        // Whom a user namespace has no name for.
        let overflow = 65534;
        for (uid, may) in [(1000, true), (0, true), (1001, false), (overflow, false)] {
            assert_eq!(is_allowed(uid, 1000), may, "{uid}");
        }
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(may_ask(&one));
    }
}
