//! A kernel that ends soon has code for launches that are not asked to stop. It must do what the kernel does without
//! probes: the same instructions in the same order, up to where basic blocks were divided.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{ENDS_SOON_MARK, PtxOptions, generate};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use hetckpt_probes::options::Options;

fn text_of(kernel: &Kernel) -> String {
    let layout = ThreadStateLayout::new(kernel);
    let program = Program::from_start(kernel.clone());
    generate(&program, &layout, &PtxOptions::default()).unwrap().text
}

/// Instructions, without the labels and jumps that dividing basic blocks changes.
fn instructions<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let is_inst = |line: &&str| line.starts_with('\t') && !line.contains("bra") && !line.starts_with("\t.");
    // Scratch registers are numbered as they come.
    lines.filter(is_inst).filter(|line| !line.contains("%k")).collect()
}

/// Instructions of a kernel as it is, and of its code for launches that are not asked; `None` if it has none.
fn compare(kernel: &Kernel) -> Option<()> {
    if kernel.partial_barrier().is_some() {
        // It has no form that stops.
        return None;
    }
    let probed = hetckpt_probes::probe(kernel, &Options::default()).ok()?;
    let (plain, probed) = (text_of(kernel), text_of(&probed));
    if !probed.starts_with(ENDS_SOON_MARK) {
        return None;
    }
    let begin = probed
        .find("bra.uni $asked")
        .expect("those that are asked go elsewhere");
    let (unasked, asked) = probed[begin..].split_once("$asked:\n").expect("somewhere");
    let parameters = plain.find("\n{\n").unwrap();
    assert_eq!(
        instructions(unasked.lines().skip(1)),
        instructions(
            plain[parameters..]
                .lines()
                .filter(|line| *line != "\tmov.u64 %local, hetckpt_local;")
        ),
        "{}",
        kernel.name
    );
    assert!(
        !unasked.contains("%pause") && !unasked.contains("%control"),
        "{unasked}"
    );
    assert!(asked.contains("%pause"));
    Some(())
}

#[test]
fn code_that_is_not_asked_is_the_kernel_without_probes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../instrument/ptx/tests/filetests");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let texts = files.filter(|path| path.extension().is_some_and(|e| e == "ptx"));
    let mut num_compared = 0;
    for text in texts {
        let Ok(module) = hetckpt_ptx::lower_module(&std::fs::read_to_string(text).unwrap()) else {
            continue;
        };
        let names = module.globals.iter().map(|global| global.name.clone());
        let addresses: BTreeMap<String, u64> = names.zip((1u64 << 40..).step_by(4096)).collect();
        for mut kernel in module.kernels {
            if bind_globals(&mut kernel, &addresses).is_ok() {
                num_compared += usize::from(compare(&kernel).is_some());
            }
        }
    }
    assert!(num_compared >= 10, "{num_compared} kernels");
}
