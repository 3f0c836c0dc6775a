//! Golden files: `filetests/<case>.ir` holds a probed kernel, `<case>.ptx` what is generated for it as an ordinary
//! program and `<case>.continued.ptx` as the continuation of all its resume points, `<case>.out_of_step.ptx` (if there
//! is one) the same for threads that are out of step. `BLESS=1` rewrites the expectations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{PtxOptions, generate, has_room_for_control};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_resegment::continuation::{Peel, continuation};

fn compare(path: &Path, text: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let differing = expected.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        expected == text,
        "{} differs, first at line {:?} (BLESS=1 rewrites it)",
        path.display(),
        differing
    );
}

fn check(case: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let text = std::fs::read_to_string(folder.join(format!("{case}.ir"))).unwrap();
    let kernel = hetckpt_ir::text::parse::kernel(&text).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    let options = PtxOptions {
        sm: 90,
        shared_base: 1024,
        ..PtxOptions::default()
    };
    let ordinary = generate(&Program::from_start(kernel.clone()), &layout, &options).unwrap();
    compare(&folder.join(format!("{case}.ptx")), &ordinary.text);
    let points: Vec<ResumePointId> = (0u32..).map(ResumePointId).take(kernel.resume_points.len()).collect();
    let program = continuation(&kernel, &points, Peel::None).unwrap();
    let continued = generate(&program, &layout, &options).unwrap();
    compare(&folder.join(format!("{case}.continued.ptx")), &continued.text);
    let out_of_step = PtxOptions {
        in_step: false,
        ..options
    };
    let continued = generate(&program, &layout, &out_of_step).unwrap();
    let golden = folder.join(format!("{case}.out_of_step.ptx"));
    if golden.exists() {
        compare(&golden, &continued.text);
    }
}

#[test]
fn chunked_barriers() {
    check("chunked_barriers");
}

#[test]
fn budgeted_barriers() {
    check("budgeted_barriers");
}

#[test]
fn spin_wait() {
    check("spin_wait");
}

#[test]
fn loaded_count() {
    check("loaded_count");
}

#[test]
fn loop_probe() {
    check("loop_probe");
}

#[test]
fn barrier_probe() {
    check("barrier_probe");
}

#[test]
fn warp_probe() {
    check("warp_probe");
}

#[test]
fn local_frame() {
    check("local_frame");
}

#[test]
fn early_exit() {
    check("early_exit");
}

#[test]
fn trap() {
    check("trap");
}

/// PTX up to 8.0 has 4096 bytes for parameters, later versions 32,764; one of ours comes on top.
#[test]
fn many_parameters_make_a_newer_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let text = std::fs::read_to_string(folder.join("loop_probe.ir")).unwrap();
    let mut kernel = hetckpt_ir::text::parse::kernel(&text).unwrap();
    let layout = ThreadStateLayout::new(&kernel);
    for (bytes, version, has_room) in [
        (4088, "8.0", true),
        (4092, "8.1", true),
        (32_752, "8.1", true),
        (32_756, "8.1", false),
    ] {
        let last = kernel.params.last_mut().unwrap();
        last.size_bytes = bytes - last.offset;
        assert_eq!(has_room_for_control(&kernel), has_room, "{bytes}");
        let generated = generate(&Program::from_start(kernel.clone()), &layout, &PtxOptions::default()).unwrap();
        assert!(generated.text.contains(&format!(".version {version}\n")), "{bytes}");
    }
}
