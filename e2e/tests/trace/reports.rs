//! What `hetckpt trace` says if it may not trace, or is used wrongly.

use std::process::Command;

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("trace_without_privileges_says_what_is_missing", without_privileges).needs(&[Requirement::Root]),
        Test::new("trace_needs_one_of_a_process_and_a_command", usage).needs(&[]),
        Test::new("trace_of_a_process_that_is_not_there", no_process).needs(&[Requirement::Tracing]),
        Test::new("trace_of_a_command_that_is_not_there", no_command).needs(&[Requirement::Tracing]),
    ]
}

fn without_privileges(context: &mut Context) -> Result<()> {
    let mut command = Command::new("setpriv");
    context.sandbox.equip(&mut command);
    command.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
    command
        .arg(Installation::get().hetckpt())
        .args(["trace", "--json", "--", "true"]);
    let outcome = Running::run(command, PATIENCE)?;
    let said: serde_json::Value = serde_json::from_str(&outcome.stdout)?;
    ensure!(
        outcome.code == 3
            && said["error"]["code"] == "HK0813"
            && outcome.stderr.contains("CAP_BPF")
            && outcome.stderr.contains("CAP_PERFMON"),
        "{}",
        outcome.text()
    );
    Ok(())
}

fn usage(context: &mut Context) -> Result<()> {
    for arguments in [
        &["trace"][..],
        &["trace", "--pid", "1", "--", "true"],
        &["trace", "--for", "x", "--", "true"],
    ] {
        let outcome = hetckpt::run(&context.sandbox, arguments)?;
        ensure!(outcome.code == 2, "{}", outcome.text());
    }
    Ok(())
}

fn no_process(context: &mut Context) -> Result<()> {
    let outcome = hetckpt::run(&context.sandbox, ["trace", "--pid", "4194304"])?;
    ensure!(
        outcome.code == 1 && outcome.stderr.contains("HK0801"),
        "{}",
        outcome.text()
    );
    Ok(())
}

fn no_command(context: &mut Context) -> Result<()> {
    let outcome = hetckpt::run(&context.sandbox, ["trace", "--", "/no/such/program"])?;
    ensure!(
        outcome.code == 127 && outcome.stderr.contains("HK0804"),
        "{}",
        outcome.text()
    );
    Ok(())
}
