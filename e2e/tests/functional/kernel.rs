//! `hetckpt kernel`: a kernel as OpenCL devices get it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};

/// PTX of which every machine has the text, with the kernel `scale`.
const PTX: &str = include_str!("../../../instrument/ptx/tests/filetests/straight_line.ptx");
/// What the code generator calls it.
const ENTRY: &str = "hetckpt_scale";

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("kernel_as_opencl_c", as_opencl_c).needs(&[]),
        Test::new("kernel_as_spirv", as_spirv).needs(&[]),
        Test::new("kernel_of_what_is_no_ptx", of_no_ptx).needs(&[]),
    ]
}

/// `hetckpt kernel STAGE`.
fn shown(context: &Context, stage: &str, more: &[&str]) -> Result<Outcome> {
    let file = context.sandbox.path("kernel.ptx");
    std::fs::write(&file, PTX)?;
    let mut command = hetckpt::command(&context.sandbox, ["kernel", stage]);
    command.arg(&file).args(more);
    Running::run(command, hetckpt::PATIENCE)
}

fn as_opencl_c(context: &mut Context) -> Result<()> {
    let text = shown(context, "opencl", &[])?.success("kernel opencl")?.stdout;
    let (_, head) = text
        .split_once("__kernel")
        .with_context(|| format!("no kernel: {text}"))?;
    ensure!(head.contains(&format!("void {ENTRY}(")), "it has another name: {text}");
    let other = shown(context, "opencl", &["--name", "no_such_kernel"])?;
    ensure!(
        other.code == 1 && other.stderr.contains("HK0805") && other.stdout.is_empty(),
        "{}",
        other.text()
    );
    let Some(clang) = on_path("clang") else {
        context.note("there is no clang: it was not compiled");
        return Ok(());
    };
    let source = context.sandbox.path("kernel.cl");
    std::fs::write(&source, text)?;
    let mut command = Command::new(clang);
    command.args(["-x", "cl", "-cl-std=CL1.2", "-fsyntax-only"]);
    command.args(["-Xclang", "-finclude-default-header"]).arg(source);
    command.stdin(Stdio::null());
    Running::run(command, hetckpt::PATIENCE)?.success("clang")?;
    Ok(())
}

/// The file is named, and what is wrong with it.
fn of_no_ptx(context: &mut Context) -> Result<()> {
    let file = context.sandbox.path("kernel.ptx");
    std::fs::write(&file, ".version 7.0\n.global .u32 = 5;\n")?;
    let mut command = hetckpt::command(&context.sandbox, ["kernel", "ir"]);
    command.arg(&file);
    let outcome = Running::run(command, hetckpt::PATIENCE)?;
    let words = ["error[HK0805]", "kernel.ptx", "the PTX cannot be read", "line 2"];
    let has_all = words.iter().all(|word| outcome.stderr.contains(word));
    ensure!(outcome.code == 1 && has_all, "{}", outcome.text());
    Ok(())
}

fn as_spirv(context: &mut Context) -> Result<()> {
    let outcome = shown(context, "spirv", &[])?;
    let lacks = ["there is no such pair", "cannot run spirv-dis"];
    if outcome.code == 3 && lacks.iter().any(|what| outcome.stderr.contains(what)) {
        ensure!(outcome.stderr.contains("HK0805"), "{}", outcome.text());
        context.note("clang, llvm-spirv or spirv-dis is missing: this was said, and no more could be tried");
        return Ok(());
    }
    let text = outcome.success("kernel spirv")?.stdout;
    let entry = text.lines().find(|line| line.contains("OpEntryPoint Kernel"));
    ensure!(
        entry.is_some_and(|line| line.contains(&format!("\"{ENTRY}\""))),
        "no entry point of its name: {text}"
    );
    Ok(())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder: PathBuf| Path::join(&folder, program))
        .find(|file| file.is_file())
}
