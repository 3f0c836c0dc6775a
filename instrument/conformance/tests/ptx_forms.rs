//! What the front end takes of PTX's instruction forms.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use hetckpt_conformance::ptx_forms::{Pattern, Table, module};

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
