//! Runs tests one after another and says of each, by name, whether it passed, failed or was skipped, and why.
//!
//! The built-in harness can neither skip a test at run time nor limit its time; both matter here.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the module that prints"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::installation::Requirement;
use crate::random::{Random, seed};
use crate::sandbox::Sandbox;
use crate::user;

/// Time after which a test has failed, and whatever it started is killed.
const LIMIT: Duration = Duration::from_secs(300);

/// What a test does.
type Body = dyn Fn(&mut Context) -> Result<()>;

/// A test.
pub struct Test {
    name: String,
    needs: Vec<Requirement>,
    limit: Duration,
    body: Box<Body>,
}

impl Test {
    /// A test that needs what every dump needs.
    pub fn new(name: impl Into<String>, body: impl Fn(&mut Context) -> Result<()> + 'static) -> Self {
        let needs = vec![Requirement::Privileges, Requirement::Criu, Requirement::Programs];
        Self {
            name: name.into(),
            needs,
            limit: LIMIT,
            body: Box::new(body),
        }
    }

    /// Needs exactly `needs`.
    #[must_use]
    pub fn needs(mut self, needs: &[Requirement]) -> Self {
        self.needs = needs.to_vec();
        self
    }

    /// Needs `more` besides.
    #[must_use]
    pub fn also_needs(mut self, more: Requirement) -> Self {
        self.needs.push(more);
        self
    }

    /// May take `times` as long.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.limit = LIMIT * times.max(1);
        self
    }
}

/// What a running test has.
pub struct Context {
    /// Its folder and processes.
    pub sandbox: Sandbox,
    /// Its random numbers.
    pub random: Random,
    name: String,
}

impl Context {
    /// Prints a line below the test's name.
    pub fn note(&self, text: impl AsRef<str>) {
        println!("    {}: {}", self.name, text.as_ref());
    }
}

/// What the command line asks for.
#[derive(Default)]
struct Selection {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
}

impl Selection {
    fn from_arguments() -> Self {
        let mut selection = Self::default();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => selection.exact = true,
                "--list" => selection.list = true,
                "--skip" => selection.skip.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" => drop(arguments.next()),
                // Those of the built-in harness that change nothing here.
                flag if flag.starts_with('-') => {}
                filter => selection.filters.push(filter.to_owned()),
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact {
                filter == name
            } else {
                name.contains(filter.as_str())
            }
        };
        !self.skip.iter().any(matches) && (self.filters.is_empty() || self.filters.iter().any(matches))
    }
}

/// Runs those of `tests` that the command line names.
#[must_use]
pub fn main(tests: Vec<Test>) -> ExitCode {
    let selection = Selection::from_arguments();
    let tests: Vec<Test> = tests.into_iter().filter(|test| selection.takes(&test.name)).collect();
    if selection.list {
        tests.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    if let Err(error) = user::find() {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    let seed = seed();
    println!("\nrunning {} tests, HETCKPT_SEED={seed}", tests.len());
    let (mut passed, mut skipped, mut failed) = (0, vec![], vec![]);
    for test in &tests {
        if let Some(reason) = test.needs.iter().find_map(|need| need.missing()) {
            println!("test {} ... skipped: {reason}", test.name);
            skipped.push(test.name.as_str());
            continue;
        }
        let started = Instant::now();
        match run(test, seed) {
            Ok(()) => {
                println!("test {} ... ok ({:.1} s)", test.name, started.elapsed().as_secs_f64());
                passed += 1;
            }
            Err(report) => {
                println!(
                    "test {} ... FAILED ({:.1} s)\n{report}",
                    test.name,
                    started.elapsed().as_secs_f64()
                );
                failed.push(test.name.as_str());
            }
        }
    }
    for (what, names) in [("skipped", &skipped), ("failed", &failed)] {
        if !names.is_empty() {
            println!("\n{what}: {}", names.join(", "));
        }
    }
    println!(
        "\ntest result: {passed} passed, {} failed, {} skipped",
        failed.len(),
        skipped.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs one test; what it left running is killed, also when its time is up.
fn run(test: &Test, seed: u64) -> Result<(), String> {
    let sandbox = Sandbox::new().map_err(|error| format!("{error:#}"))?;
    let random = Random::for_test(seed, &test.name);
    let mut context = Context {
        sandbox,
        random,
        name: test.name.clone(),
    };
    let (done, is_done) = channel::<()>();
    let result = std::thread::scope(|scope| {
        let runtime_dir = context.sandbox.runtime_dir();
        let limit = test.limit;
        scope.spawn(move || {
            if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the test's time of {limit:?} is up: its processes are killed");
                crate::sandbox::kill_processes_of(&runtime_dir);
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| (test.body)(&mut context)));
        // The watchdog has already left if its time was up.
        let _ = done.send(());
        result
    });
    let report = match result {
        Ok(Ok(())) => return Ok(()),
        // Each cause on its own line; a backtrace would only lead into this file.
        Ok(Err(error)) => error
            .chain()
            .map(|cause| format!("    {cause}"))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(_) => "it panicked (see above)".to_owned(),
    };
    Err(format!(
        "{report}\nrepeat with HETCKPT_SEED={seed}\n{}",
        context.sandbox.logs()
    ))
}
