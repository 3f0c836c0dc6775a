//! Kernels that are run as they came, and so only on the GPUs that they were compiled for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded;

/// Most names of kernels that are kept; [`NativeCode::num_kernels`] counts all.
pub const MAX_NAMED_KERNELS: usize = 64;
/// Longest mangled name of a kernel, bytes. Longer ones are not kept.
pub const MAX_KERNEL_NAME_BYTES: usize = 4096;
/// Most targets of an image.
const MAX_TARGETS: usize = 256;
/// Longest name of a target, bytes.
const MAX_TARGET_BYTES: usize = 64;
/// Names of kernels that are written out in words.
const MAX_WRITTEN_KERNELS: usize = 5;

/// Kernels of a process that are run as they came, with what they were compiled for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCode {
    /// Targets as nvcc's `-gencode` names them (`sm_90`, `compute_80`); empty if nothing tells.
    #[serde(deserialize_with = "bounded::texts::<_, MAX_TARGETS, MAX_TARGET_BYTES>")]
    pub compiled_for: Vec<String>,
    /// Mangled names, the first [`MAX_NAMED_KERNELS`] of them.
    #[serde(deserialize_with = "bounded::texts::<_, MAX_NAMED_KERNELS, MAX_KERNEL_NAME_BYTES>")]
    pub kernels: Vec<String>,
    /// How many kernels there are.
    pub num_kernels: u64,
}

impl NativeCode {
    /// Whether a GPU of compute capability `major`.`minor` runs it, by the rules of the CUDA programming guide ("GPU
    /// Compilation"). What nothing is known of is left to the driver.
    #[must_use]
    pub fn runs_on(&self, [major, minor]: [u32; 2]) -> bool {
        let runs = |target: &String| target_runs_on(target, major, minor).unwrap_or(true);
        self.compiled_for.is_empty() || self.compiled_for.iter().any(runs)
    }
}

/// What the kernels were compiled for and some of their names: `sm_90: reduce, scan, and 3 more`.
impl fmt::Display for NativeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.compiled_for.is_empty() {
            true => f.write_str("unknown GPUs: ")?,
            false => write!(f, "{}: ", self.compiled_for.join(", "))?,
        }
        let written = &self.kernels[..self.kernels.len().min(MAX_WRITTEN_KERNELS)];
        f.write_str(&written.join(", "))?;
        match self.num_kernels.saturating_sub(written.len() as u64) {
            0 => Ok(()),
            num_more => write!(f, ", and {num_more} more"),
        }
    }
}

/// `None` if the target is none that is known.
fn target_runs_on(target: &str, major: u32, minor: u32) -> Option<bool> {
    let (kind, arch) = target.split_once('_')?;
    let digits = arch.trim_end_matches(['a', 'f']);
    let number: u32 = digits.parse().ok()?;
    let (of_major, of_minor) = (number / 10, number % 10);
    let is_same_family = of_major == major && of_minor <= minor;
    match (kind, &arch[digits.len()..]) {
        (_, "a") => Some((of_major, of_minor) == (major, minor)),
        (_, "f") | ("sm", "") => Some(is_same_family),
        ("compute", "") => Some((of_major, of_minor) <= (major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_kernels_are_named_and_all_are_counted() {
        let code = |names: &[&str], num_kernels| NativeCode {
            compiled_for: vec!["sm_90".to_owned(), "compute_80".to_owned()],
            kernels: names.iter().map(|&name| name.to_owned()).collect(),
            num_kernels,
        };
        assert_eq!(code(&["a", "b"], 2).to_string(), "sm_90, compute_80: a, b");
        let many = code(&["a", "b", "c", "d", "e", "f"], 9).to_string();
        assert_eq!(many, "sm_90, compute_80: a, b, c, d, e, and 4 more");
        assert_eq!(NativeCode::default().to_string(), "unknown GPUs: ");
    }

    #[test]
    fn code_runs_where_its_target_says() {
        let code = |targets: &[&str]| NativeCode {
            compiled_for: targets.iter().map(|&target| target.to_owned()).collect(),
            ..NativeCode::default()
        };
        for (targets, capability, runs) in [
            (&["sm_80"][..], [8, 6], true),
            (&["sm_86"], [8, 0], false),
            (&["sm_80"], [9, 0], false),
            (&["sm_80", "compute_80"], [9, 0], true),
            (&["compute_90"], [8, 9], false),
            (&["sm_90a"], [9, 0], true),
            (&["compute_90a"], [10, 0], false),
            (&["sm_100f"], [10, 3], true),
            (&["sm_100f"], [12, 0], false),
            (&["sm_120"], [12, 1], true),
            (&["lto_80"], [9, 0], true),
            (&[], [9, 0], true),
        ] {
            assert_eq!(code(targets).runs_on(capability), runs, "{targets:?} on {capability:?}");
        }
    }
}
