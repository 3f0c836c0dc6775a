//! Baselines kept on disk, for the next run of the tests: each for one build of the program and of what runs it, so
//! that none outlives what it was measured with.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::baseline::Baseline;
use crate::installation::Installation;
use crate::process::Outcome;
use crate::program::Program;

/// Where the baseline of a program on a device is kept.
pub struct Key(PathBuf);

impl Key {
    /// That of `program` on `device`, its kernels in flight for about `wanted`.
    ///
    /// # Errors
    /// If the program or a part of the stage cannot be read.
    pub fn new(device: &str, program: &Program, wanted: Duration) -> Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(stage()?.as_bytes());
        let command = program.command(0);
        hasher.update_mmap(&command[0]).context("cannot read a test program")?;
        hasher.update(format!("{command:?} {device} {} {wanted:?}", driver_of(device)).as_bytes());
        let name = format!("{}-{}.json", program.name, &hasher.finalize().to_hex()[..16]);
        Ok(Self(Installation::get().state.join("baselines").join(name)))
    }

    /// The baseline, if there is one.
    #[must_use]
    pub fn read(&self) -> Option<Baseline> {
        let kept: Value = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        let text = |key: &str| kept[key].as_str().map(str::to_owned);
        let seconds = |key: &str| kept[key].as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
        Some(Baseline {
            length: kept["length"].as_u64()?,
            outcome: Outcome {
                code: 0,
                stdout: text("stdout")?,
                stderr: text("stderr")?,
            },
            duration: seconds("duration")?,
            kernels: seconds("kernels")?,
        })
    }

    /// Keeps a baseline, whose program has passed its own check.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, baseline: &Baseline) -> Result<()> {
        let folder = self.0.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder)?;
        let kept = json!({
            "length": baseline.length,
            "stdout": baseline.outcome.stdout,
            "stderr": baseline.outcome.stderr,
            "duration": baseline.duration.as_secs_f64(),
            "kernels": baseline.kernels.as_secs_f64(),
        });
        // Renamed, since another run of the tests may be reading it.
        let new = tempfile::NamedTempFile::new_in(folder)?;
        fs::write(new.path(), serde_json::to_vec_pretty(&kept)?)?;
        new.persist(&self.0).context("cannot keep a baseline")?;
        Ok(())
    }
}

/// Hash of the parts that run a program.
fn stage() -> Result<&'static blake3::Hash> {
    static HASH: OnceLock<blake3::Hash> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash);
    }
    let mut hasher = blake3::Hasher::new();
    let stage = &Installation::get().stage;
    for part in [
        "bin/hetckpt-server",
        "lib/hetckpt/libcuda.so.1",
        "lib/hetckpt/libhetckpt_opencl.so",
        "lib/hetckpt/libhetckpt_cpu_codegen.so",
    ] {
        let part = stage.join(part);
        hasher
            .update_mmap(&part)
            .with_context(|| format!("cannot read {}", part.display()))?;
    }
    Ok(HASH.get_or_init(|| hasher.finalize()))
}

/// Name and driver version of `device`, as far as they can be told.
fn driver_of(device: &str) -> String {
    let devices = Installation::get().devices().unwrap_or_default();
    let row = devices.iter().find(|row| row["id"] == device);
    row.map_or_else(String::new, |row| format!("{} {}", row["name"], row["driver"]))
}
