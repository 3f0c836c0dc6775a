//! Who is at the other end of a connection: only the application's user and root may ask anything.
//!
//! The socket's folder and mode keep others out already (`hetckpt_ring::runtime_dir`); this holds should somebody have opened them.

use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

/// What the ids of users are that a user namespace has no name for.
const OVERFLOW_UID: u32 = 65534;
/// `/proc/self/uid_map` of those who are in no user namespace of their own: all ids are what they are.
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

/// True if the process that has connected runs as the same user as this one, or as root.
pub fn may_ask(stream: &UnixStream) -> bool {
    let Ok(credentials) = getsockopt(stream, PeerCredentials) else {
        return false;
    };
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    is_allowed(credentials.uid(), geteuid().as_raw(), &map)
}

/// Root from outside of a user namespace without it has the overflow id there.
fn is_allowed(uid: u32, own: u32, map: &str) -> bool {
    let has_all_ids = map.split_whitespace().eq(ALL_IDS);
    uid == own || uid == 0 || (uid == OVERFLOW_UID && !has_all_ids)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_same_user_and_root_may_ask() {
        let everybody = "         0          0 4294967295\n";
        let one = "      1000       1000          1\n";
        for (uid, map, may) in [
            (1000, everybody, true),
            (0, everybody, true),
            (1001, everybody, false),
            (OVERFLOW_UID, everybody, false),
            (1000, one, true),
            (OVERFLOW_UID, one, true),
            (1001, one, false),
        ] {
            assert_eq!(is_allowed(uid, 1000, map), may, "{uid} in {map}");
        }
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(may_ask(&one));
    }
}
