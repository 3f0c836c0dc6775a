//! TCP connections of a program with itself, as the ranks of MPI have with what has started them. Both ends are dumped,
//! and go on together, wherever that is: nobody needs to allow it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use procfs::process::{FDTarget, Process};

use hetckpt_criu::needs::{self, Connection};

use crate::adaptation::Outside;

/// `outside`, with connections taken along if all that the processes `tree` have are among themselves. Only root can
/// take them.
///
/// Whether it was so is told by the images, when nothing changes any more ([`crate::check`]).
pub fn allowed(outside: Outside, tree: &[i32]) -> Outside {
    if outside.tcp_established || !nix::unistd::geteuid().is_root() {
        return outside;
    }
    let found = established(tree);
    Outside {
        tcp_established: !found.is_empty() && needs::are_inner(&found),
        ..outside
    }
}

/// All connections of the processes.
fn established(tree: &[i32]) -> BTreeSet<Connection> {
    let processes: Vec<Process> = tree.iter().filter_map(|&pid| Process::new(pid).ok()).collect();
    let descriptors = processes.iter().filter_map(|process| process.fd().ok());
    let sockets: BTreeSet<u64> = descriptors
        .flatten()
        .flatten()
        .filter_map(|open| match open.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let mut networks: BTreeSet<PathBuf> = BTreeSet::new();
    let mut found = BTreeSet::new();
    for process in processes {
        let network = std::fs::read_link(format!("/proc/{}/ns/net", process.pid)).unwrap_or_default();
        if !networks.insert(network) {
            continue;
        }
        let both = [process.tcp(), process.tcp6()];
        let own = both.into_iter().flatten().flatten().filter(|entry| {
            // A socket that listens has no other end.
            sockets.contains(&entry.inode) && entry.remote_address.port() != 0
        });
        found.extend(own.map(|entry| Connection::new(entry.local_address, entry.remote_address)));
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_are_found_or_one() {
        let own = i32::try_from(std::process::id()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = one.local_addr().unwrap();
        let of_this = || -> BTreeSet<Connection> {
            let all = established(&[own]).into_iter();
            all.filter(|found| found.local == local || found.peer == local)
                .collect()
        };
        // The other end waits to be accepted, and is nobody's.
        assert_eq!(of_this().len(), 1);
        assert!(!needs::are_inner(&of_this()));
        let other = listener.accept().unwrap();
        assert_eq!(of_this().len(), 2);
        assert!(needs::are_inner(&of_this()));
        drop((one, other));
    }
}
