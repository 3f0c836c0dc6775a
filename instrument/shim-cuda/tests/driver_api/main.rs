//! The driver API as a program sees it, with a small server at the other end of the ring.
//!
//! This executable is both: started by the library with `--pid`, it is the server; with a case's name, the program of
//! that case, in a process of its own because a broken device stays broken; otherwise it runs all cases.
#![allow(
    unsafe_code,
    clippy::macro_metavars_in_unsafe,
    reason = "calls the library as C programs do"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod api;
mod array_cases;
mod cases;
mod library_cases;
mod server;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Far beyond what a case needs: a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if let Some(pid) = value_of("--pid") {
        server::serve(pid.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    if let Some(name) = value_of("--case") {
        let (_, case) = all().find(|(known, _)| *known == name).unwrap();
        case();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        all().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    run_all(
        arguments
            .iter()
            .find(|argument| !argument.starts_with('-'))
            .map(String::as_str),
    )
}

fn all() -> impl Iterator<Item = &'static cases::Case> {
    cases::ALL.iter().chain(library_cases::ALL).chain(array_cases::ALL)
}

fn run_all(filter: Option<&str>) -> ExitCode {
    let own = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut num_failed = 0;
    for (name, _) in all().filter(|(name, _)| filter.is_none_or(|part| name.contains(part))) {
        let mut program = Command::new(&own)
            .args(["--case", name])
            .env("HETCKPT_SERVER", &own)
            .env("HETCKPT_RUNTIME_DIR", dir.path())
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("CUDA_LAUNCH_BLOCKING")
            .env_remove("CUDA_MODULE_LOADING")
            .spawn()
            .unwrap();
        let start = Instant::now();
        let passed = loop {
            if let Some(status) = program.try_wait().unwrap() {
                break status.success();
            }
            if start.elapsed() > PATIENCE {
                println!("{name} hangs");
                program.kill().unwrap();
                program.wait().unwrap();
                break false;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        num_failed += usize::from(!passed);
    }
    if num_failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
