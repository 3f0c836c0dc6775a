//! Feeds generated PTX to NVIDIA's assembler: every kernel of the front end's file tests and of the test programs,
//! plain, probed, and as the continuation of each of its resume points. And the list of PTX's instruction forms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests that are skipped say so")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{PtxOptions, generate};
use hetckpt_conformance::ptx_forms::{Table, module};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};

const SHARED_BASE: u32 = 1024;

/// The assembler, where it is installed.
fn ptxas() -> Option<PathBuf> {
    let mut folders = vec![PathBuf::from("/usr/local/cuda/bin"), PathBuf::from("/opt/nvcc13/bin")];
    if let Some(dir) = std::env::var_os("HETCKPT_NVCC_DIR") {
        folders.insert(0, PathBuf::from(dir).join("bin"));
    }
    if let Some(home) = std::env::var_os("HOME") {
        folders.push(PathBuf::from(home).join(".cache/hetckpt/nvcc-13.0/bin"));
    }
    folders
        .into_iter()
        .map(|folder| folder.join("ptxas"))
        .find(|path| path.exists())
}

/// PTX texts: those of the front end's tests, and those of the test programs if they have been built.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("instrument/ptx/tests/filetests"), root.join("target/e2e/ptx")];
    folders.extend(std::env::var_os("HETCKPT_TEST_PTX_DIR").map(PathBuf::from));
    let mut texts = Vec::new();
    for folder in folders {
        let Ok(files) = std::fs::read_dir(folder) else { continue };
        for path in files
            .flatten()
            .map(|file| file.path())
            .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            texts.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    texts.sort();
    texts
}

/// Kernels of a text, their variables bound to made-up addresses.
fn kernels(text: &str) -> Vec<Kernel> {
    let Ok(module) = hetckpt_ptx::lower_module(text) else {
        return Vec::new();
    };
    let addresses: BTreeMap<String, u64> = module
        .globals
        .iter()
        .zip(1u64..)
        .map(|(g, i)| (g.name.clone(), 0x2000_0000_0000 + (i << 20)))
        .collect();
    let mut kernels = module.kernels;
    kernels.retain_mut(|kernel| bind_globals(kernel, &addresses).is_ok());
    kernels
}

/// Assembles `text`; the assembler's words if it refuses.
fn assemble(ptxas: &Path, text: &str, sm: impl std::fmt::Display, name: &str) -> Result<String, String> {
    let source = std::env::temp_dir().join(format!("hetckpt-ptxas-{}-{name}.ptx", std::process::id()));
    std::fs::write(&source, text).unwrap();
    let output = Command::new(ptxas)
        .args([
            "-v",
            "--suppress-stack-size-warning",
            &format!("-arch=sm_{sm}"),
            "-o",
            "/dev/null",
        ])
        .arg(&source)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        std::fs::remove_file(&source).unwrap();
        Ok(words)
    } else {
        Err(format!("{}: {words}", source.display()))
    }
}

fn options(sm: u32) -> PtxOptions {
    PtxOptions {
        sm,
        shared_base: SHARED_BASE,
        ..PtxOptions::default()
    }
}

/// The texts that one kernel gives: what each is, and its PTX.
fn forms(kernel: &Kernel, sm: u32) -> Vec<(String, String)> {
    let plain = Program::from_start(kernel.clone());
    let mut forms = Vec::new();
    let layout = ThreadStateLayout::new(kernel);
    forms.push((
        "plain".to_owned(),
        generate(&plain, &layout, &options(sm)).unwrap().text,
    ));
    let Ok(probed) = hetckpt_probes::probe(kernel, &Options::default()) else {
        return forms;
    };
    let layout = ThreadStateLayout::new(&probed);
    let program = Program::from_start(probed.clone());
    match generate(&program, &layout, &options(sm)) {
        Ok(generated) => forms.push(("probed".to_owned(), generated.text)),
        Err(error) => {
            assert!(
                error.to_string().contains("only barriers of the whole block"),
                "{error}"
            );
            return forms;
        }
    }
    let points: Vec<ResumePointId> = (0u32..).map(ResumePointId).take(probed.resume_points.len()).collect();
    let all = continuation(&probed, &points, Peel::None).unwrap();
    forms.push((
        "continued".to_owned(),
        generate(&all, &layout, &options(sm)).unwrap().text,
    ));
    let out_of_step = PtxOptions {
        in_step: false,
        ..options(sm)
    };
    forms.push((
        "out_of_step".to_owned(),
        generate(&all, &layout, &out_of_step).unwrap().text,
    ));
    let peeled = continuation(&probed, &points, Peel::Loops).unwrap();
    forms.push((
        "peeled".to_owned(),
        generate(&peeled, &layout, &options(sm)).unwrap().text,
    ));
    for &point in points.iter().filter(|p| p.0 > 0 && p.0 % 7 == 1) {
        let one = continuation(&probed, &[point], Peel::Loops).unwrap();
        forms.push((
            format!("from_{point}"),
            generate(&one, &layout, &options(sm)).unwrap().text,
        ));
    }
    forms
}

#[test]
fn assembles_every_form_of_every_kernel() {
    let Some(ptxas) = ptxas() else {
        eprintln!("skipped: assembles_every_form_of_every_kernel (no ptxas)");
        return;
    };
    let mut refused = Vec::new();
    let mut count = 0;
    for (file, text) in texts() {
        for kernel in kernels(&text) {
            for sm in [80, 90] {
                for (form, ptx) in forms(&kernel, sm) {
                    count += 1;
                    if let Err(words) = assemble(&ptxas, &ptx, sm, &format!("{file}-{}-{form}-{sm}", kernel.name)) {
                        refused.push(words);
                    }
                }
            }
        }
    }
    assert!(count > 0);
    assert!(
        refused.is_empty(),
        "{} of {count} refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

/// The list that the front end is compared with is the assembler's.
#[test]
fn takes_every_listed_form() {
    let Some(ptxas) = ptxas() else {
        eprintln!("skipped: takes_every_listed_form (no ptxas)");
        return;
    };
    let mut forms: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pattern in Table::read().patterns {
        forms.entry(pattern.target).or_default().extend(pattern.forms());
    }
    for (target, forms) in forms {
        assemble(&ptxas, &module(target, &forms), target, "forms").unwrap();
    }
}

#[test]
fn generates_the_same_text_each_time() {
    for (file, text) in texts() {
        for kernel in kernels(&text) {
            assert_eq!(forms(&kernel, 90), forms(&kernel, 90), "{file}");
        }
    }
}
