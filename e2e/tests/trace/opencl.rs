//! Calls of OpenCL programs that do not run under hetckpt, beside the counts of a library that stands before OpenCL's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

use super::{compile, list, named, trace_command, traced};

/// Test programs that work on any OpenCL device for CPUs. Not those with vectors of 16: PoCL 3.1 does not build these
/// for processors without AVX-512.
const PROGRAMS: [&str; 3] = ["cl_matmul", "cl_histogram", "cl_api"];

/// The tests.
pub fn tests() -> Vec<Test> {
    let needs = [
        Requirement::Tracing,
        Requirement::OpenclDevice,
        Requirement::OpenclPrograms,
    ];
    let mut tests: Vec<Test> = PROGRAMS
        .into_iter()
        .map(|name| {
            let body = move |context: &mut Context| counts_all_calls(context, &Installation::get().programs.join(name));
            Test::new(format!("trace_counts_every_call/{name}"), body).needs(&needs)
        })
        .collect();
    tests.push(Test::new("trace_counts_every_call/clinfo", clinfo).needs(&[Requirement::Tracing, Requirement::Clinfo]));
    tests.push(Test::new("trace_tells_kernels_and_memory_of_opencl", kernels_and_memory).needs(&needs));
    tests
}

/// Compiles the library that counts, for all functions of the OpenCL loader.
fn compile_counter(sandbox: &Sandbox) -> Result<PathBuf> {
    let listed = Command::new("sh")
        .args(["-c", "nm -D --defined-only \"$(gcc -print-file-name=libOpenCL.so)\""])
        .output()?;
    let text = String::from_utf8(listed.stdout)?;
    let names = text.lines().filter_map(|line| line.split_whitespace().nth(2));
    let names = names.map(|name| name.split('@').next().unwrap_or(name));
    let wrappers: Vec<String> = names
        .filter(|name| name.starts_with("cl"))
        .map(|name| format!("COUNT({name})\n"))
        .collect();
    ensure!(wrappers.len() > 100, "nm lists {} functions of OpenCL", wrappers.len());
    fs::write(sandbox.path("functions.h"), wrappers.concat())?;
    compile(
        sandbox,
        "count_calls.so",
        include_str!("count_calls.c"),
        &["-shared", "-fPIC", "-ldl"],
    )
}

/// What the library has counted.
fn reference(sandbox: &Sandbox) -> Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string(sandbox.path("counts")).context("the counting library was not loaded")?;
    let rows = text.lines().filter_map(|line| line.split_once(' '));
    rows.map(|(name, count)| Ok((name.to_owned(), count.parse()?)))
        .collect()
}

/// What the trace has counted of the loader's functions.
fn of_loader(measured: &Value) -> Result<BTreeMap<String, u64>> {
    let rows = list(measured, "functions")?.iter();
    let loader = |row: &&Value| {
        row["library"]
            .as_str()
            .is_some_and(|name| name.starts_with("libOpenCL.so"))
    };
    let rows = rows.filter(loader);
    rows.map(|row| {
        let name = row["name"].as_str().context("no name")?.to_owned();
        Ok((name, row["calls"].as_u64().context("no count")?))
    })
    .collect()
}

fn counts_all_calls(context: &mut Context, program: &std::path::Path) -> Result<()> {
    let sandbox = &context.sandbox;
    let words = |name: &str, path: PathBuf| {
        let mut word = OsString::from(name);
        word.push(path);
        word
    };
    let command = trace_command(
        sandbox,
        [
            "env".into(),
            words("LD_PRELOAD=", compile_counter(sandbox)?),
            words("CALL_COUNTS=", sandbox.path("counts")),
            program.into(),
        ],
    );
    let (outcome, measured) = traced(command)?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    let (expected, counted) = (reference(sandbox)?, of_loader(&measured)?);
    ensure!(
        expected == counted && !expected.is_empty(),
        "the library counted {expected:?}\nthe trace {counted:?}"
    );
    let all_returned = list(&measured, "functions")?
        .iter()
        .all(|row| row["calls"] == row["returns"]);
    ensure!(all_returned && measured["lost"] == 0, "{measured}");
    let sum: u64 = expected.values().sum();
    context.note(format!("{sum} calls of {} functions", expected.len()));
    Ok(())
}

fn clinfo(context: &mut Context) -> Result<()> {
    counts_all_calls(context, std::path::Path::new("clinfo"))
}

/// `cl_matmul` multiplies matrices of 128 rows: two of floats, one sum in double for each element.
fn kernels_and_memory(context: &mut Context) -> Result<()> {
    const ELEMENTS: u64 = 128 * 128;
    let program = Installation::get().programs.join("cl_matmul");
    let (outcome, measured) = traced(trace_command(&context.sandbox, [program]))?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    let kernels = list(&measured, "kernels")?;
    ensure!(kernels.len() == 1, "{measured}");
    ensure!(
        named(&measured, "kernels", "matmul")?["launches"] == 1,
        "one launch was to be seen: {measured}"
    );
    let [process] = &list(&measured, "processes")?[..] else {
        anyhow::bail!("one process was to be seen: {measured}");
    };
    ensure!(
        process["allocations"] == 3
            && process["frees"] == 3
            && process["peak_bytes"] == ELEMENTS * 16
            && process["live_bytes"] == 0,
        "{process}"
    );
    let read = named(&measured, "functions", "clEnqueueReadBuffer")?;
    ensure!(read["bytes"] == ELEMENTS * 8, "{read}");
    Ok(())
}
