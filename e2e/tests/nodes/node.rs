//! Another node: mount, network and UTS namespaces with a /tmp, a network, a host name and an installation of their
//! own. What the node of the dump (this machine) has below /tmp, the test programs and the staged tree are not there.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::sandbox::Sandbox;
use hetckpt_e2e::user;

/// Where hetckpt is installed on the node.
pub const PREFIX: &str = "/tmp/opt/hetckpt";

/// Where restores write the program's process id.
const PID_FILE: &str = "/tmp/in/pid";

/// A script for the first process of the node, which then only holds the namespaces.
const SETUP: &str = r#"set -eu
mount -t tmpfs -o mode=1777 node "$NODE"
mkdir -p "$NODE/opt/hetckpt" "$NODE/in" "$NODE/$RUNTIME_BELOW_TMP"
chmod 700 "$NODE/$RUNTIME_BELOW_TMP"
chown -R "$OWNER" "$NODE/in" "$NODE/${RUNTIME_BELOW_TMP%%/*}"
mount --bind "$STAGE" "$NODE/opt/hetckpt"
for hidden in "$STAGE" "$PROGRAMS"; do mount -t tmpfs -o size=16m hidden "$hidden"; done
mount --rbind "$NODE" /tmp
hostname other-node
# CRIU wants to connect to itself.
ip link set lo up || ifconfig lo up || perl -MSocket -e '
    socket(my $any, AF_INET, SOCK_DGRAM, 0) or die;
    # SIOCSIFFLAGS, with IFF_UP and IFF_RUNNING in a struct ifreq.
    ioctl($any, 0x8914, my $up = pack("a16 s x22", "lo", 0x41)) or die "lo: $!";'
echo ready >&2
exec sleep 3600
"#;

/// The node. It is gone when this is dropped.
pub struct Node<'a> {
    sandbox: &'a Sandbox,
    holder: Running,
}

impl<'a> Node<'a> {
    /// Sets one up.
    pub fn new(sandbox: &'a Sandbox) -> Result<Self> {
        let installation = Installation::get();
        let folder = sandbox.path("node");
        fs::create_dir(&folder)?;
        let runtime_dir = sandbox.runtime_dir();
        let below_tmp = runtime_dir.strip_prefix("/tmp");
        let below_tmp = below_tmp.context("the test's folder is not below /tmp, which nodes do not share")?;
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--net",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-c",
            SETUP,
        ]);
        command.env("NODE", &folder).env("RUNTIME_BELOW_TMP", below_tmp);
        command.env("OWNER", user::owner());
        command.env("STAGE", fs::canonicalize(&installation.stage)?);
        command.env("PROGRAMS", fs::canonicalize(&installation.programs)?);
        let holder = Running::start(command)?;
        holder.wait_for_stderr("ready", PATIENCE)?;
        Ok(Self { sandbox, holder })
    }

    /// A path of the node, as this machine reaches it.
    pub fn reach(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Copies a file to the node; gives its path there.
    pub fn send(&self, file: &Path) -> Result<PathBuf> {
        let name = file.file_name().context("no file")?;
        let path = Path::new("/tmp/in").join(name);
        fs::copy(file, self.reach(&path))?;
        self.sandbox.give(&self.reach(&path))?;
        Ok(path)
    }

    /// A program to be run on the node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&user::nsenter_options(), program.as_ref())
    }

    fn enter(&self, options: &[String], program: &OsStr) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.pid().to_string();
        command
            .args(["--target", &pid, "--mount", "--net", "--uts"])
            .args(options)
            .arg("--")
            .arg(program);
        self.sandbox.equip_for_root(&mut command);
        command
            .env("HETCKPT_CACHE_DIR", "/tmp/translations")
            .env_remove("TMPDIR");
        command
    }

    /// The node's `hetckpt`.
    pub fn hetckpt<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.command(format!("{PREFIX}/bin/hetckpt"));
        command.args(arguments);
        command
    }

    /// Runs a line of shell on the node, as root.
    pub fn shell(&self, line: &str) -> Result<String> {
        let mut command = self.enter(&[], "sh".as_ref());
        command.args(["-euc", line]);
        Ok(Running::run(command, PATIENCE)?.success(line)?.stdout)
    }

    /// Starts `hetckpt restore` on the node and waits until the program runs.
    pub fn restore(&self, archive: &Path, device: &str, options: &[&str]) -> Result<Running> {
        let timings = Path::new("/tmp/in/timings.json");
        // Left by an earlier restore.
        let _ = fs::remove_file(self.reach(timings));
        let mut command = self.hetckpt(["restore", "--device", device, "--timings"]);
        command
            .arg(timings)
            .arg("--pid-file")
            .arg(PID_FILE)
            .args(options)
            .arg(archive);
        let mut running = Running::start(command)?;
        let started = std::time::Instant::now();
        while !self.reach(timings).exists() {
            if running.has_ended()? || started.elapsed() > PATIENCE {
                bail!("the restore failed: {}", running.wait(PATIENCE)?.text());
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(running)
    }

    /// What the program of [`Self::restore`] is called there: `dumped`, as it was, unless it has namespaces of its own.
    pub fn restored_pid(&self, dumped: i32) -> Result<i32> {
        let pid = fs::read_to_string(self.reach(Path::new(PID_FILE)))?
            .trim_end()
            .parse()?;
        ensure!(
            pid == dumped || user::tested().is_some(),
            "process {dumped} is called {pid} now"
        );
        Ok(pid)
    }

    /// `hetckpt dump` on the node; gives the archive's path there.
    pub fn dump(&self, pid: i32, name: &str) -> Result<PathBuf> {
        let archive = Path::new("/tmp/in").join(name);
        let mut command = self.hetckpt(["dump", "--pid", &pid.to_string(), "-o"]);
        command.arg(&archive);
        Running::run(command, PATIENCE)?.success("dump on the other node")?;
        Ok(archive)
    }

    /// What restores have left in the node's /tmp.
    pub fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = vec![];
        for entry in fs::read_dir(self.reach(Path::new("/tmp")))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // The folder of the test itself is called hk-….
            if name.starts_with("hetckpt-") {
                left.push(name);
            }
        }
        Ok(left)
    }

    /// Makes sure that a restore with `options` is refused as `code`, in words that have all `parts`, and that it
    /// starts nothing.
    pub fn ensure_refused(&self, archive: &Path, options: &[&str], code: &str, parts: &[&str]) -> Result<()> {
        let mut command = self.hetckpt(["restore", "--device", "cpu"]);
        command.args(options).arg(archive);
        let outcome = Running::run(command, PATIENCE)?;
        ensure_says(&outcome, code, parts)?;
        ensure!(outcome.code == 125, "{}", outcome.text());
        let left = self.sandbox.processes();
        ensure!(left.is_empty(), "a refused restore left {left:?}");
        let left = self.leftovers()?;
        ensure!(left.is_empty(), "a refused restore left {left:?}");
        Ok(())
    }
}

/// Makes sure that `outcome` is the failure `code`, in words that have all `parts`.
pub fn ensure_says(outcome: &Outcome, code: &str, parts: &[&str]) -> Result<()> {
    ensure!(
        outcome.stderr.contains(&format!("error[{code}]")),
        "the failure was to be {code}: {}",
        outcome.text()
    );
    for part in parts {
        ensure!(
            outcome.stderr.contains(part),
            "`{part}` was to be said: {}",
            outcome.text()
        );
    }
    Ok(())
}
