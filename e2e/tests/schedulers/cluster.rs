//! A Slurm cluster of two nodes on this machine (`e2e/slurm/two-nodes.sh`), and its jobs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::User;

use hetckpt_e2e::early_end;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::sandbox::Sandbox;

/// The script, unless `HETCKPT_E2E_SLURM` names another copy of it.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/slurm/two-nodes.sh");

/// How long anything of Slurm's may take: it looks at its queue every other second, and requeues after six. A program
/// that hurries still needs half a minute of a processor, and other tests run beside it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The first port of the first cluster, if the environment does not say otherwise.
const FIRST_PORT: u16 = 16_820;

/// Each cluster has four ports.
static PORT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let first = std::env::var("HETCKPT_E2E_SLURM_PORT").ok();
    AtomicU16::new(first.and_then(|text| text.parse().ok()).unwrap_or(FIRST_PORT))
});

/// Folder of another Slurm than the system's (`e2e/slurm/newer-slurm.sh`).
pub fn root() -> Option<PathBuf> {
    std::env::var_os("HETCKPT_E2E_SLURM_ROOT").map(PathBuf::from)
}

/// `PATH` with that Slurm's programs first.
fn path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(root) = root() else {
        return path;
    };
    let mut joined = root.join("programs").into_os_string();
    joined.push(":");
    joined.push(path);
    joined
}

/// True if a cluster can have a database.
pub fn has_database() -> bool {
    let folders: Vec<PathBuf> = std::env::split_paths(&path()).collect();
    ["slurmdbd", "mariadbd", "mariadb-install-db"]
        .iter()
        .all(|program| folders.iter().any(|folder| folder.join(program).is_file()))
}

/// How a site has set preemption up.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// `GraceTime`, seconds.
    pub grace: u32,
    /// A preempted job gets the signal that it asked for at once.
    pub sends_signals: bool,
    pub accounting: Accounting,
}

/// What a site has its database for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// It has none.
    None,
    /// Runs are noted.
    Runs,
    /// Which job may preempt which, by its quality of service.
    Qualities,
}

/// The cluster.
pub struct Cluster {
    folder: PathBuf,
    site: Site,
    port: u16,
    /// The user whose jobs are tested.
    user: Option<User>,
    /// What jobs have in their environment.
    exports: String,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// As Slurm's commands take it.
    pub id: String,
}

impl Cluster {
    /// Brings one up. Jobs are of the user `nobody`, unless `is_root`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn up(sandbox: &Sandbox, site: Site, is_root: bool) -> Result<Self> {
        let user = match is_root {
            true => None,
            false => Some(User::from_name("nobody")?.context("there is no user nobody")?),
        };
        // Users of jobs go through it.
        fs::set_permissions(sandbox.path(""), fs::Permissions::from_mode(0o755))?;
        let folder = sandbox.path("cluster");
        let work = sandbox.path("work");
        fs::create_dir(&work)?;
        let installation = Installation::get();
        let (mut stage, mut programs, mut criu) = (
            installation.stage.clone(),
            installation.programs.clone(),
            installation.criu.clone(),
        );
        if let Some(user) = &user {
            std::os::unix::fs::chown(&work, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            // Where that user can read it.
            let copy = sandbox.path("opt");
            let prefix = criu.parent().and_then(Path::parent).context("CRIU has no prefix")?;
            fs::create_dir(&copy)?;
            for (from, name) in [(&*stage, "stage"), (&programs, "programs"), (prefix, "criu")] {
                run(Command::new("cp").arg("-rT").arg(from).arg(copy.join(name)))?;
            }
            run(Command::new("chmod").arg("-R").arg("a+rX").arg(&copy))?;
            (stage, programs, criu) = (copy.join("stage"), copy.join("programs"), copy.join("criu/bin/criu"));
        }
        let exports = format!(
            "export PATH={}/bin:{} HETCKPT_CRIU={} PROGRAMS={} HOME={}",
            stage.display(),
            path().display(),
            criu.display(),
            programs.display(),
            work.display(),
        );
        let cluster = Self {
            folder,
            site,
            port: PORT.fetch_add(4, Ordering::Relaxed),
            user,
            exports,
        };
        cluster.script(&["up"])?;
        Ok(cluster)
    }

    /// Folder in which jobs work, which all nodes see.
    pub fn work(&self) -> PathBuf {
        self.folder.with_file_name("work")
    }

    fn script(&self, arguments: &[&str]) -> Result<String> {
        let given = std::env::var_os("HETCKPT_E2E_SLURM");
        let mut command = Command::new(given.unwrap_or_else(|| SCRIPT.into()));
        command.args(arguments).env("CLUSTER_FOLDER", &self.folder);
        command.env("CLUSTER_PORT", self.port.to_string());
        command.env("CLUSTER_GRACE", self.site.grace.to_string());
        command.env("CLUSTER_SIGNALS", u8::from(self.site.sends_signals).to_string());
        let accounting = self.site.accounting;
        command.env(
            "CLUSTER_ACCOUNTING",
            u8::from(accounting != Accounting::None).to_string(),
        );
        command.env("CLUSTER_QOS", u8::from(accounting == Accounting::Qualities).to_string());
        command.envs(root().map(|root| ("CLUSTER_ROOT", root)));
        run(&mut command)
    }

    /// Kills all processes of a node at once, and starts the node again.
    pub fn restart_node(&self, node: &str) -> Result<()> {
        self.script(&["kill", node])?;
        self.script(&["start", node]).map(drop)
    }

    /// A client command of Slurm's, and what it prints.
    pub fn client(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("PATH", path())
            .env("SLURM_CONF", self.folder.join("etc/slurm.conf"));
        run(&mut command)
    }

    /// Waits until a client command prints `part`; gives all that it prints.
    pub fn wait_told(&self, program: &str, arguments: &[&str], part: &str) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let told = self.client(program, arguments)?;
            if told.contains(part) {
                return Ok(told);
            }
            ensure!(Instant::now() < until, "{program} does not tell of `{part}`: {told}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Submits a batch script with these options and lines to the partition that is preempted.
    pub fn submit(&self, options: &[&str], lines: &str) -> Result<Job> {
        let script = self.work().join("script.sh");
        fs::write(&script, format!("#!/bin/bash\n{}\n{lines}\n", self.exports))?;
        let (folder, script) = (self.work().display().to_string(), script.display().to_string());
        let mut arguments = vec!["--parsable", "--partition=low", "--requeue", "--open-mode=append"];
        let output = format!("--output={folder}/%A_%a.out");
        arguments.extend(["--chdir", &folder, &output]);
        let user = self
            .user
            .as_ref()
            .map(|user| [format!("--uid={}", user.uid), format!("--gid={}", user.gid)]);
        arguments.extend(user.iter().flatten().map(String::as_str));
        arguments.extend(options);
        arguments.push(&script);
        let id = self.client("sbatch", &arguments)?.trim().to_owned();
        Ok(Job { id })
    }

    /// Takes a whole node for a job of higher priority, until that is cancelled.
    pub fn take_node(&self, node: &str) -> Result<Job> {
        let mut arguments = vec!["--parsable", "--partition=high", "--exclusive", "--output=/dev/null"];
        arguments.extend(["--chdir=/tmp", "--nodelist", node, "--wrap=sleep 1000"]);
        if self.site.accounting == Accounting::Qualities {
            arguments.extend(["--qos=high", "--partition=low"]);
        }
        let id = self.client("sbatch", &arguments)?.trim().to_owned();
        Ok(Job { id })
    }

    /// A field of what `scontrol show job` says, such as `JobState`.
    pub fn field(&self, job: &Job, name: &str) -> Result<String> {
        let shown = self.client("scontrol", &["--oneliner", "show", "job", &job.id])?;
        let mut fields = shown.split_whitespace().filter_map(|word| word.split_once('='));
        let found = fields
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value.to_owned());
        found.with_context(|| format!("job {} has no {name}", job.id))
    }

    /// Waits until `job` runs for the `restarts`-th time since it was queued again; gives its node.
    pub fn wait_running(&self, job: &Job, restarts: u32) -> Result<String> {
        self.wait_for(job, &format!("to run, with {restarts} restarts"), || {
            let runs = self.field(job, "JobState")? == "RUNNING";
            let is_that = self.field(job, "Restarts")? == restarts.to_string();
            Ok((runs && is_that).then(|| self.field(job, "NodeList")))
        })?
    }

    /// Waits until `job` has ended; gives its state and its exit code.
    pub fn wait_ended(&self, job: &Job) -> Result<(String, String)> {
        self.wait_for(job, "to end", || {
            let state = self.field(job, "JobState")?;
            let has_ended = matches!(
                &*state,
                "COMPLETED" | "FAILED" | "CANCELLED" | "TIMEOUT" | "PREEMPTED" | "NODE_FAIL"
            );
            has_ended
                .then(|| self.field(job, "ExitCode").map(|code| (state, code)))
                .transpose()
        })
    }

    /// Waits until `part` is in what `job` has printed.
    pub fn wait_printed(&self, job: &Job, part: &str) -> Result<()> {
        self.wait_for(job, &format!("to print `{part}`"), || {
            Ok(self.printed(job).contains(part).then_some(()))
        })
    }

    fn wait_for<T>(&self, job: &Job, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if Instant::now() > until {
                let shown = self.client("scontrol", &["show", "job", &job.id])?;
                let queue = self.client("squeue", &[])?;
                bail!(
                    "waited in vain for job {} {what}:\n{shown}\n{queue}\n{}",
                    job.id,
                    self.printed(job)
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What `job` has printed so far.
    pub fn printed(&self, job: &Job) -> String {
        let (array, task) = job.id.split_once('_').unwrap_or((&job.id, "4294967294"));
        fs::read_to_string(self.work().join(format!("{array}_{task}.out"))).unwrap_or_default()
    }

    /// Lets the test programs of a job come to their end.
    pub fn hurry(&self) -> Result<()> {
        for process in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let root = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            if root.starts_with(self.work()) {
                early_end::process(pid);
            }
        }
        Ok(())
    }

    /// The only thing in the store of a job that has ended is its exit code.
    pub fn ensure_cleared(&self, store: &Path) -> Result<()> {
        for job in fs::read_dir(store)?.flatten() {
            let names: Vec<String> = fs::read_dir(job.path())?
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            let is_left = |name: &String| name.ends_with(".hetsnap") || name.starts_with('.');
            ensure!(
                !names.iter().any(is_left),
                "the store has more than it ought to: {names:?}"
            );
            ensure!(
                names.iter().any(|name| name == "ended.json"),
                "the end is not noted: {names:?}"
            );
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The sandbox ends what is left.
        let _ = self.script(&["down"]);
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
