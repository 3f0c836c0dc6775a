//! Puts a file into a store and gets it back, and says how fast and with how much memory.
//!
//! `cargo run --release -p hetckpt-store --example transfer -- URL FILE [KEY_FILE]`; `e2e/bench/store.sh` runs it
//! beside rclone.

#![allow(clippy::print_stdout, reason = "it measures")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use hetckpt_store::encryption::Encryption;
use hetckpt_store::name::Key;
use hetckpt_store::record::{Device, Draft, Occasion};
use hetckpt_store::store::Store;
use hetckpt_store::watch::unwatched;

/// The most memory that this process has had, MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, file, key @ ..] = arguments.as_slice() else {
        return Err("arguments: URL FILE [KEY_FILE]".into());
    };
    let encryption = key.first().map(|key| Encryption::open(Path::new(key))).transpose()?;
    let store = Store::open(url, encryption)?;
    let (file, job) = (Path::new(file), "transfer".parse::<Key>()?);
    let bytes = std::fs::metadata(file)?.len();
    let draft = Draft {
        id: store.new_id(&job)?,
        device: Device::default(),
        host: String::new(),
        occasion: Occasion::Asked,
        dump_seconds: 0.0,
        memory_bytes: 0,
        label: String::new(),
        command: vec![],
        needs: vec![],
    };
    let told = |what: &str, start: Instant| {
        let rate = bytes as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!(
            "{what}: {:.2} s, {rate:.0} MB/s, most memory {} MiB",
            start.elapsed().as_secs_f64(),
            most_memory()
        );
    };
    let start = Instant::now();
    let record = unwatched(|watch| store.put(&job, draft, file, watch))?;
    told("up", start);
    let start = Instant::now();
    let fetched = file.with_extension("fetched");
    unwatched(|watch| store.get(&job, record.id(), &fetched, watch))?;
    told("down", start);
    store.remove(&job, record.id())?;
    Ok(())
}
