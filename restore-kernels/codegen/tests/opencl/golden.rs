//! Golden files: `filetests/opencl/<case>.cl` is what a kernel of the front end's tests becomes. `BLESS=1` rewrites
//! them.

use std::path::Path;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};

use crate::kernels;

/// Compares the first kernel of a file whose name contains `kernel`.
fn check(file: &str, kernel: &str) {
    compare(file, kernel, &OpenClOptions::default(), "");
}

/// The same for the kernel's continuation.
fn check_continuation(file: &str, kernel: &str) {
    let options = OpenClOptions {
        block_list: true,
        ..OpenClOptions::default()
    };
    compare(file, kernel, &options, "_continued");
}

fn compare(file: &str, kernel: &str, options: &OpenClOptions, suffix: &str) {
    let all = kernels::probed();
    let (_, found) = all.iter().find(|(f, k)| f == file && k.name.contains(kernel)).unwrap();
    let layout = ThreadStateLayout::new(found);
    let program = Program::from_start(found.clone());
    let text = generate(&program, &layout, options).unwrap().text;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/opencl");
    let name = file.rsplit('-').next().unwrap();
    let path = folder.join(format!("{name}{suffix}.cl"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = expected.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        expected == text,
        "{} differs, first at line {differing:?} (BLESS=1 rewrites it)",
        path.display()
    );
}

#[test]
fn straight_line() {
    check("tests-straight_line", "");
}

#[test]
fn control_flow() {
    check("tests-control_flow", "");
}

#[test]
fn integer_arithmetic() {
    check("tests-integer_arithmetic", "");
}

#[test]
fn atomics() {
    check("tests-atomics", "");
}

#[test]
fn conversions() {
    check("tests-conversions", "");
}

/// Nested loops, shared memory, barriers.
#[test]
fn matmul() {
    check("src-matmul", "matmul");
}

/// Dynamic shared memory, 64-bit sums.
#[test]
fn reduction() {
    check("src-reduction", "reduce_values");
}

/// Shuffles.
#[test]
fn neural_layer() {
    check("src-neural_layer", "dense_relu");
}

/// Votes, of threads of which some have ended.
#[test]
fn bit_count() {
    check("src-bit_count", "bit_count");
}

/// The same where sub-groups may be warps.
#[test]
fn bit_count_in_sub_groups() {
    let options = OpenClOptions {
        has_votes_of_sub_groups: true,
        ..OpenClOptions::default()
    };
    compare("src-bit_count", "bit_count", &options, "_sub_groups");
}

/// A continuation goes in rounds, and its warps come together anew: no sub-groups vote there.
#[test]
fn continuation_in_sub_groups() {
    let options = OpenClOptions {
        block_list: true,
        has_votes_of_sub_groups: true,
        ..OpenClOptions::default()
    };
    compare("src-bit_count", "bit_count", &options, "_continued");
}

/// Looks are counted: barriers.
#[test]
fn matmul_that_counts_looks() {
    let options = OpenClOptions {
        counts_looks: true,
        ..OpenClOptions::default()
    };
    compare("src-matmul", "matmul", &options, "_counting");
}

/// Looks are counted: threads that stop each on its own.
#[test]
fn control_flow_that_counts_looks() {
    let options = OpenClOptions {
        counts_looks: true,
        block_list: true,
        ..OpenClOptions::default()
    };
    compare("tests-control_flow", "", &options, "_counting");
}

/// Rounds with a landing at a barrier.
#[test]
fn continuation_of_matmul() {
    check_continuation("src-matmul", "matmul");
}

/// Rounds with a landing at a vote, to which warps come in different iterations.
#[test]
fn continuation_of_bit_count() {
    check_continuation("src-bit_count", "bit_count");
}
