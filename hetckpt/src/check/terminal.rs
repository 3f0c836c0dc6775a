//! Is there a terminal for a program that had one?

use std::io::IsTerminal;

use crate::criu::needs::Needs;
use crate::finding::Finding;

const CHECK: &str = "terminal";

/// The finding where a program has a terminal and there can be none for it.
pub fn refuse() -> Finding {
    Finding {
        code: Some("HK0908".to_owned()),
        ..Finding::problem(
            CHECK,
            "the program has a terminal open, and there is none for it here",
            "dump it to an archive, and restore that from a terminal; programs under `hetckpt run` have none open",
        )
    }
}

/// Nothing, if the program had none.
pub fn examine(needs: &Needs) -> Option<Finding> {
    let finding = match (needs.has_terminal, std::io::stdin().is_terminal()) {
        (false, _) => return None,
        (true, true) => Finding::ok(CHECK, "the program gets the one that is stdin here"),
        (true, false) => Finding {
            code: Some("HK0908".to_owned()),
            ..Finding::problem(
                CHECK,
                "the program had a terminal open, and there is none here as stdin",
                "restore it from a terminal (script -qc 'hetckpt restore …' makes one); programs under `hetckpt run` have none open",
            )
        },
    };
    Some(finding)
}
