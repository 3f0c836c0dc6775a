//! What keeps CRIU from dumping a program, where that is cheap to see before the program is stopped: CRIU would say it
//! in words that help nobody, or wait for ever. What is seen only later is told by its log (`criu/complaint.rs`).

use hetckpt_ring::failure_code::Code;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};

use hetckpt_report::failure::Failure;
use hetckpt_supervise::namespaces::pids;
use hetckpt_supervise::process_tree;

use crate::uprobes;

const CODE: Code = Code::NotDumpable;

/// Files without a path of which CRIU knows nothing: how their names in `/proc/PID/fd` begin, and what they are.
const UNKNOWN: [(&str, &str); 6] = [
    ("anon_inode:[io_uring]", "an io_uring"),
    ("anon_inode:[userfaultfd]", "a userfaultfd"),
    ("anon_inode:[perf_event]", "a performance counter (perf_event_open)"),
    ("anon_inode:bpf-", "an eBPF object"),
    ("anon_inode:kvm-", "a virtual machine (KVM)"),
    ("anon_inode:[landlock-ruleset]", "rules of Landlock"),
];

/// Fails with the first that is found in the processes `tree`.
pub fn look(tree: &[i32]) -> Result<(), Failure> {
    all(tree).into_iter().next().map_or(Ok(()), Err)
}

/// All that are found in the processes `tree`, one of each kind for each process.
pub fn all(tree: &[i32]) -> Vec<Failure> {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    let mounts: Vec<MountInfo> = mounts.into_iter().flatten().collect();
    // What has ended and waits for its parent is in nobody's way.
    let living = tree.iter().filter(|&&pid| !process_tree::is_gone(pid));
    let processes = living.filter_map(|&pid| Process::new(pid).ok());
    let found = processes.flat_map(|process| {
        [
            tracer(&process),
            frozen(&process, &mounts),
            unknown(&process),
            uprobes::look(&process),
        ]
    });
    found.flatten().collect()
}

/// Who traces one of the threads: there can be only one.
fn tracer(process: &Process) -> Option<Failure> {
    let mut statuses = process
        .tasks()
        .ok()?
        .flatten()
        .filter_map(|thread| thread.status().ok());
    let tracer = statuses.find_map(|status| (status.tracerpid != 0).then_some(status.tracerpid))?;
    let name = Process::new(tracer)
        .and_then(|tracer| tracer.stat())
        .map(|stat| stat.comm);
    let (pid, tracer) = (pids::called(process.pid), pids::called(tracer));
    Some(
        Failure::new(
            CODE,
            format!(
                "process {pid} is traced by process {tracer} ({})",
                name.unwrap_or_default()
            ),
        )
        .note("CRIU stops a program by tracing it, and Linux lets one trace a process at a time")
        .help("detach the debugger or tracer, or end it"),
    )
}

fn frozen(process: &Process, mounts: &[MountInfo]) -> Option<Failure> {
    let folder = frozen_cgroup(process, mounts)?;
    Some(
        Failure::new(
            CODE,
            format!("process {} is frozen, by the cgroup {}", pids::called(process.pid), folder.display()),
        )
        .note("what is frozen cannot stop at a point from which it can go on")
        .help("thaw it: write 0 to its `cgroup.freeze` (THAWED to `freezer.state` in cgroups version 1), or to that of a folder above"),
    )
}

/// The cgroup of the process, if it stands still; `mounts` are those that we see.
fn frozen_cgroup(process: &Process, mounts: &[MountInfo]) -> Option<PathBuf> {
    process.cgroups().ok()?.into_iter().find_map(|group| {
        let is_second = group.hierarchy == 0;
        if !is_second && !group.controllers.iter().any(|controller| controller == "freezer") {
            return None;
        }
        let is_its = |mount: &&MountInfo| match is_second {
            true => mount.fs_type == "cgroup2",
            false => mount.fs_type == "cgroup" && mount.super_options.contains_key("freezer"),
        };
        mounts.iter().filter(is_its).find_map(|mount| {
            let below = Path::new(&group.pathname).strip_prefix(&mount.root).ok()?;
            let folder = mount.mount_point.join(below);
            is_frozen(&folder, is_second).then_some(folder)
        })
    })
}

fn is_frozen(folder: &Path, is_second: bool) -> bool {
    match is_second {
        true => fs::read_to_string(folder.join("cgroup.events"))
            .is_ok_and(|text| text.lines().any(|line| line == "frozen 1")),
        false => fs::read_to_string(folder.join("freezer.state")).is_ok_and(|text| text.trim() != "THAWED"),
    }
}

fn unknown(process: &Process) -> Option<Failure> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid)).ok()?.flatten();
    descriptors.into_iter().find_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        let what = kind(target.to_str()?)?;
        let (pid, number) = (pids::called(process.pid), descriptor.file_name());
        Some(
            Failure::new(
                CODE,
                format!("process {pid} has {what} open (descriptor {})", number.to_string_lossy()),
            )
            .note("CRIU cannot dump it: Linux does not tell what is in it")
            .help("dump the program when it has closed it, or have it do without; many programs and libraries have an option for that"),
        )
    })
}

/// What CRIU does not know, by its name in `/proc/PID/fd`.
fn kind(target: &str) -> Option<&'static str> {
    UNKNOWN
        .iter()
        .find(|(name, _)| target.starts_with(name))
        .map(|&(_, what)| what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn frozen_is_told_by_either_version_of_cgroups() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(!is_frozen(folder.path(), true) && !is_frozen(folder.path(), false));
        write("cgroup.events", "populated 1\nfrozen 0\n");
        write("freezer.state", "THAWED\n");
        assert!(!is_frozen(folder.path(), true) && !is_frozen(folder.path(), false));
        write("cgroup.events", "populated 1\nfrozen 1\n");
        write("freezer.state", "FREEZING\n");
        assert!(is_frozen(folder.path(), true) && is_frozen(folder.path(), false));
    }

    #[test]
    fn what_criu_knows_is_no_obstacle() {
        for known in [
            "anon_inode:[eventfd]",
            "anon_inode:[eventpoll]",
            "pipe:[1]",
            "/tmp/anon_inode:[io_uring]",
        ] {
            assert_eq!(kind(known), None, "{known}");
        }
        assert_eq!(kind("anon_inode:[io_uring]"), Some("an io_uring"));
        assert_eq!(kind("anon_inode:bpf-map"), Some("an eBPF object"));
        look(&[i32::try_from(std::process::id()).unwrap()]).unwrap();
    }
}
