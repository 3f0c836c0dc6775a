//! Probes that a tracer has put into a program's code (uprobes).
//!
//! A probe is a breakpoint in a page of code, which is the process's own from then on: in an archive it would stay, and
//! end the restored program. When the tracer has gone, the code is what it was. What stays is an area `[uprobes]`,
//! which holds nothing of the program's; CRIU dumps and restores a process with one if it is told so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::namespaces::pids;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process};

/// The instruction that a probe puts into code, on x86-64.
const BREAKPOINT: u8 = 0xcc;

/// True if one of the processes `tree` has had a probe.
pub fn have_been_in(tree: &[i32]) -> bool {
    let processes = tree.iter().filter_map(|&pid| Process::new(pid).ok());
    processes
        .into_iter()
        .any(|process| process.maps().is_ok_and(|maps| has_area(&maps.0)))
}

fn has_area(maps: &[MemoryMap]) -> bool {
    let is_area = |map: &MemoryMap| matches!(&map.pathname, MMapPath::Other(name) if name == "uprobes");
    maps.iter().any(is_area)
}

/// Fails if there are probes in the code of one of the processes `tree`.
pub fn ensure_none(tree: &[i32]) -> Result<(), Failure> {
    let processes = tree.iter().filter_map(|&pid| Process::new(pid).ok());
    processes
        .into_iter()
        .find_map(|process| look(&process))
        .map_or(Ok(()), Err)
}

/// A probe in the code of a process.
pub fn look(process: &Process) -> Option<Failure> {
    let maps = process.maps().ok()?.0;
    if !has_area(&maps) {
        return None;
    }
    let is_code = |map: &&MemoryMap| map.perms.contains(MMPermissions::EXECUTE | MMPermissions::PRIVATE);
    let probed = maps.iter().filter(is_code).find_map(|map| match &map.pathname {
        MMapPath::Path(path) if has_breakpoints(process, map).unwrap_or(false) => Some(path.display()),
        _ => None,
    })?;
    let pid = pids::called(process.pid);
    Some(
        Failure::new(
            Code::NotDumpable,
            format!("process {pid} is traced by probes in its code (uprobes, in {probed})"),
        )
        .note("a probe is a change of the code itself: it would be in the archive, and end the restored program")
        .help("end the tracing (`hetckpt trace`, bpftrace, perf), then dump the program"),
    )
}

/// True if a page of the mapping is not the file's any more, and has breakpoints where the file has none.
fn has_breakpoints(process: &Process, map: &MemoryMap) -> io::Result<bool> {
    let page_bytes = procfs::page_size();
    let (start, end) = map.address;
    let first = usize::try_from(start / page_bytes).unwrap_or(usize::MAX);
    let last = usize::try_from(end / page_bytes).unwrap_or(usize::MAX);
    let mut pages = process.pagemap().map_err(io::Error::other)?;
    let infos = pages.get_range_info(first..last).map_err(io::Error::other)?;
    let is_own = |info: &PageInfo| match info {
        PageInfo::MemoryPage(flags) => {
            flags.contains(MemoryPageFlags::PRESENT) && !flags.contains(MemoryPageFlags::FILE)
        }
        PageInfo::SwapPage(_) => true,
    };
    let memory = File::open(format!("/proc/{}/mem", process.pid))?;
    let file = File::open(format!("/proc/{}/map_files/{start:x}-{end:x}", process.pid)).or_else(|_| {
        let path = match &map.pathname {
            MMapPath::Path(path) => path.as_path(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        File::open(path)
    })?;
    let size = usize::try_from(page_bytes).unwrap_or(4096);
    let (mut now, mut before) = (vec![0; size], vec![0; size]);
    for (number, _) in (0..).zip(&infos).filter(|(_, info)| is_own(info)) {
        let offset = number * page_bytes;
        memory.read_exact_at(&mut now, start + offset)?;
        let length = read_all(&file, &mut before, map.offset + offset)?;
        let pairs = now.iter().zip(&before[..length]);
        if pairs
            .into_iter()
            .any(|(&now, &before)| now == BREAKPOINT && before != now)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads up to the file's end.
fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], at + length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}
