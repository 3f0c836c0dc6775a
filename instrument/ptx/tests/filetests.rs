//! Golden tests: each `filetests/<case>.ptx` lowers to `filetests/<case>.ir`, hetIR's text. `BLESS=1` rewrites the
//! latter. Every expected text is also parsed back and must be the module that was lowered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests")
}

fn check(case: &str) {
    let ptx = std::fs::read_to_string(folder().join(case).with_extension("ptx")).unwrap();
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    let text = hetckpt_ir::text::print::module(&module);
    assert_eq!(
        hetckpt_ir::text::parse::module(&text).unwrap(),
        module,
        "the text form loses something"
    );
    let golden = folder().join(case).with_extension("ir");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        expected == text,
        "{} differs (BLESS=1 rewrites it):\n{text}",
        golden.display()
    );
}

macro_rules! cases {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_file_has_a_test() {
            let mut named = vec![$(stringify!($name)),*];
            named.sort_unstable();
            let mut found: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|e| e == "ptx"))
                .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            found.sort_unstable();
            assert_eq!(found, named);
        }
    };
}

cases! {
    straight_line
    float_arithmetic
    integer_arithmetic
    bits
    compare_select
    conversions
    memory
    memory_barriers
    in_step
    generic_windows
    shared_layout
    generic_addresses
    grid_workspace
    struct_params
    atomics
    warp_operations
    barriers
    control_flow
    inline_asm
    predication
    calls
    carry_chains
    async_copy
    arrival_barriers
    nanosleep
    globals
    printing
    rejected
}
