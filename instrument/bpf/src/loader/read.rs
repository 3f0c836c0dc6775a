//! Reading what `trace.bpf.c` has counted in its maps.

use libbpf_rs::{MapCore, MapFlags};

use hetckpt_bpf::histogram::{Histogram, NUM_BUCKETS};
use hetckpt_bpf::measured::{Asked, Function, Kernel, Library, Measured, Process};

use super::Probed;
use super::skeleton::TraceSkel;

/// Words of `struct function` before its histogram.
const SUMS: usize = 7;

/// Bytes of `struct name`.
const NAME_BYTES: usize = 128;

/// All that was counted, but for the time.
pub fn all(skeleton: &TraceSkel<'_>, probed: &[Probed], libraries: &[Library]) -> Measured {
    let maps = &skeleton.maps;
    let lost = maps.lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    Measured {
        functions: functions(&maps.functions, probed, libraries),
        kernels: kernels(&maps.launches),
        asked: asked(&maps.asked),
        processes: processes(&maps.processes),
        lost: lost.map_or(0, |value| word(&value, 0)),
        ..Measured::default()
    }
}

/// Word `at` of what Linux gives; 0 behind its end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at * 8..at * 8 + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

fn functions(map: &impl MapCore, probed: &[Probed], libraries: &[Library]) -> Vec<Function> {
    let mut found: Vec<Function> = map
        .keys()
        .filter_map(|key| {
            let index = u32::from_ne_bytes(key.get(..4)?.try_into().ok()?);
            let probed = probed.get(usize::try_from(index).ok()?)?;
            let processors = map.lookup_percpu(&key, MapFlags::ANY).ok()??;
            Some(function(probed, libraries, &processors))
        })
        .collect();
    found.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    found
}

fn function(probed: &Probed, libraries: &[Library], processors: &[Vec<u8>]) -> Function {
    let sum = |at: usize| processors.iter().map(|processor| word(processor, at)).sum();
    let shortest = processors
        .iter()
        .map(|processor| word(processor, 4))
        .filter(|&ns| ns > 0);
    let histogram = Histogram((0..NUM_BUCKETS).map(|bucket| sum(SUMS + bucket)).collect());
    let (min_ns, max_ns) = (
        shortest.min().unwrap_or(0),
        processors.iter().map(|processor| word(processor, 5)).max().unwrap_or(0),
    );
    let path = libraries.get(probed.library).map(|library| library.path.as_str());
    Function {
        name: probed.symbol.clone(),
        library: path
            .unwrap_or_default()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        calls: sum(0),
        returns: sum(1),
        failures: sum(2),
        total_ns: sum(3),
        min_ns,
        max_ns,
        // Within a bucket it is only estimated: no call was shorter or longer than these.
        p50_ns: histogram.percentile(50).clamp(min_ns, max_ns.max(min_ns)),
        p99_ns: histogram.percentile(99).clamp(min_ns, max_ns.max(min_ns)),
        bytes: (probed.description.size > 0).then(|| sum(6)),
        histogram,
    }
}

/// A `struct name`.
fn name(bytes: &[u8]) -> String {
    if bytes.first() == Some(&1) {
        return format!("handle {:#x}", word(bytes, 1));
    }
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let cut = if text.len() + 1 == NAME_BYTES { "…" } else { "" };
    format!("{}{cut}", String::from_utf8_lossy(text))
}

fn kernels(map: &impl MapCore) -> Vec<Kernel> {
    let mut found: Vec<Kernel> = map
        .keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some(Kernel {
                name: name(&key),
                launches: word(&value, 0),
            })
        })
        .collect();
    found.sort_by(|a, b| b.launches.cmp(&a.launches).then_with(|| a.name.cmp(&b.name)));
    found
}

fn asked(map: &impl MapCore) -> Vec<Asked> {
    let mut found: Vec<Asked> = map
        .keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some(Asked {
                name: name(&key),
                times: word(&value, 0),
                refused: word(&value, 1),
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn processes(map: &impl MapCore) -> Vec<Process> {
    let mut found: Vec<Process> = map
        .keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some(Process {
                pid: u32::from_ne_bytes(key.get(..4)?.try_into().ok()?),
                // The order of `struct process`.
                live_bytes: word(&value, 0),
                peak_bytes: word(&value, 1),
                allocated_bytes: word(&value, 2),
                allocations: word(&value, 3),
                frees: word(&value, 4),
                launches: word(&value, 5),
                idle_ns: word(&value, 11),
                idle_times: word(&value, 12),
            })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}
