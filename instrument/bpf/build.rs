//! Compiles what runs in Linux, and the code that loads it.

use std::env;
use std::error::Error;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/trace.bpf.c";

fn main() -> Result<(), Box<dyn Error>> {
    let output = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?).join("trace.skel.rs");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let linux_name = match architecture.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    };
    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = env::var_os("HETCKPT_BPF_CLANG") {
        builder.clang(clang);
    }
    builder
        .source(SOURCE)
        .clang_args([
            format!("-D__TARGET_ARCH_{linux_name}"),
            // `asm/ptrace.h`, where Debian has it.
            format!("-I/usr/include/{architecture}-linux-gnu"),
            // Atomic operations that give the former value.
            "-mcpu=v3".to_owned(),
        ])
        .build_and_generate(&output)?;
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=HETCKPT_BPF_CLANG");
    Ok(())
}
