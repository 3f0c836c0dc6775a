//! The node that programs move to: mount, network, host name and pid namespaces of its own, with a /tmp and an
//! installation of its own. What this machine has below /tmp, the test programs and the staged tree are not there. A
//! pair of virtual network devices joins the two.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::actors::{Disk, has_name, is_call, names};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use hetckpt_e2e::user;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::authority::{Authority, Files};

/// Where hetckpt is installed on the node.
const PREFIX: &str = "/tmp/opt/hetckpt";
/// Where `serve` has its files there.
pub const DEPOT: &str = "/tmp/depot";
/// Where it listens.
pub const PORT: u16 = 7473;

/// A script for the first process of the node, which then only holds the namespaces, and buries the dead.
const SETUP: &str = r#"set -eu
mount -t proc proc /proc
echo "$LAST_ID" >/proc/sys/kernel/ns_last_pid
mount -t tmpfs -o mode=1777 node "$NODE"
mkdir -p "$NODE/opt/hetckpt" "$NODE/tls" "$NODE/run" "$NODE/in"
chmod 700 "$NODE/run"
chown "$OWNER" "$NODE/tls" "$NODE/run" "$NODE/in"
mount --bind "$STAGE" "$NODE/opt/hetckpt"
for hidden in "$STAGE" "$PROGRAMS"; do mount -t tmpfs -o size=16m hidden "$hidden"; done
mount --rbind "$NODE" /tmp
hostname other-node
ip link set lo up
echo ready >&2
while sleep 1; do :; done
"#;

/// The node. It is gone when this is dropped.
pub struct Node<'a> {
    sandbox: &'a Sandbox,
    _holder: Running,
    /// Its first process, as this machine counts.
    pub init: i32,
    /// Part of its address, and of the names of its network devices: nobody else's at the same time.
    pub number: u8,
    /// Signs for both.
    pub authority: Authority<'a>,
    files: Files,
}

/// The process id that is farthest from this machine's last one. A node whose ids begin there does not use those of
/// programs that move to it.
fn distant_id() -> Result<u32> {
    let number = |file: &str| -> Result<u32> {
        let text = fs::read_to_string(file)?;
        let last = text.split_whitespace().last().context(file.to_owned())?;
        Ok(last.parse()?)
    };
    let (last, limit) = (number("/proc/loadavg")?, number("/proc/sys/kernel/pid_max")?);
    Ok((last + limit / 2) % limit)
}

/// `hetckpt serve` on the node.
pub struct Serve {
    running: Running,
    /// The program itself, as this machine counts.
    pub pid: i32,
}

impl<'a> Node<'a> {
    /// Sets one up, joined to this machine.
    pub fn new(sandbox: &'a Sandbox) -> Result<Self> {
        let installation = Installation::get();
        let folder = sandbox.path("node");
        fs::create_dir(&folder)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"]);
        command.args(["--propagation", "private", "sh", "-c", SETUP]);
        command.env("NODE", &folder).env("OWNER", user::owner());
        command.env("LAST_ID", distant_id()?.to_string());
        command.env("STAGE", fs::canonicalize(&installation.stage)?);
        command.env("PROGRAMS", fs::canonicalize(&installation.programs)?);
        let holder = Running::start(command)?;
        holder.wait_for_stderr("ready", PATIENCE)?;
        let children = format!("/proc/{0}/task/{0}/children", holder.pid());
        let init = fs::read_to_string(children)?
            .trim()
            .parse()
            .context("the node has no init")?;

        let number = join(init)?;
        let authority = Authority::new(sandbox, "tls")?;
        let files = authority.sign(&format!("198.18.{number}.2"))?;
        let node = Self {
            sandbox,
            _holder: holder,
            init,
            number,
            authority,
            files,
        };
        node.shell(&format!(
            "ip addr add {}/30 dev hkb{number}; ip link set hkb{number} up",
            node.address()
        ))?;
        Ok(node)
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("198.18.{}.2", self.number)
    }

    /// Takes the network between the nodes away, or gives it back.
    pub fn set_link(&self, is_up: bool) -> Result<()> {
        ip(&[
            "link",
            "set",
            &format!("hka{}", self.number),
            if is_up { "up" } else { "down" },
        ])
    }

    /// A path of the node, as this machine reaches it.
    pub fn reach(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        PathBuf::from(format!("/proc/{}/root", self.init)).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A program to be run on the node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&user::nsenter_options(), program.as_ref())
    }

    fn enter(&self, options: &[String], program: &OsStr) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.init.to_string();
        command
            .args(["--target", &pid, "--mount", "--net", "--uts", "--pid"])
            .args(options)
            .arg("--")
            .arg(program);
        self.sandbox.equip_for_root(&mut command);
        command
            .env("HETCKPT_CACHE_DIR", "/tmp/translations")
            // It is another node: what runs there is none of this test's processes here.
            .env("HETCKPT_RUNTIME_DIR", "/tmp/run")
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

    /// Starts `hetckpt serve` on the node, with the node's own files.
    pub fn serve(&self, options: &[&str]) -> Result<Serve> {
        self.serve_as(&self.files, options, |_| ())
    }

    /// Starts `hetckpt serve` with other files, or in another environment.
    pub fn serve_as(&self, files: &Files, options: &[&str], change: impl FnOnce(&mut Command)) -> Result<Serve> {
        for (file, name) in [
            (&files.cert, "node.pem"),
            (&files.key, "node.key"),
            (&files.ca, "ca.pem"),
        ] {
            let there = self.reach("/tmp/tls").join(name);
            fs::copy(file, &there)?;
            self.sandbox.give(&there)?;
        }
        let address = format!("{}:{PORT}", self.address());
        let mut command = self.hetckpt(["serve", "--listen", &address, "--folder", DEPOT]);
        command.args([
            "--cert",
            "/tmp/tls/node.pem",
            "--key",
            "/tmp/tls/node.key",
            "--ca",
            "/tmp/tls/ca.pem",
        ]);
        command.args(options);
        change(&mut command);
        let running = Running::start(command)?;
        running.wait_for_stderr("listening on", PATIENCE)?;
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.pid()))?;
        let pid = children.trim().parse().context("nsenter has no child")?;
        Ok(Serve { running, pid })
    }

    /// Puts the folder of `serve`, which does not run yet, on a small disk.
    pub fn mount_depot(&self) -> Result<Disk> {
        self.shell(&format!(
            "mkdir -m 700 {DEPOT}; mount -t tmpfs -o size=96m,mode=700 depot {DEPOT}; chown {} {DEPOT}",
            user::owner()
        ))?;
        Ok(Disk::mounted_at(self.reach(DEPOT)))
    }

    /// What `serve` has in its folder: names that end in `.` and `extension`.
    pub fn held(&self, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.reach(DEPOT)).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect()
    }

    /// The records of `serve`, each with what its program has printed there.
    pub fn records(&self) -> Vec<(Value, String)> {
        let read = |path: PathBuf| {
            let record = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            let printed = fs::read_to_string(path.with_extension("stdout")).unwrap_or_default();
            Some((record, printed))
        };
        self.held("json").into_iter().filter_map(read).collect()
    }

    /// Waits until every program that came here is in one of `states`; gives the records.
    pub fn wait_for(&self, states: &[&str]) -> Result<Vec<(Value, String)>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let records = self.records();
            let is_there = |record: &Value| states.iter().any(|&state| record["state"] == state);
            if records.iter().all(|(record, _)| is_there(record)) {
                return Ok(records);
            }
            if Instant::now() > deadline {
                bail!("on the other node are {records:?}, not {states:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What runs on it, as this machine counts: zombies, `serve` and what holds the node aside.
    pub fn processes(&self) -> Vec<i32> {
        let there = space_of(self.init);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |pid: i32| {
            pid == self.init
                || is_gone(pid)
                || is_call(pid, "sleep", &["1"])
                || is_call(pid, "hetckpt", &["serve"])
                // Who waits outside for what runs on it.
                || has_name(pid, "unshare")
                || has_name(pid, "nsenter")
        };
        pids.filter(|&pid| space_of(pid) == there && !is_ours(pid)).collect()
    }

    /// The `hetckpt restore` that `serve` has started.
    pub fn restore(&self) -> Option<i32> {
        let mut there = self.processes().into_iter();
        there.find(|&pid| is_call(pid, "hetckpt", &["restore"]))
    }

    /// What runs of this test on this machine.
    pub fn processes_here(&self) -> Vec<i32> {
        let mut pids = self.sandbox.processes();
        // A restored program has the environment that it had here.
        let there = space_of(self.init);
        pids.retain(|&pid| space_of(pid) != there);
        pids
    }

    /// Waits until nothing of a program runs there.
    pub fn wait_until_empty(&self) -> Result<()> {
        wait_until_none(|| self.processes()).context("on the other node")
    }

    /// Waits until nothing of this test runs on this machine.
    pub fn wait_until_empty_here(&self) -> Result<()> {
        wait_until_none(|| self.processes_here())
    }

    /// Makes sure that nothing of any program is there.
    pub fn ensure_has_nothing(&self) -> Result<()> {
        // What a broken connection has left there goes when the break is noticed.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left: Vec<PathBuf> = ["part", "hetsnap", "json"]
                .iter()
                .flat_map(|kind| self.held(kind))
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the other node has {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        // Everything on the node ends with its first process, and the network with that.
        let _ = kill(Pid::from_raw(self.init), Signal::SIGKILL);
    }
}

impl Serve {
    /// What it has said so far.
    pub fn said(&self) -> String {
        self.running.stderr_so_far()
    }

    /// Waits until it has said `part`.
    pub fn wait_for(&self, part: &str) -> Result<()> {
        self.running.wait_for_stderr(part, PATIENCE)
    }

    /// Kills it, and nothing that it has started.
    pub fn kill(self) -> Result<()> {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL)?;
        let deadline = Instant::now() + PATIENCE;
        let mut running = self.running;
        while !running.has_ended()? {
            ensure!(Instant::now() < deadline, "`serve` outlives SIGKILL");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// The network namespace of process `pid`: a restored program of a user has the node's, and a pid namespace of its own.
fn space_of(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

fn wait_until_none(there: impl Fn() -> Vec<i32>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = there();
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "there still runs {:?}", names(&left));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Joins the node whose first process is `init` to this machine; gives the number that it has from then on. Test runs
/// beside each other get different ones, because Linux gives a name to one device only.
fn join(init: i32) -> Result<u8> {
    let init = init.to_string();
    for number in 0..=u8::MAX {
        let (here, there) = (format!("hka{number}"), format!("hkb{number}"));
        let made = ip(&[
            "link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &init,
        ]);
        match made {
            Err(error) if format!("{error:#}").contains("File exists") => continue,
            made => made?,
        }
        // The second octet is one of those for tests of networks.
        ip(&["addr", "add", &format!("198.18.{number}.1/30"), "dev", &here])?;
        ip(&["link", "set", &here, "up"])?;
        return Ok(number);
    }
    bail!("all numbers of nodes are taken: {} of them", usize::from(u8::MAX) + 1)
}

/// Runs `ip` on this machine.
pub fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("there is no `ip`")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
