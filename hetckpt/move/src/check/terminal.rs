//! Is there a terminal for a program that had one?
//!
//! Only of a terminal whose other end is outside: one of the program's own comes back by itself, if its number is free.

use hetckpt_ring::failure_code::Code;
use std::io::IsTerminal;
use std::path::Path;

use hetckpt_criu::needs::Needs;
use hetckpt_report::finding::{Finding, listed};

const CHECK: &str = "terminal";

/// Name of the check of numbers.
pub const NUMBERS: &str = "terminal-numbers";

const CODE: Code = Code::Terminal;

/// The finding where a program has a terminal and there can be none for it.
pub fn refuse() -> Finding {
    problem(
        CHECK,
        "the program has a terminal open whose other end is outside of it, and there is none for it here",
        "dump it to an archive, and restore that from a terminal; programs under `hetckpt run` have none open",
    )
}

/// Nothing, if the program had none.
pub fn examine(needs: &Needs) -> Vec<Finding> {
    let terminal = needs.terminals.is_outside.then(|| match std::io::stdin().is_terminal() {
        true => Finding::ok(CHECK, "the program gets the one that is stdin here"),
        false => problem(
            CHECK,
            "the program had a terminal open whose other end was outside of it, and there is none here as stdin",
            "restore it from a terminal (script -qc 'hetckpt restore …' makes one); programs under `hetckpt run` have none open",
        ),
    });
    let numbers = (!needs.terminals.own.is_empty()).then(|| numbers(needs));
    terminal.into_iter().chain(numbers).collect()
}

fn numbers(needs: &Needs) -> Finding {
    let path = |number: &u32| format!("/dev/pts/{number}");
    let taken: Vec<String> = needs
        .terminals
        .own
        .iter()
        .map(path)
        .filter(|path| Path::new(path).exists())
        .collect();
    match taken.is_empty() {
        true => Finding::ok(NUMBERS, "those of the program's own terminals are free"),
        false => problem(
            NUMBERS,
            &format!(
                "the program's own terminals have numbers that are in use here: {}",
                listed(taken.into_iter())
            ),
            "end what has them (`fuser` tells; a terminal of your own may be one, and `script` takes the first that is free), or, as root, restore \
             where all are free: hetckpt restore --namespaces always …",
        ),
    }
}

fn problem(check: &'static str, found: &str, help: &str) -> Finding {
    Finding {
        code: Some(CODE),
        ..Finding::problem(check, found, help)
    }
}
