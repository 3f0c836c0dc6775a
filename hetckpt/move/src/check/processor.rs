//! Has the processor all that the program may have found where it started?

use std::path::Path;
use std::process::{Command, Stdio};

use hetckpt_criu::locate::Criu;
use hetckpt_criu::needs::Needs;
use hetckpt_report::finding::Finding;

const CHECK: &str = "processor";

/// Asks CRIU, which knows what the images say.
pub fn examine(criu: Option<&Criu>, images: &Path, needs: &Needs) -> Finding {
    let Some(criu) = criu.filter(|_| needs.names_processor) else {
        return Finding::warning(
            CHECK,
            "the snapshot does not tell what the processor of the dump's machine could do, so this cannot be checked",
            "dump with `hetckpt dump`, or with `criu dump --cpu-cap=ins`",
        );
    };
    let mut command = Command::new(&criu.program);
    command.args(["cpuinfo", "check", "--cpu-cap=ins", "-D"]).arg(images);
    if !nix::unistd::geteuid().is_root() {
        command.arg("--unprivileged");
    }
    let output = command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Finding::ok(CHECK, "has all that the program may use"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let errors = said.lines().filter(|line| line.contains("cpu:"));
            let words: Vec<&str> = errors
                .filter_map(|line| line.split_once("cpu: "))
                .map(|(_, text)| text)
                .collect();
            if words.is_empty() {
                // As for a user outside of the namespaces in which CRIU may do what it does, which it says on standard
                // output.
                let said = said + String::from_utf8_lossy(&output.stdout);
                let first = said
                    .lines()
                    .next()
                    .unwrap_or("it says nothing")
                    .trim_end_matches([':', ' ']);
                return Finding::warning(
                    CHECK,
                    format!("CRIU cannot compare it with that of the dump here: {first}"),
                    "nothing need be done: the restore compares them before it starts anything",
                );
            }
            Finding::problem(
                CHECK,
                format!("lacks what the program may use: {}", words.join("; ")),
                "restore it on a machine whose processor has what that of the dump has, or try `restore --any-processor`",
            )
        }
        Err(e) => Finding::problem(
            CHECK,
            format!("cannot run {}: {e}", criu.program.display()),
            "install CRIU",
        ),
    }
}
