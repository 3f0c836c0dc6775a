//! Every kernel's OpenCL C becomes SPIR-V that `spirv-val` takes and that needs no functions from elsewhere.

use std::path::Path;
use std::process::Command;

use hetckpt_abi::opencl_program::OpenClProgram;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_codegen::spirv::{Compiler, disassemble};

use crate::kernels;

/// OpenCL 2.2's rules; without them where a kernel has 64-bit atomics, which are an extension that spirv-val does not
/// know.
const ENVIRONMENTS: [&str; 2] = ["opencl2.2", "spv1.2"];

fn is_installed(program: &str) -> bool {
    let answer = Command::new(program).arg("--version").output();
    answer.is_ok_and(|answer| answer.status.success())
}

/// What is wrong with the module, if anything.
fn refusal(compiler: &Compiler, generated: &OpenClProgram, file: &Path) -> Option<String> {
    let module = match compiler.binary(generated) {
        Ok(module) => module,
        Err(error) => return Some(error.to_string()),
    };
    std::fs::write(file, &module).unwrap();
    let has_wide_atomics = generated.requires.int64_base_atomics || generated.requires.int64_extended_atomics;
    let environment = ENVIRONMENTS[usize::from(has_wide_atomics)];
    let checked = Command::new("spirv-val")
        .args(["--target-env", environment])
        .arg(file)
        .output();
    let checked = checked.unwrap();
    if !checked.status.success() {
        return Some(String::from_utf8_lossy(&checked.stderr).into_owned());
    }
    let text = disassemble(&module).unwrap();
    let is_import = |line: &&str| line.ends_with("Import") && !line.contains("BuiltIn");
    text.lines().find(is_import).map(str::to_owned)
}

#[test]
fn every_kernel_becomes_valid_spirv() {
    let compiler = match Compiler::find() {
        Ok(compiler) if is_installed("spirv-val") => compiler,
        Ok(_) => {
            eprintln!("skipped: every_kernel_becomes_valid_spirv (no spirv-val)");
            return;
        }
        Err(why) => {
            eprintln!("skipped: every_kernel_becomes_valid_spirv ({why})");
            return;
        }
    };
    let folder = std::env::temp_dir().join(format!("hetckpt-spirv-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut refused, mut count) = (Vec::new(), 0);
    for (file, kernel) in kernels::probed() {
        let layout = ThreadStateLayout::new(&kernel);
        let program = Program::from_start(kernel);
        for block_list in [false, true] {
            let options = OpenClOptions {
                block_list,
                ..OpenClOptions::default()
            };
            // What OpenCL C has no form for, another test is about.
            let Ok(generated) = generate(&program, &layout, &options) else {
                continue;
            };
            count += 1;
            let module = folder.join(format!("{file}-{count}.spv"));
            if let Some(words) = refusal(&compiler, &generated, &module) {
                refused.push(format!("{}: {words}", module.display()));
            }
        }
    }
    println!("{count} programs are valid SPIR-V");
    assert!(count > 0);
    assert!(
        refused.is_empty(),
        "{} of {count} are not, kept in {}:\n{}",
        refused.len(),
        folder.display(),
        refused.join("\n")
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
