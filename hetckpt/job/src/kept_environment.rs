//! A restored program has the environment of its first run. What of that tells something else than this run's is said.

use std::collections::BTreeMap;

use procfs::process::Process;

/// Variables by which programs choose a device; schedulers set them too.
const DEVICES: [&str; 4] = [
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
];

/// Names that are told at most.
const MAX_NAMED: usize = 8;

/// A sentence on what process `pid` has of the scheduler's variables that is not as in this process; `prefixes` are
/// what their names begin with.
pub fn remark(pid: i32, prefixes: &[&str]) -> Option<String> {
    let kept = Process::new(pid).and_then(|process| process.environ()).ok()?;
    let texts = kept
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let here = |name: &str| std::env::var(name).ok();
    compare(&texts.collect(), here, prefixes)
}

fn compare(
    kept: &BTreeMap<String, String>,
    here: impl Fn(&str) -> Option<String>,
    prefixes: &[&str],
) -> Option<String> {
    let is_meant = |name: &str| DEVICES.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix));
    let differing: Vec<&String> = kept
        .iter()
        .filter(|(name, value)| is_meant(name) && here(name).as_ref() != Some(*value))
        .map(|(name, _)| name)
        .collect();
    if differing.is_empty() {
        return None;
    }
    let (first, num_more) = (
        differing.iter().take(MAX_NAMED),
        differing.len().saturating_sub(MAX_NAMED),
    );
    let mut names = first.map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    if num_more > 0 {
        names.push_str(&format!(" and {num_more} more"));
    }
    Some(format!(
        "the program keeps these variables of its first run: {names}; its device is this run's"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        };
        let here = of(&[("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n2"), ("HOME", "/b")]);
        let kept = of(&[
            ("SLURM_JOB_ID", "7"),
            ("SLURMD_NODENAME", "n1"),
            ("HOME", "/a"),
            ("CUDA_VISIBLE_DEVICES", "0"),
        ]);
        let remark = compare(&kept, |name| here.get(name).cloned(), &["SLURM"]).unwrap();
        assert!(remark.contains(": CUDA_VISIBLE_DEVICES, SLURMD_NODENAME;"), "{remark}");
        assert_eq!(compare(&here, |name| here.get(name).cloned(), &["SLURM"]), None);
    }
}
