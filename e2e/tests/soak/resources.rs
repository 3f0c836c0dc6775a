//! What processes hold, as Linux tells it: descriptors, mappings, memory; and what lies in folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hetckpt_e2e::sandbox::Sandbox;

/// By how much of what it was, and besides, the memory of a process may differ between restores.
const MEMORY_FACTOR: f64 = 1.2;
const MEMORY_SLACK_KIB: u64 = 16 << 10;
/// How much more memory a process may have at the end of many cycles than at their beginning, of what it had.
const GROWTH: f64 = 1.03;
/// So many cycles make growth visible.
const CYCLES_TO_JUDGE: usize = 20;
/// Mappings that the allocators of a process may make or give back by themselves.
const MAPPING_SLACK: usize = 24;

/// What a process holds.
#[derive(Clone, Debug)]
struct Process {
    /// `app`, `server`, `supervisor`.
    role: &'static str,
    /// Descriptors, by kind.
    descriptors: BTreeMap<String, usize>,
    /// Mappings of shared memory that has no name in any file system, by what it is called.
    shared_memory: BTreeMap<String, usize>,
    num_mappings: usize,
    num_threads: usize,
    resident_kib: u64,
}

/// What a restored program, its server and its supervisor hold.
#[derive(Clone, Debug)]
pub struct Resources {
    processes: [Process; 3],
    /// Names of all processes of the sandbox, sorted.
    names: Vec<String>,
    runtime_dir: Vec<String>,
    archive_bytes: u64,
}

impl Resources {
    /// Looks.
    pub fn of(sandbox: &Sandbox, app: i32, server: i32, supervisor: i32, archive_bytes: u64) -> Result<Self> {
        let mut names: Vec<String> = sandbox.processes().into_iter().map(name_of).collect();
        names.sort();
        Ok(Self {
            processes: [
                Process::look("app", app)?,
                Process::look("server", server)?,
                Process::look("supervisor", supervisor)?,
            ],
            names,
            runtime_dir: names_in(&sandbox.runtime_dir())?
                .iter()
                .map(|name| {
                    name.replace(&app.to_string(), "PID")
                        .replace(&supervisor.to_string(), "SUPERVISOR")
                })
                .collect(),
            archive_bytes,
        })
    }

    /// Makes sure that there is no more of anything than there was in `first`.
    pub fn ensure_like(&self, first: &Self) -> Result<()> {
        ensure!(
            self.names == first.names,
            "processes: {:?}, not {:?}",
            self.names,
            first.names
        );
        ensure!(
            self.runtime_dir == first.runtime_dir,
            "in the runtime directory: {:?}, not {:?}",
            self.runtime_dir,
            first.runtime_dir
        );
        for (now, first) in self.processes.iter().zip(&first.processes) {
            now.ensure_like(first)?;
        }
        let most = grown(first.archive_bytes, MEMORY_FACTOR) + 1024 * MEMORY_SLACK_KIB / 8;
        ensure!(
            self.archive_bytes <= most,
            "the archive has {} bytes, and had {}",
            self.archive_bytes,
            first.archive_bytes
        );
        Ok(())
    }

    /// Makes sure that the last quarter of many cycles took no more memory than the first.
    pub fn ensure_no_growth(cycles: &[Self]) -> Result<()> {
        let quarter = cycles.len() / 4;
        if cycles.len() < CYCLES_TO_JUDGE {
            return Ok(());
        }
        for index in 0..3 {
            let mean = |cycles: &[Self]| {
                let sum: u64 = cycles.iter().map(|cycle| cycle.processes[index].resident_kib).sum();
                sum / cycles.len() as u64
            };
            let (first, last) = (mean(&cycles[..quarter]), mean(&cycles[cycles.len() - quarter..]));
            ensure!(
                last <= grown(first, GROWTH) + 1024,
                "the {} grows: {first} KiB resident in the first {quarter} cycles, {last} in the last",
                cycles[0].processes[index].role
            );
        }
        Ok(())
    }

    /// How much there is, in words.
    pub fn counts(&self) -> String {
        let count = |process: &Process| {
            format!(
                "{} {} descriptors, {} shared areas, {} threads",
                process.role,
                process.descriptors.values().sum::<usize>(),
                process.shared_memory.values().sum::<usize>(),
                process.num_threads
            )
        };
        format!(
            "always {}",
            self.processes.iter().map(count).collect::<Vec<_>>().join("; ")
        )
    }

    /// Memory now and in `last`, in words.
    pub fn memory_until(&self, last: &Self) -> String {
        let pairs = self.processes.iter().zip(&last.processes);
        let words = pairs.map(|(first, last)| {
            format!(
                "{} {:.1} -> {:.1}",
                first.role,
                mib(first.resident_kib),
                mib(last.resident_kib)
            )
        });
        format!(
            "MiB resident: {}; archive {} -> {} bytes",
            words.collect::<Vec<_>>().join(", "),
            self.archive_bytes,
            last.archive_bytes
        )
    }
}

impl Process {
    fn look(role: &'static str, pid: i32) -> Result<Self> {
        let look = || -> Result<Self> {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
            let mut shared_memory = BTreeMap::new();
            for name in maps
                .lines()
                .filter_map(|line| line.split_once("/memfd:").map(|(_, name)| name))
            {
                *shared_memory.entry(name.to_owned()).or_default() += 1;
            }
            Ok(Self {
                role,
                descriptors: descriptors(pid)?,
                shared_memory,
                num_mappings: maps.lines().count(),
                num_threads: fs::read_dir(format!("/proc/{pid}/task"))?.count(),
                resident_kib: resident_kib(pid)?,
            })
        };
        look().with_context(|| format!("cannot look at the {role}, process {pid}"))
    }

    fn ensure_like(&self, first: &Self) -> Result<()> {
        let role = self.role;
        ensure!(
            self.descriptors == first.descriptors,
            "descriptors of the {role}: {:?}, not {:?}",
            self.descriptors,
            first.descriptors
        );
        ensure!(
            self.shared_memory == first.shared_memory,
            "shared memory of the {role}: {:?}, not {:?}",
            self.shared_memory,
            first.shared_memory
        );
        ensure!(
            self.num_mappings <= first.num_mappings + MAPPING_SLACK,
            "the {role} has {} mappings, and had {}",
            self.num_mappings,
            first.num_mappings
        );
        ensure!(
            self.num_threads == first.num_threads,
            "the {role} has {} threads, and had {}",
            self.num_threads,
            first.num_threads
        );
        ensure!(
            self.resident_kib <= grown(first.resident_kib, MEMORY_FACTOR) + MEMORY_SLACK_KIB,
            "the {role} has {} KiB resident, and had {}",
            self.resident_kib,
            first.resident_kib
        );
        Ok(())
    }
}

/// What descriptors lead to, without the numbers that are others each time.
fn descriptors(pid: i32) -> Result<BTreeMap<String, usize>> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        // It may be closed by now.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        let kind = match target.split_once(":[") {
            Some((kind, _)) => kind.to_owned(),
            // Another program has another process id.
            None if target.ends_with(".log") => "log".to_owned(),
            // The lock of a restore's temporary folder, which is gone.
            None if target.contains("/hetckpt-restore-") => "lock of a removed folder".to_owned(),
            None => target,
        };
        *kinds.entry(kind).or_default() += 1;
    }
    Ok(kinds)
}

fn resident_kib(pid: i32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line
        .and_then(|rest| rest.split_whitespace().next())
        .context("no VmRSS")?;
    Ok(number.parse()?)
}

fn name_of(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Makes sure that `folder` holds `expected`, and logs perhaps, and nothing else.
pub fn ensure_nothing_in(folder: &Path, expected: &[&str]) -> Result<()> {
    let found = names_in(folder)?;
    let left: Vec<&String> = found.iter().filter(|name| !expected.contains(&name.as_str())).collect();
    ensure!(left.is_empty(), "left in {}: {left:?}", folder.display());
    Ok(())
}

/// Makes sure that nothing is mounted in `folder`.
pub fn ensure_no_mounts_in(folder: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let folder = folder.to_string_lossy().trim_end_matches('/').to_owned();
    let left: Vec<&str> = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4).is_some_and(|place| place.starts_with(&folder)))
        .collect();
    ensure!(left.is_empty(), "left mounted: {left:?}");
    Ok(())
}

fn grown(number: u64, factor: f64) -> u64 {
    // Sizes of memory have few enough digits for this.
    (number as f64 * factor) as u64
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
