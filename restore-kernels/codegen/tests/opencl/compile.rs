//! Feeds every kernel's OpenCL C to clang: to its front end for a portable target, and down to machine code for AMD's.

use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{Error, OpenClOptions, generate};

use crate::kernels;

/// Devices whose OpenCL compilers are clang: a portable one, without machine code, and AMD's.
const PORTABLE: &[&str] = &["-target", "spir64-unknown-unknown", "-S", "-emit-llvm"];
const AMD: [&[&str]; 3] = [
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-c"],
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-c"],
    &["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-c"],
];
/// Of a device that has all there is, and whose launches are of bounded length.
const RICH: OpenClOptions = OpenClOptions {
    has_int64_extended_atomics: true,
    has_votes_of_sub_groups: false,
    block_list: true,
    counts_looks: true,
    never_stops: false,
};

/// Kernels' bodies are functions of their own in newer versions, which nobody else may call: only then they may have
/// local memory.
const AMD_INTERNAL: [&str; 2] = ["-mllvm", "-amdgpu-internalize-symbols"];

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
        .args(["-x", "cl", "-nogpulib", "-o", "-", "/dev/null"])
        .output();
    output.is_ok_and(|o| o.status.success())
}

/// The compiler's words if it refuses or warns.
fn compile(clang: &Path, target: &[&str], language: &str, source: &Path) -> Result<(), String> {
    let output = Command::new(clang)
        .args(["-x", "cl", language, "-Xclang", "-finclude-default-header"])
        .args(["-Werror", "-Wall", "-Wno-unused-function", "-Wno-unused-variable"])
        .args(["-Wno-unused-but-set-variable", "-Wno-parentheses", "-nogpulib", "-O1"])
        .args(["-o", "/dev/null"])
        .args(target)
        .args(AMD_INTERNAL.iter().filter(|_| target.contains(&"amdgcn-amd-amdhsa")))
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
    let (amd, unknown): (Vec<_>, Vec<_>) = AMD.into_iter().partition(|target| knows(&clang, target));
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
        let program = Program::from_start(kernel);
        let generated = match generate(&program, &layout, &OpenClOptions::default()) {
            Ok(generated) => generated,
            Err(error) => {
                assert!(is_told(&error), "{file}: {error}");
                told.push(format!("{file}: {error}"));
                continue;
            }
        };
        let rich = generate(&program, &layout, &RICH).unwrap();
        let in_several = generated.with_memory_in(3, 35);
        let forms = [
            ("", &generated, [&[PORTABLE], &amd[..]].concat()),
            ("-buffers", &in_several, vec![PORTABLE]),
            ("-rich", &rich, amd.clone()),
        ];
        for (form, generated, targets) in forms {
            let source = folder.join(format!("{file}-{name}{form}.cl"));
            std::fs::write(&source, &generated.text).unwrap();
            let newer = generated
                .orders_for_device
                .then_some(["-cl-std=CL2.0", "-cl-std=CL3.0"]);
            let languages = ["-cl-std=CL1.2"].into_iter().chain(newer.into_iter().flatten());
            for (language, target) in
                languages.flat_map(|language| targets.iter().map(move |target| (language, target)))
            {
                count += 1;
                if let Err(words) = compile(&clang, target, language, &source) {
                    refused.push(format!("{target:?} {language}: {words}"));
                }
            }
        }
    }
    println!("not generated:\n{}", told.join("\n"));
    println!("{count} compiled, for {} of {} AMD targets", amd.len(), AMD.len());
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
