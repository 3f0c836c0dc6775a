//! What the assembler makes of kernels as the program has them, as they pass through hetIR, and with probes.
//!
//! `register_report PTXAS SM FILE.ptx…` prints registers and spilled bytes of each kernel in the three forms;
//! with `HETCKPT_KEEP=FOLDER` the texts are kept there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a tool for developers"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{PtxOptions, generate};
use hetckpt_ir::module::bind_globals;
use hetckpt_probes::options::Options;

fn main() {
    let mut args = std::env::args().skip(1);
    let ptxas = PathBuf::from(args.next().expect("path of ptxas"));
    let sm: u32 = args
        .next()
        .expect("compute capability, as 90")
        .parse()
        .expect("a number");
    println!(
        "{:44} {:>14} {:>14} {:>14}",
        "kernel", "original", "through hetIR", "probed"
    );
    for file in args {
        let text = std::fs::read_to_string(&file).expect("a PTX file");
        let original = assemble(&ptxas, sm, &text, "original");
        let module = hetckpt_ptx::lower_module(&text).expect("PTX");
        let addresses: BTreeMap<String, u64> = module
            .globals
            .iter()
            .zip(1u64..)
            .map(|(g, i)| (g.name.clone(), 0x2000_0000_0000 + (i << 20)))
            .collect();
        for mut kernel in module.kernels {
            bind_globals(&mut kernel, &addresses).expect("all variables defined");
            let options = PtxOptions {
                sm,
                shared_base: 1024,
                ..PtxOptions::default()
            };
            let name = kernel.name.clone();
            let layout = ThreadStateLayout::new(&kernel);
            let probed = hetckpt_probes::probe(&kernel, &Options::default()).expect("a kernel that can be probed");
            let plain = generate(&Program::from_start(kernel), &layout, &options).unwrap().text;
            let layout = ThreadStateLayout::new(&probed);
            let probed = generate(&Program::from_start(probed), &layout, &options).unwrap();
            let plain = assemble(&ptxas, sm, &plain, &format!("{name}-plain"));
            let with = assemble(&ptxas, sm, &probed.text, &format!("{name}-probed"));
            let show = |r: &BTreeMap<String, (u32, u32)>| {
                r.get(&name)
                    .map_or("?".into(), |(registers, spilled)| format!("{registers} ({spilled} B)"))
            };
            println!(
                "{name:44} {:>14} {:>14} {:>14}",
                show(&original),
                show(&plain),
                show(&with)
            );
        }
    }
}

/// Registers and spilled bytes of each kernel.
fn assemble(ptxas: &Path, sm: u32, text: &str, name: &str) -> BTreeMap<String, (u32, u32)> {
    let folder = std::env::var_os("HETCKPT_KEEP").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("hetckpt-{}-{name}.ptx", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let output = Command::new(ptxas)
        .args(["-v", &format!("-arch=sm_{sm}"), "-o", "/dev/null"])
        .arg(&path)
        .output()
        .expect("ptxas");
    if std::env::var_os("HETCKPT_KEEP").is_none() {
        let _ = std::fs::remove_file(&path);
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let mut found = BTreeMap::new();
    let (mut kernel, mut spilled) = (String::new(), 0);
    for line in words.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            kernel = rest.split('\'').next().unwrap_or_default().to_owned();
        } else if let Some(rest) = line.split("bytes stack frame, ").nth(1) {
            spilled = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        } else if let Some(rest) = line.split("Used ").nth(1) {
            let registers = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            found.insert(kernel.clone(), (registers, spilled));
        }
    }
    found
}
