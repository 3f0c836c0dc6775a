//! Runs end-to-end tests side by side, most of which wait most of the time, and then one by one those that must have
//! the machine to themselves. `libtest_mimic` runs and reports; here is what it has not: requirements, a limit of time,
//! what a test is given.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the module that prints"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Arguments, Completion, Trial};
use parking_lot::Mutex;

use crate::installation::Requirement;
use crate::random::{Random, seed};
use crate::sandbox::Sandbox;
use crate::user;

/// Time after which a test has failed, and whatever it started is killed.
const LIMIT: Duration = Duration::from_secs(300);
/// Tests at a time for each processor: programs sleep or wait for CRIU's system calls more than they compute.
const SLOTS_PER_PROCESSOR: usize = 3;
/// Lines of each failure that are printed again at the end.
const REPEATED_LINES: usize = 40;

/// What a test does.
type Body = dyn Fn(&mut Context) -> Result<()> + Send;

/// A test.
pub struct Test {
    name: String,
    needs: Vec<Requirement>,
    limit: Duration,
    is_alone: bool,
    body: Box<Body>,
}

impl Test {
    /// A test that needs what every dump needs.
    pub fn new(name: impl Into<String>, body: impl Fn(&mut Context) -> Result<()> + Send + 'static) -> Self {
        let needs = vec![Requirement::Privileges, Requirement::Criu, Requirement::Programs];
        Self {
            name: name.into(),
            needs,
            limit: LIMIT,
            is_alone: false,
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

    /// Runs while no other test does: because it measures, or looks at what all tests share.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    fn into_trial(self, seed: u64, failures: Arc<Mutex<Vec<String>>>) -> Trial {
        Trial::ignorable_test(self.name.clone(), move || {
            if let Some(reason) = self.needs.iter().find_map(|need| need.missing()) {
                return Ok(Completion::ignored_with(reason));
            }
            match run(&self, seed) {
                Ok(()) => Ok(Completion::Completed),
                Err(report) => {
                    failures.lock().push(format!("{}:\n{report}", self.name));
                    Err(report.into())
                }
            }
        })
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
    /// Prints a line that begins with the test's name.
    pub fn note(&self, text: impl AsRef<str>) {
        println!("    {}: {}", self.name, text.as_ref());
    }
}

/// What the command line asks for. `libtest_mimic` takes one part of a name only.
#[derive(Default)]
struct Selection {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    slots: Option<usize>,
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
                "--test-threads" => selection.slots = arguments.next().and_then(|number| number.parse().ok()),
                "--format" | "--color" => drop(arguments.next()),
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

    /// Tests at a time.
    fn slots(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.slots.unwrap_or_else(|| processors() * SLOTS_PER_PROCESSOR)
    }
}

/// Runs those tests of the `suites` that the command line names. A test is called by its suite and its own name.
#[must_use]
pub fn main(suites: Vec<(&str, Vec<Test>)>) -> ExitCode {
    let selection = Selection::from_arguments();
    let named = suites.into_iter().flat_map(|(suite, tests)| {
        tests.into_iter().map(move |test| Test {
            name: format!("{suite}::{}", test.name),
            ..test
        })
    });
    let tests = named.filter(|test| selection.takes(&test.name));
    let (alone, together): (Vec<Test>, Vec<Test>) = tests.partition(|test| test.is_alone);
    if let Err(error) = user::find() {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    let seed = seed();
    println!("HETCKPT_SEED={seed}");
    let failures = Arc::default();
    let mut has_failed = false;
    for (tests, slots) in [(together, selection.slots()), (alone, 1)] {
        if tests.is_empty() {
            continue;
        }
        let arguments = Arguments {
            list: selection.list,
            test_threads: Some(slots),
            ..Arguments::default()
        };
        let trials = tests
            .into_iter()
            .map(|test| test.into_trial(seed, Arc::clone(&failures)));
        has_failed |= libtest_mimic::run(&arguments, trials.collect()).has_failed();
    }
    repeat(&failures.lock());
    if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints how tests failed once more: the end is what is kept of a long output, and the tests that run alone come after
/// the first reports.
fn repeat(failures: &[String]) {
    for failure in failures {
        let lines: Vec<&str> = failure.lines().take(REPEATED_LINES).collect();
        eprintln!("\nfailed: {}", lines.join("\n"));
    }
}

/// Runs one test; what it left running is killed, also when its time is up.
fn run(test: &Test, seed: u64) -> Result<(), String> {
    let started = Instant::now();
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
        Ok(Ok(())) => {
            context.note(format!("{:.1} s", started.elapsed().as_secs_f64()));
            return Ok(());
        }
        // Each cause on its own line; a backtrace would only lead into this file.
        Ok(Err(error)) => error
            .chain()
            .map(|cause| format!("    {cause}"))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(_) => "it panicked (see above)".to_owned(),
    };
    Err(format!(
        "{report}\nafter {:.1} s; repeat with HETCKPT_SEED={seed}\n{}",
        started.elapsed().as_secs_f64(),
        context.sandbox.logs()
    ))
}
