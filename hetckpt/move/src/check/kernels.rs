//! Can an OpenCL device run the program's kernels? Other devices run all that there is PTX for. The device server's
//! program has the compiler, so it is asked.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;

use hetckpt_report::failure::Failure;
use hetckpt_report::finding::{self, Finding};
use hetckpt_ring::question::{LACKING, LACKING_STOPPED, Lacking};

use crate::server_question::ask;

const CHECK: &str = "device-kernels";

/// What the kernels lack of a process whose `state` is as its file holds it, on a device that has not got the features
/// `lacks`.
///
/// Only those that are stopped, unless `others` is true.
pub fn lacking(state: &[u8], lacks: &[String], others: bool) -> Result<Lacking, Failure> {
    let question = if others { LACKING } else { LACKING_STOPPED };
    ask(Code::NotRebuilt, &[question, &lacks.join(",")], state)
}

/// A problem for stopped kernels that cannot go on, a remark for others that the program may launch.
pub fn findings(lacking: &Lacking) -> impl Iterator<Item = Finding> {
    let listed = |kernels: &BTreeMap<String, String>| {
        finding::listed(kernels.iter().map(|(name, what)| format!("{name} ({what})")))
    };
    let stopped = (!lacking.stopped.is_empty()).then(|| Finding {
        code: Some(Code::DeviceFailed),
        ..Finding::problem(
            CHECK,
            format!(
                "kernels that are stopped cannot go on with it: {}",
                listed(&lacking.stopped)
            ),
            "name another device (--device); `hetckpt devices` tells what each lacks",
        )
    });
    let others = (!lacking.others.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!(
                "the device cannot run kernels that the program may launch: {}",
                listed(&lacking.others)
            ),
            "their launches give error 218 (invalid PTX) there; name another device (--device) if they matter",
        )
    });
    stopped.into_iter().chain(others)
}
