//! Which terminals of a dump are the program's own, both ends of them, and which have their other end outside.
//!
//! # Source
//! CRIU, `images/tty.proto`, `criu/tty.c`: the two ends of a pseudo-terminal are told by their device numbers and
//! belong together by its number. A restore makes it anew, with that number; `/dev/tty` is whatever its session has.

use std::collections::{BTreeMap, BTreeSet};

use crate::image_messages::{FileEntry, TerminalInfo};

/// The terminals among the open files of a dump.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// One has its other end outside.
    pub is_outside: bool,
    /// Numbers of those that are the program's own.
    pub own: BTreeSet<u32>,
}

impl Terminals {
    /// Of the open `files`, and what the images say of terminals.
    pub fn among(files: &[FileEntry], infos: &[TerminalInfo]) -> Self {
        let by_id: BTreeMap<u32, &TerminalInfo> = infos.iter().map(|info| (info.id, info)).collect();
        let open = files.iter().filter_map(|file| file.terminal.as_ref());
        let open: Vec<Option<&TerminalInfo>> = open.map(|open| by_id.get(&open.info_id).copied()).collect();
        let known = || open.iter().copied().flatten();
        let own: BTreeSet<u32> = known()
            .filter(|info| info.is_master())
            .filter_map(TerminalInfo::number)
            .collect();
        let is_own = |info: &TerminalInfo| info.number().is_some_and(|number| own.contains(&number));
        let sessions: BTreeSet<u32> = known().filter(|info| is_own(info)).map(|info| info.sid).collect();
        let has_own = |info: &TerminalInfo| match info.kind {
            TerminalInfo::OF_SESSION => info.sid != 0 && sessions.contains(&info.sid),
            _ => is_own(info),
        };
        Self {
            is_outside: !open.iter().all(|info| info.is_some_and(has_own)),
            own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_messages::PseudoTerminal;
    use crate::image_messages::Terminal;

    const MASTER: u32 = 0x502;
    const SLAVE: u32 = 0x8803;
    const OF_SESSION: u32 = 0x500;

    fn info(id: u32, device: u32, sid: u32) -> TerminalInfo {
        let is_of_session = device == OF_SESSION;
        TerminalInfo {
            id,
            kind: if is_of_session {
                TerminalInfo::OF_SESSION
            } else {
                TerminalInfo::PSEUDO
            },
            sid,
            device,
            pseudo: (!is_of_session).then_some(PseudoTerminal { number: 3 }),
        }
    }

    fn found(infos: &[TerminalInfo]) -> Terminals {
        let open = |info: &TerminalInfo| FileEntry {
            terminal: Some(Terminal {
                info_id: info.id,
                file_id: None,
            }),
            ..FileEntry::default()
        };
        let files: Vec<FileEntry> = infos.iter().map(open).collect();
        Terminals::among(&files, infos)
    }

    #[test]
    fn a_terminal_with_both_ends_here_is_ones_own() {
        let pair = [info(7, MASTER, 0), info(6, SLAVE, 20)];
        let own = |is_outside| Terminals {
            is_outside,
            own: BTreeSet::from([3]),
        };
        assert_eq!(found(&[]), Terminals::default());
        assert_eq!(found(&pair), own(false));
        assert_eq!(found(&pair[..1]), own(false));
        let outside = found(&pair[1..]);
        assert!(outside.is_outside && outside.own.is_empty());
        let [master, slave] = pair;
        let with_session = |sid| [master.clone(), slave.clone(), info(8, OF_SESSION, sid)];
        assert_eq!(found(&with_session(20)), own(false));
        assert_eq!(found(&with_session(21)), own(true));
    }

    #[test]
    fn what_the_images_do_not_describe_is_outside() {
        let file = FileEntry {
            terminal: Some(Terminal::default()),
            ..FileEntry::default()
        };
        assert!(Terminals::among(&[file], &[]).is_outside);
    }
}
