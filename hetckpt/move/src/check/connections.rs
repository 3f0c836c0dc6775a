//! Can connections to processes outside of the tree go on?

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use hetckpt_criu::needs::{Needs, are_inner};
use hetckpt_report::finding::{Finding, listed};

use crate::adaptation::Outside;

const TCP: &str = "tcp-connections";

const UNIX: &str = "unix-sockets";

/// Nothing, of what the program had none of.
pub fn examine(needs: &Needs, outside: Outside) -> Vec<Finding> {
    let mut findings = vec![];
    if !needs.connections.is_empty() {
        findings.push(connections(needs, outside.tcp_established));
    }
    if !needs.outside_sockets.is_empty() {
        findings.push(unix_sockets(&needs.outside_sockets, outside.ext_unix_sk));
    }
    findings
}

fn connections(needs: &Needs, is_allowed: bool) -> Finding {
    let all = &needs.connections;
    let named = all
        .iter()
        .map(|connection| format!("{} to {}", connection.local, connection.peer));
    let found = format!("the program had TCP connections: {}", listed(named));
    let problem = |found: String, help: &str| problem(TCP, Code::TcpConnections, found, help);
    let is_inner = are_inner(all);
    if !is_allowed && !is_inner {
        return problem(
            found,
            "say --tcp-established: that works once, and only on a machine that has the connections' local addresses",
        );
    }
    if !nix::unistd::geteuid().is_root() {
        return problem(
            format!("{found}; only root can restore connections"),
            "restore it as root: a user's own namespaces do not give CRIU the privilege (CAP_NET_ADMIN)",
        );
    }
    let addresses: BTreeSet<IpAddr> = all.iter().map(|connection| connection.local.ip()).collect();
    let missing: Vec<String> = addresses
        .into_iter()
        .filter(is_missing)
        .map(|ip| ip.to_string())
        .collect();
    match missing.is_empty() {
        true if is_inner => Finding::ok(TCP, format!("{found}; both ends of each are its own")),
        true => Finding::ok(TCP, format!("{found}; their local addresses are here")),
        false => problem(
            format!("{found}; this machine does not have the address {}", missing.join(", ")),
            "give it the address (ip address add), or restore where it is: the peer sends to nobody else",
        ),
    }
}

/// True if a socket cannot have this address here.
fn is_missing(ip: &IpAddr) -> bool {
    // Such an address counts on one link only, which nobody has noted.
    let is_of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let bound = UdpSocket::bind((*ip, 0));
    !is_of_link && bound.is_err_and(|e| e.kind() == ErrorKind::AddrNotAvailable)
}

fn unix_sockets(names: &BTreeSet<Vec<u8>>, is_allowed: bool) -> Finding {
    let found = format!(
        "the program had datagram sockets connected to processes outside: {}",
        listed(names.iter().map(|name| shown(name)))
    );
    let problem = |found: String, help: &str| problem(UNIX, Code::UnixSockets, found, help);
    if !is_allowed {
        return problem(
            found,
            "have them connected again, to whoever has these paths here: --ext-unix-sk",
        );
    }
    let missing = names.iter().filter(|name| !is_there(name));
    let missing: Vec<String> = missing.map(|name| shown(name)).collect();
    match missing.is_empty() {
        true => Finding::ok(UNIX, format!("{found}; there are such here")),
        false => problem(
            format!("{found}; nobody has {} here", missing.join(", ")),
            "start the process that has the socket first",
        ),
    }
}

/// An abstract name as `ss` and others have it, with `@` for the first byte.
fn shown(name: &[u8]) -> String {
    let text = match name.split_first() {
        Some((0, rest)) => format!("@{}", String::from_utf8_lossy(rest)),
        _ => String::from_utf8_lossy(name).into_owned(),
    };
    text.trim_end_matches('\0')
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// True if there is a socket at that path. Who has an abstract name shows at the restore.
fn is_there(name: &[u8]) -> bool {
    match name.first() {
        Some(b'/') => fs::metadata(Path::new(OsStr::from_bytes(name))).is_ok_and(|found| found.file_type().is_socket()),
        _ => true,
    }
}

fn problem(check: &'static str, code: Code, found: String, help: &str) -> Finding {
    Finding {
        code: Some(code.to_owned()),
        ..Finding::problem(check, found, help)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use hetckpt_criu::needs::Connection;
    use hetckpt_report::finding::Verdict;

    fn needs(local: &str, names: &[&[u8]]) -> Needs {
        let peer = "192.0.2.7:443".parse().unwrap();
        let local = local.parse().unwrap();
        Needs {
            connections: BTreeSet::from([Connection { local, peer }]),
            outside_sockets: names.iter().map(|name| name.to_vec()).collect(),
            ..Needs::default()
        }
    }

    const BOTH: Outside = Outside {
        tcp_established: true,
        ext_unix_sk: true,
    };

    #[test]
    fn what_was_connected_is_named_and_what_is_missing() {
        assert!(examine(&Needs::default(), Outside::default()).is_empty());
        let here = needs("127.0.0.1:4711", &[b"/no/such/socket", b"\0abstract"]);
        let without = examine(&here, Outside::default());
        assert_eq!(
            without[0].found,
            "the program had TCP connections: 127.0.0.1:4711 to 192.0.2.7:443"
        );
        assert!(
            without[1].found.ends_with(": @abstract, /no/such/socket"),
            "{}",
            without[1].found
        );
        assert!(without.iter().all(|finding| finding.verdict == Verdict::Problem));
        let unix = &examine(&here, BOTH)[1];
        assert!(
            unix.found.ends_with("nobody has /no/such/socket here"),
            "{}",
            unix.found
        );
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(!is_missing(&"127.0.0.1".parse().unwrap()));
        assert!(is_missing(&"192.0.2.1".parse().unwrap()));
        assert!(!is_missing(&"fe80::1".parse().unwrap()));
    }
}
