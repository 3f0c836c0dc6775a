//! Kernels that bind a program to some GPUs, in words.

use hetckpt_report::finding;
use hetckpt_state::native_code::NativeCode;

/// What the kernels were compiled for and some of their names: `sm_90: reduce, scan, and 3 more`.
#[must_use]
pub fn words(code: &NativeCode) -> String {
    let targets = match code.compiled_for.is_empty() {
        true => "unknown GPUs".to_owned(),
        false => code.compiled_for.join(", "),
    };
    format!(
        "{targets}: {}",
        finding::listed_of(code.kernels.iter().cloned(), code.num_kernels)
    )
}
