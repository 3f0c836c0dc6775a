//! Golden tests: `filetests/<pass>/<case>.ir` is a kernel, `<case>.probed.ir` what the pipeline makes of it. The
//! input's first line holds the options, e.g. `; test: probe max_chunk=4 budget_insts=100`. `BLESS=1` rewrites the
//! results.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use hetckpt_ir::text::{parse, print};
use hetckpt_probes::check::check;
use hetckpt_probes::options::Options;
use hetckpt_probes::pipeline;

fn options(header: &str) -> Options {
    let words = header
        .strip_prefix("; test: probe")
        .expect("a header")
        .split_whitespace();
    let mut options = Options::default();
    for word in words {
        let (name, value) = word.split_once('=').unwrap();
        let value = value.parse().unwrap();
        match name {
            "max_chunk" => options.max_chunk = value,
            "budget_insts" => options.budget_insts = value,
            "max_unroll" => options.max_unroll = value,
            other => panic!("no option {other}"),
        }
    }
    options
}

fn filetest(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let input = std::fs::read_to_string(folder.join(format!("{name}.ir"))).unwrap();
    let kernel = parse::kernel(&input).unwrap_or_else(|e| panic!("{e}"));
    let (probed, report) = pipeline::run(&kernel, &options(input.lines().next().unwrap())).unwrap();
    hetckpt_ir::validate::probed_kernel(&probed).unwrap();
    check(&kernel, &probed).unwrap();
    let report: String = report.to_string().lines().map(|line| format!("; {line}\n")).collect();
    let actual = report + &print::kernel(&probed);
    let golden = folder.join(format!("{name}.probed.ir"));
    if std::env::var_os("BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&golden, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert!(actual == expected, "{name}: got\n{actual}");
}

macro_rules! filetests {
    ($($name:ident: $path:literal,)*) => {
        $(#[test] fn $name() { filetest($path); })*
    };
}

filetests! {
    entry_probe_stands_before_first_load: "entry_probe/before_first_load",
    entry_probe_stands_before_barrier: "entry_probe/before_barrier",
    split_barriers_in_loop: "split_barriers/in_loop",
    split_warp_ops_guarded: "split_warp_ops/guarded",
    split_warp_ops_partial_mask: "split_warp_ops/partial_mask",
    strip_mine_plain: "strip_mine_loops/plain",
    strip_mine_register_step: "strip_mine_loops/register_step",
    strip_mine_predicate_read_elsewhere: "strip_mine_loops/predicate_read_elsewhere",
    strip_mine_a_loop_that_sleeps: "strip_mine_loops/sleeps",
    unroll_small_loop: "unroll_with_exits/small_loop",
    count_down_nest: "count_down/nest",
    count_down_irreducible_two_entries: "count_down_irreducible/two_entries",
    warp_probe_polls_after_loop: "warp_probe_polls/after_loop",
}
