//! What the front end takes of PTX's instruction forms, and that documentation says so (`BLESS=1` writes it anew).

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write as _;
use std::path::Path;

use hetckpt_conformance::ptx_forms::{Pattern, Table, module};

/// What stands before and behind what is written here.
const BEGIN: &str = "<!-- forms: written by a test, from instrument/conformance/src/ptx_forms.txt -->\n";
const END: &str = "<!-- end of forms -->\n";

/// The front end's reasons for refusing forms of `pattern`.
fn refused(pattern: &Pattern) -> Vec<(String, String)> {
    let forms = pattern.forms();
    let lowered = hetckpt_ptx::lower_module(&module(pattern.target, &forms)).unwrap();
    let form = |name: &str| forms[name[1..].parse::<usize>().unwrap()].clone();
    let rejected = lowered.rejected.iter();
    let refused: Vec<_> = rejected
        .map(|kernel| (form(&kernel.name), kernel.reasons.join("; ")))
        .collect();
    assert_eq!(lowered.kernels.len() + refused.len(), forms.len());
    refused
}

#[test]
fn takes_what_the_table_says() {
    let mut wrong = Vec::new();
    for pattern in Table::read().patterns {
        let (refused, num_forms) = (refused(&pattern), pattern.forms().len());
        let says = |(form, why): &(String, String)| format!("line {}: {form}: {why}", pattern.line);
        match pattern.refused {
            None => wrong.extend(refused.iter().map(says)),
            Some(_) if refused.len() == num_forms => {}
            Some(_) => wrong.push(format!(
                "line {}: {} of {num_forms} forms are taken",
                pattern.line,
                num_forms - refused.len()
            )),
        }
    }
    assert!(wrong.is_empty(), "{} forms:\n{}", wrong.len(), wrong.join("\n"));
}

/// The part of documentation that says which forms are refused.
fn documentation(table: &Table) -> String {
    let count = |patterns: &mut dyn Iterator<Item = &Pattern>| patterns.map(|p| p.forms().len()).sum::<usize>();
    let all = count(&mut table.patterns.iter());
    let taken = count(&mut table.patterns.iter().filter(|p| p.refused.is_none()));
    let mut text = format!("{taken} of {all} forms are taken. The others:\n\n| forms | | why not |\n|---|---|---|\n");
    for (reason, (names, why)) in &table.reasons {
        let refused = count(&mut table.patterns.iter().filter(|p| p.refused == Some(reason)));
        writeln!(text, "| {names} | {refused} | {why} |").unwrap();
    }
    text
}

#[test]
fn documentation_names_what_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptx-support.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected = documentation(&Table::read());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(
        found == expected,
        "docs/ptx-support.md differs (BLESS=1 rewrites it):\n{expected}"
    );
}

#[test]
fn reasons_are_given_and_used() {
    let table = Table::read();
    for pattern in &table.patterns {
        assert!(
            pattern.refused.is_none_or(|reason| table.reasons.contains_key(reason)),
            "line {}",
            pattern.line
        );
    }
    for reason in table.reasons.keys() {
        assert!(table.patterns.iter().any(|p| p.refused == Some(reason)), "{reason}");
    }
}
