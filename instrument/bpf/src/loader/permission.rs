//! What tracing needs of Linux, and what of it is missing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use procfs::process::Process;

/// Inode of the first namespace of process ids (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// True if process ids here are those that eBPF programs see.
pub fn has_global_ids() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() == FIRST_PID_NAMESPACE)
}

/// True if Linux can put many probes at once into one process alone. Versions from 6.6 on take them for one of its
/// threads; 6.11 does right.
pub fn filters_processes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// Raises the limit on descriptors as far as one may.
pub fn allow_many_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it cannot be raised, a probe fails, and that is told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// A sentence for each thing that is missing.
pub fn missing() -> Vec<String> {
    let mut missing = vec![];
    let capabilities = Process::myself()
        .and_then(|own| own.status())
        .map(|status| status.capeff);
    let has = |number: u32| capabilities.as_ref().is_ok_and(|all| all & 1 << number != 0);
    let wanted = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")];
    if !has(SYS_ADMIN) {
        for (_, name) in wanted.into_iter().filter(|&(number, _)| !has(number)) {
            missing.push(format!("the capability {name} (or CAP_SYS_ADMIN)"));
        }
        let setting = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        if !has(PERFMON) && setting("perf_event_paranoid").trim() != "-1" {
            let value = setting("perf_event_paranoid").trim().to_owned();
            missing.push(format!("sysctl kernel.perf_event_paranoid is {value}"));
        }
        if !has(BPF) && setting("unprivileged_bpf_disabled").trim() != "0" {
            let value = setting("unprivileged_bpf_disabled").trim().to_owned();
            missing.push(format!("sysctl kernel.unprivileged_bpf_disabled is {value}"));
        }
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        missing.push("Linux's own types, /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)".to_owned());
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        missing.push("probes on programs (CONFIG_UPROBE_EVENTS), or /sys is not mounted".to_owned());
    }
    if fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|text| text.contains("[confidentiality]")) {
        missing.push("Linux is locked down ([confidentiality] in /sys/kernel/security/lockdown)".to_owned());
    }
    if !has_global_ids() {
        missing.push("the namespace of process ids is not the machine's: trace outside of the container".to_owned());
    }
    missing
}
