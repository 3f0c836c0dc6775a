//! The machine: privileges, tracing, room on disks, processor.

use procfs::Current;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::statvfs::statvfs;
use procfs::CpuInfo;
use procfs::process::Process;

use hetckpt_report::finding::Finding;
use hetckpt_report::quantity;

/// What CRIU cannot do without, by number in `CapEff` (capability.h).
const CAPABILITIES: [(u32, &str); 3] = [
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (40, "CAP_CHECKPOINT_RESTORE"),
];

/// CAP_SYS_RESOURCE, which CRIU needs for programs of other users.
const RESOURCES: u32 = 24;

/// With less room than this hardly any program can be dumped.
const LITTLE_ROOM_BYTES: u64 = 1 << 30;

/// Vector extensions that compilers and libraries choose code by.
const VECTOR_FLAGS: [&str; 6] = ["sse4_2", "avx", "avx2", "avx512f", "avx512_bf16", "amx_tile"];

/// May we dump other processes?
pub fn privileges() -> Finding {
    const CHECK: &str = "privileges";
    if !nix::unistd::geteuid().is_root() {
        return namespaces(CHECK);
    }
    let Ok(status) = Process::myself().and_then(|process| process.status()) else {
        return Finding::warning(CHECK, "root, with unknown capabilities", "mount /proc");
    };
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(number, _)| status.capeff & 1 << number == 0)
        .map(|&(_, name)| name)
        .collect();
    match missing.is_empty() {
        true if status.capeff & 1 << RESOURCES == 0 => Finding::warning(
            CHECK,
            "root without CAP_SYS_RESOURCE: programs of other users cannot be dumped",
            "give the container this capability, or dump them as their users",
        ),
        true => Finding::ok(CHECK, "root, with the capabilities that CRIU needs"),
        false => Finding::problem(
            CHECK,
            format!("root without {}", missing.join(", ")),
            "give the container these capabilities, or run it privileged",
        ),
    }
}

/// May a user who is not root make the namespaces in which CRIU has what it needs? Tried by the system's own program
/// for that.
fn namespaces(check: &'static str) -> Finding {
    let help = "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone; on Ubuntu \
                kernel.apparmor_restrict_unprivileged_userns=0), or use root";
    let tried = Command::new("unshare")
        .args([
            "--user",
            "--map-current-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "true",
        ])
        .output();
    match tried {
        Ok(output) if output.status.success() => Finding::ok(
            check,
            "not root, but programs get namespaces in which CRIU has what it needs",
        ),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Finding::problem(check, format!("not root, and no namespaces can be made: {why}"), help)
        }
        Err(e) => Finding::warning(check, format!("not root, and unshare cannot be tried: {e}"), help),
    }
}

/// Does Linux allow one process to trace another?
pub fn tracing() -> Finding {
    const CHECK: &str = "ptrace";
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Err(_) => Finding::ok(CHECK, "not restricted"),
        Ok(scope) => tracing_allowed(CHECK, scope.trim()),
    }
}

fn tracing_allowed(check: &'static str, scope: &str) -> Finding {
    match scope {
        "3" => Finding::problem(
            check,
            "kernel.yama.ptrace_scope is 3: no process may trace another",
            "set it to 2 or less where it is set at boot (/etc/sysctl.d), and reboot: it cannot be lowered before",
        ),
        scope => Finding::ok(check, format!("kernel.yama.ptrace_scope is {scope}: root may trace")),
    }
}

/// Is there room for an archive, if it is written here?
pub fn archive_room() -> Finding {
    let folder = std::env::current_dir().unwrap_or_else(|_| Path::new(".").to_owned());
    room(
        "archive-room",
        &folder,
        "name archives (-o) on a larger disk: dump first writes the images beside the archive",
    )
}

/// Is there room for what a restore unpacks?
pub fn restore_room() -> Finding {
    room(
        "restore-room",
        &std::env::temp_dir(),
        "set TMPDIR to a folder on a larger disk: restore unpacks the archive there",
    )
}

fn room(check: &'static str, folder: &Path, help: &str) -> Finding {
    let name = folder.display();
    let free = match statvfs(folder) {
        Ok(found) => found.blocks_available().saturating_mul(found.fragment_size()),
        Err(e) => return Finding::problem(check, format!("{name}: {e}"), help),
    };
    if let Err(e) = tempfile::tempfile_in(folder) {
        return Finding::problem(check, format!("{name} cannot be written: {e}"), help);
    }
    let found = format!("{} free in {name}", quantity::bytes(free));
    match free < LITTLE_ROOM_BYTES {
        true => Finding::warning(check, found, help),
        false => Finding::ok(check, found),
    }
}

/// What another machine's processor must have.
pub fn cpu() -> Finding {
    const CHECK: &str = "processor";
    let info = CpuInfo::current().ok();
    let name = info.as_ref().and_then(|info| info.model_name(0)).unwrap_or("unknown");
    let flags = info.as_ref().and_then(|info| info.flags(0)).unwrap_or_default();
    let vectors: Vec<&str> = VECTOR_FLAGS.into_iter().filter(|flag| flags.contains(flag)).collect();
    Finding::ok(
        CHECK,
        format!(
            "{name}; a program dumped here needs at least these elsewhere: {}",
            vectors.join(" ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetckpt_report::finding::Verdict;

    #[test]
    fn only_the_highest_scope_forbids_tracing() {
        for scope in ["0", "1", "2"] {
            assert_eq!(tracing_allowed("ptrace", scope).verdict, Verdict::Ok);
        }
        let forbidden = tracing_allowed("ptrace", "3");
        assert!(forbidden.verdict == Verdict::Problem && forbidden.help.is_some());
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_problem() {
        assert_eq!(
            room("room", Path::new("/no/such/folder"), "help").verdict,
            Verdict::Problem
        );
    }
}
