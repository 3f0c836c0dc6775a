//! Code for the CPU from every pattern of PTX's instruction forms that the front end takes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_abi::cpu_codegen::Tier;
use hetckpt_abi::program::Program;
use hetckpt_conformance::ptx_forms::Table;
use hetckpt_cpu_codegen::compile::compile;
use hetckpt_probes::options::Options;
use hetckpt_probes::probe;

#[test]
fn first_form_of_every_pattern_becomes_code() {
    for pattern in Table::read().patterns.iter().filter(|p| p.refused.is_none()) {
        let fail = |error: &dyn std::fmt::Display| panic!("line {}: {}: {error}", pattern.line, pattern.text);
        let probed = probe(&pattern.first_kernel(), &Options::default());
        let probed = probed.unwrap_or_else(|error| fail(&error));
        let compiled = compile(&Program::from_start(probed), Tier::Quick);
        if let Err(error) = compiled {
            fail(&error);
        }
    }
}
