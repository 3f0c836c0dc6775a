//! What CRIU complains of, said in other words, and what helps. Only of what its log has as the first error.

use hetckpt_report::failure::Failure;
use hetckpt_report::file_size;
use hetckpt_ring::failure_code::Code;

/// What is known about a complaint.
struct Known {
    /// Words in CRIU's line, all of them.
    words: &'static [&'static str],
    /// What it means, where CRIU's own words do not tell.
    meaning: Option<&'static str>,
    /// What helps.
    help: &'static str,
}

const fn known(words: &'static [&'static str], help: &'static str) -> Known {
    Known {
        words,
        meaning: None,
        help,
    }
}

const fn means(words: &'static [&'static str], meaning: &'static str, help: &'static str) -> Known {
    Known {
        words,
        meaning: Some(meaning),
        help,
    }
}

const NEEDS_NF_TABLES: &str = "Linux needs nf_tables for this (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET); `criu check --feature network_lock_nftables` tells";

const CLOSE: &str = "dump the program when it has closed it, or have it do without";

const KNOWN: [Known; 21] = [
    known(&["File too large"], file_size::HELP),
    known(&["SIGXFSZ"], file_size::HELP),
    known(
        &["--tcp-established"],
        "take the program's TCP connections along: --tcp-established (as root), or dump it when it has none",
    ),
    known(
        &["--ext-unix-sk"],
        "if they are datagram sockets, have them connected again at the restore: --ext-unix-sk; others must be closed before",
    ),
    known(
        &["Can't get rlimit"],
        "for programs of other users CRIU needs CAP_SYS_RESOURCE: give it to this container, or dump the program as its user",
    ),
    known(
        &["half of stream unix connection"],
        "only datagram sockets can be connected again: dump the program together with the process at the other end, or when it has no such socket",
    ),
    known(
        &["name-less external socket"],
        "the socket at the other end has no name by which it could be found again: dump the program together with that process",
    ),
    known(&["Locking connection failed using nftables"], NEEDS_NF_TABLES),
    known(&["Failed to lock TCP connection"], NEEDS_NF_TABLES),
    means(
        &["link remap for", "link-remap option"],
        "a file is open that was removed but has another name still (a hard link), so it would come back as another file",
        "give it the name back that CRIU says (`ln OTHER-NAME NAME`), or dump the program when it has closed the file",
    ),
    means(
        &["Unknown shit", "secretmem"],
        "secret memory is mapped (memfd_secret), which nobody but the program can read",
        "dump the program when it has unmapped it, or have it do without",
    ),
    means(
        &["Unknown shit", "io_uring"],
        "the rings of an io_uring are mapped",
        CLOSE,
    ),
    means(&["send_fds failed (-22)"], "an io_uring is open", CLOSE),
    means(
        &["Unknown shit"],
        "something is mapped that CRIU does not know",
        "dump the program when it has unmapped it, or have it do without",
    ),
    means(
        &["SysVIPC shmem map"],
        "shared memory of System V is attached (shmget), which belongs to the machine and not to the program",
        "dump the program when it has detached it, or have it use another kind of shared memory (shm_open, memfd_create)",
    ),
    means(
        &["packetized mode"],
        "a pipe in packet mode is open (pipe2 with O_DIRECT)",
        CLOSE,
    ),
    means(
        &["Can't lookup mount=", "for fd="],
        "a file is open in a file system that is not mounted where the program is: a message queue (mq_open), or a file of other namespaces",
        CLOSE,
    ),
    means(
        &["Can't dump file", "of that type"],
        "a file is open of a kind that CRIU does not know",
        CLOSE,
    ),
    means(
        &["without correspond master peer"],
        "a process of the program has a terminal open whose other end is outside",
        "start it with `hetckpt run`, which gives pipes for terminals, and have it open none (`/dev/tty`)",
    ),
    means(
        &["Only one slave external peer"],
        "the program has several terminals open whose other ends are outside",
        "dump the program when it has one at most",
    ),
    means(
        &["Unable to detach from"],
        "it could not be stopped: it is traced, by a debugger for example, or just ends",
        "detach the debugger or tracer, or end it",
    ),
];

/// The failure `code` of a `criu VERB` that said `reason`.
pub fn failure(code: Code, verb: &str, reason: &str) -> Failure {
    let found = KNOWN
        .iter()
        .find(|known| known.words.iter().all(|words| reason.contains(words)));
    let said = found.and_then(|known| known.meaning).unwrap_or(reason);
    let mut failure = Failure::new(code, format!("criu {verb} failed: {said}"));
    failure.help = found.map(|known| known.help.to_owned());
    match said == reason {
        true => failure,
        false => failure.note(format!("CRIU says: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_in_words_that_help() {
        for (reason, said) in [
            (
                "Can't create link remap for /tmp/x. Use link-remap option.",
                "removed but has another name",
            ),
            ("Unknown shit 100600 (/secretmem (deleted))", "memfd_secret"),
            ("Unknown shit 600 (anon_inode:[io_uring])", "io_uring"),
            ("Unknown shit 20600 (/dev/x)", "does not know"),
            (
                "Task 7 with SysVIPC shmem map @7f1fe13ee000 doesn't live in IPC ns",
                "System V",
            ),
            ("The packetized mode for pipes is not supported yet", "O_DIRECT"),
            ("Can't lookup mount=21 for fd=3 path=/q (deleted)", "message queue"),
            (
                "Can't dump file 3 of that type [600] (anon anon_inode:x)",
                "a kind that CRIU does not know",
            ),
        ] {
            let failure = failure(Code::CriuDump, "dump", reason);
            assert!(failure.message.contains(said), "{reason}: {}", failure.message);
            assert!(failure.notes.iter().any(|note| note.contains(reason)), "{reason}");
            assert!(failure.help.is_some(), "{reason}");
        }
        let tcp = failure(
            Code::CriuDump,
            "dump",
            "Connected TCP socket, consider using --tcp-established option.",
        );
        assert!(tcp.message.contains("Connected TCP socket") && tcp.notes.is_empty() && tcp.help.is_some());
        assert!(failure(Code::CriuRestore, "restore", "something new").help.is_none());
    }
}
