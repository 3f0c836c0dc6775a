//! What OpenCL programs may ask of the compiler: built, run and compared with what the programs compute themselves.

use anyhow::{Result, ensure};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::program;
use hetckpt_e2e::runner::{Context, Test};

/// The tests.
pub fn tests() -> Vec<Test> {
    let test = |name: &str, program: &'static str| {
        Test::new(name, move |context| passes(context, program)).needs(&[Requirement::OpenclPrograms])
    };
    vec![
        test("opencl_integer_functions_are_right", "cl_integers"),
        test("opencl_language_is_whole", "cl_language"),
        test("opencl_programs_are_linked_and_have_binaries", "cl_separate"),
    ]
}

fn passes(context: &mut Context, name: &str) -> Result<()> {
    let outcome = Job::start_with(&context.sandbox, &program::command(name, &[]), "cpu", |_| ())?.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
        "{}",
        outcome.text()
    );
    Ok(())
}
