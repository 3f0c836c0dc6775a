//! Another device of this node, where one has failed.

use std::process::{Command, Stdio};

use serde::Deserialize;

/// A row of `hetckpt devices --json`.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    kind: String,
}

/// The device to take where `wanted` is, but for those that `failed`.
pub fn other_than(wanted: &str, failed: &[String]) -> String {
    if failed.is_empty() || wanted != "auto" {
        return wanted.to_owned();
    }
    choose(&list(), failed)
}

/// What `auto` would take of the others: the first GPU, else the CPU.
fn choose(all: &[Row], failed: &[String]) -> String {
    let left = all.iter().find(|row| row.kind == "cuda" && !failed.contains(&row.id));
    left.map_or_else(|| "cpu".to_owned(), |row| row.id.clone())
}

/// Those that can be listed: a driver that has failed may hide them.
fn list() -> Vec<Row> {
    let Ok(program) = std::env::current_exe() else {
        return vec![];
    };
    let mut command = Command::new(program);
    command
        .args(["devices", "--json"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice(&output).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_gpu_is_taken_and_then_the_cpu() {
        let row = |id: &str, kind: &str| Row {
            id: id.to_owned(),
            kind: kind.to_owned(),
        };
        let all = [
            row("cuda:0", "cuda"),
            row("cuda:1", "cuda"),
            row("opencl:0:0", "opencl"),
            row("cpu", "cpu"),
        ];
        assert_eq!(choose(&all, &["cuda:0".into()]), "cuda:1");
        assert_eq!(choose(&all, &["cuda:0".into(), "cuda:1".into()]), "cpu");
        assert_eq!(other_than("opencl", &["opencl:0:0".into()]), "opencl");
    }
}
