//! The driver calls that a process makes, beside those that hetckpt answers.

use std::time::Duration;

use hetckpt_bpf::measured::Measured;
use hetckpt_report::failure::Failure;
use hetckpt_report::finding::{Finding, Verdict, listed};
use hetckpt_report::installation::Installation;
use hetckpt_ring::failure_code::Code;

use super::shim_functions::Shim;
use crate::trace;

const CHECK: &str = "driver-calls";

/// Traces process `pid` and its children for `time`.
pub fn examine(pid: i32, time: Duration) -> Result<Finding, Failure> {
    if time.is_zero() {
        return Ok(Finding::ok(CHECK, "not looked at"));
    }
    match trace::for_a_moment(pid, time) {
        Ok(measured) => Ok(judge(&measured, &Shim::read(&Installation::find()?.shim()))),
        Err(failure) if failure.code == Code::NoSuchProcess => Err(failure),
        Err(failure) => {
            let failed = Finding::failed(CHECK, &failure);
            Ok(Finding {
                verdict: Verdict::Warning,
                ..failed
            })
        }
    }
}

fn judge(measured: &Measured, shim: &Shim) -> Finding {
    if measured.functions.is_empty() {
        return Finding::ok(CHECK, format!("none in {:.1} s", measured.seconds));
    }
    let calls: u64 = measured.functions.iter().map(|function| function.calls).sum();
    let seen = format!(
        "{calls} calls of {} functions in {:.1} s",
        measured.functions.len(),
        measured.seconds
    );
    let names = |is_wanted: &dyn Fn(&str) -> bool| {
        let names = measured.functions.iter().map(|function| function.name.clone());
        let mut names: Vec<String> = names.filter(|name| is_wanted(name)).collect();
        names.sort();
        names.dedup();
        names
    };
    let of_others = names(&|name| ["hip", "ze", "hsa_"].iter().any(|start| name.starts_with(start)));
    if !of_others.is_empty() {
        return Finding::problem(
            CHECK,
            format!(
                "{seen}; hetckpt answers no HIP and no Level Zero: {}",
                listed(of_others.into_iter())
            ),
            "build the program for CUDA or OpenCL",
        );
    }
    let lacking = names(&|name| name.starts_with("cu") && !shim.has(name));
    match lacking.is_empty() {
        true => Finding::ok(CHECK, format!("{seen}; hetckpt answers all of CUDA's among them")),
        false => Finding::warning(
            CHECK,
            format!(
                "{seen}; hetckpt answers \"not supported\" to: {}",
                listed(lacking.into_iter())
            ),
            "the program must do without these (docs/limits.md)",
        ),
    }
}
