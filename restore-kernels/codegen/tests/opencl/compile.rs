//! Feeds every kernel's OpenCL C to clang.

use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{Error, OpenClOptions, generate};

use crate::kernels;

/// Devices whose OpenCL compilers are clang: a portable one, and AMD's.
const TARGETS: [&[&str]; 4] = [
    &["-target", "spir64-unknown-unknown"],
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a"],
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100"],
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942"],
];

/// The newest clang of the distribution, else the one on `PATH`.
fn clang() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?;
            let path = entry.path().join("bin/clang");
            path.exists().then_some((version, path))
        })
        .collect();
    found.sort();
    let on_path = || {
        let answer = Command::new("clang").arg("--version").output();
        answer.is_ok_and(|o| o.status.success()).then(|| PathBuf::from("clang"))
    };
    found.pop().map(|(_, path)| path).or_else(on_path)
}

/// True if this clang knows the target.
fn knows(clang: &Path, target: &[&str]) -> bool {
    let output = Command::new(clang)
        .args(target)
        .args(["-x", "cl", "-nogpulib", "-S", "-emit-llvm", "-o", "-", "/dev/null"])
        .output();
    output.is_ok_and(|o| o.status.success())
}

/// The compiler's words if it refuses or warns.
fn compile(clang: &Path, target: &[&str], source: &Path) -> Result<(), String> {
    let output = Command::new(clang)
        .args(["-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"])
        .args(["-Werror", "-Wall", "-Wno-unused-function", "-Wno-unused-variable"])
        .args(["-Wno-unused-but-set-variable", "-Wno-parentheses", "-nogpulib", "-O1"])
        .args(["-S", "-emit-llvm", "-o", "/dev/null"])
        .args(target)
        .arg(source)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Kernels that OpenCL C cannot say, or that not all threads of a block run alike, are errors that say where.
fn is_told(error: &Error) -> bool {
    matches!(error, Error::NoForm { .. })
}

#[test]
fn compiles_every_kernel() {
    let Some(clang) = clang() else {
        eprintln!("skipped: compiles_every_kernel (no clang)");
        return;
    };
    let folder = std::env::temp_dir().join(format!("hetckpt-opencl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (targets, unknown): (Vec<_>, Vec<_>) = TARGETS.into_iter().partition(|target| knows(&clang, target));
    for target in unknown {
        eprintln!(
            "skipped: compiles_every_kernel for {target:?} (unknown to {})",
            clang.display()
        );
    }
    let (mut refused, mut told, mut count) = (Vec::new(), Vec::new(), 0);
    for (file, kernel) in kernels::probed() {
        let layout = ThreadStateLayout::new(&kernel);
        let name = kernel.name.clone();
        let generated = match generate(&Program::from_start(kernel), &layout, &OpenClOptions::default()) {
            Ok(generated) => generated,
            Err(error) => {
                assert!(is_told(&error), "{file}: {error}");
                told.push(format!("{file}: {error}"));
                continue;
            }
        };
        let in_several = generated.with_memory_in(3, 35);
        let forms = [("", &generated, &targets[..]), ("-buffers", &in_several, &targets[..1])];
        for (form, generated, targets) in forms {
            let source = folder.join(format!("{file}-{name}{form}.cl"));
            std::fs::write(&source, &generated.text).unwrap();
            for target in targets {
                count += 1;
                if let Err(words) = compile(&clang, target, &source) {
                    refused.push(format!("{target:?}: {words}"));
                }
            }
        }
    }
    println!("not generated:\n{}", told.join("\n"));
    println!("{count} compiled for {} of {} targets", targets.len(), TARGETS.len());
    assert!(count > 0);
    assert!(
        refused.is_empty(),
        "{} of {count} refused, kept in {}:\n{}",
        refused.len(),
        folder.display(),
        refused.join("\n")
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn generates_the_same_text_each_time() {
    for (file, kernel) in kernels::probed() {
        let layout = ThreadStateLayout::new(&kernel);
        let program = Program::from_start(kernel);
        let once = generate(&program, &layout, &OpenClOptions::default());
        assert_eq!(once, generate(&program, &layout, &OpenClOptions::default()), "{file}");
    }
}
