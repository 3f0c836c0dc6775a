//! `hetckpt inspect`: what an archive holds.

use std::error::Error;
use std::process::ExitCode;

use hetckpt_archive::manifest::{CarriedFile, Manifest, MemberEntry};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify;
use hetckpt_state::summary::{DescriptionError, KernelSummary, Summary};
use serde::Serialize;

use crate::cli::Inspect;
use crate::diagnostic::Failure;
use crate::{archive_error, output};

/// What `inspect --json` says. It borrows: a manifest may have millions of entries.
#[derive(Serialize)]
struct Inspected<'a> {
    archive: &'a str,
    format_version: u32,
    written_by: &'a str,
    created_unix: u64,
    criu_version: &'a str,
    root_pid: i32,
    command: &'a [String],
    processes: &'a [Summary],
    files: &'a [CarriedFile],
    members: &'a [MemberEntry],
}

/// Shows the manifest and the devices' state.
pub fn run(options: Inspect) -> anyhow::Result<ExitCode> {
    let archive = match options.verify {
        true => verify::verify(&options.archive),
        false => Archive::open(&options.archive),
    }
    .map_err(archive_error::failure)?;
    let manifest = archive.manifest();
    let summaries = summaries(manifest)?;
    if options.json {
        output::json(&Inspected {
            archive: &options.archive.to_string_lossy(),
            format_version: manifest.format_version,
            written_by: &manifest.written_by,
            created_unix: manifest.created_unix,
            criu_version: &manifest.criu_version,
            root_pid: manifest.root_pid,
            command: &manifest.command,
            processes: &summaries,
            files: &manifest.files,
            members: &manifest.members,
        });
    } else {
        print(manifest, &summaries);
    }
    Ok(ExitCode::SUCCESS)
}

/// The device servers' summaries in a manifest.
pub fn summaries(manifest: &Manifest) -> Result<Vec<Summary>, Failure> {
    let descriptions = manifest.processes.iter().map(|text| text.parse());
    let summaries = descriptions.map(|described| described.map(|described| described.summary));
    summaries.collect::<Result<_, _>>().map_err(|error| match error {
        DescriptionError::Version { .. } => Failure::new("HK0703", error.to_string()).unsupported(),
        error => Failure::new("HK0702", "the archive describes a process in a way that makes no sense")
            .note(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    })
}

fn print(manifest: &Manifest, summaries: &[Summary]) {
    let stored: u64 = manifest.members.iter().map(|m| m.stored_bytes).sum();
    let raw: u64 = manifest.members.iter().map(|m| m.raw_bytes).sum();
    output::line(format!("command      {}", manifest.command.join(" ")));
    output::line(format!("root process {}", manifest.root_pid));
    output::line(format!("dumped       {}", output::moment(manifest.created_unix)));
    let criu_version = match manifest.criu_version.as_str() {
        "" => "of unknown version",
        version => version,
    };
    output::line(format!(
        "written by   hetckpt {}, CRIU {criu_version}",
        manifest.written_by
    ));
    output::line(format!(
        "members      {}, {} stored ({} raw)",
        manifest.members.len(),
        output::bytes(stored),
        output::bytes(raw)
    ));
    let carried: u64 = manifest.files.iter().map(|file| file.size_bytes).sum();
    match manifest.files.len() {
        0 => output::line("files        none carried"),
        count => output::line(format!("files        {count} carried, {} raw", output::bytes(carried))),
    }
    if summaries.is_empty() {
        output::line("no process had made a CUDA call");
    }
    for summary in summaries {
        print_process(summary);
    }
    // Last: a program may have loaded a hundred libraries.
    if !manifest.files.is_empty() {
        output::line("");
        output::line("carried files");
    }
    for file in &manifest.files {
        output::line(format!("  {} ({})", file.path, output::bytes(file.size_bytes)));
    }
}

fn print_process(summary: &Summary) {
    output::line("");
    output::line(format!("process {}", summary.pid));
    output::line(format!(
        "  captured on   {} ({})",
        summary.captured_on, summary.captured_on_kind
    ));
    output::line(format!("  sees          {}", summary.virtual_device));
    output::line(format!("  restorable on {}", summary.restorable_on.join(", ")));
    output::line(format!(
        "  device memory {} in {}, {} stored",
        output::bytes(summary.allocated_bytes),
        output::counted(summary.allocations.len(), "allocation"),
        output::bytes(summary.stored_bytes)
    ));
    output::line(format!(
        "  streams {}, events {}, commands held back {}",
        summary.num_streams, summary.num_events, summary.num_held_commands
    ));
    if summary.kernels_in_flight.is_empty() {
        output::line("  no kernel was in flight");
    }
    for kernel in &summary.kernels_in_flight {
        print_kernel(kernel);
    }
}

fn print_kernel(kernel: &KernelSummary) {
    let dim = |d: [u32; 3]| format!("{}x{}x{}", d[0], d[1], d[2]);
    output::line(format!("  kernel {} (stream {})", kernel.name, kernel.stream));
    output::line(format!("    grid {}, block {}", dim(kernel.grid), dim(kernel.block)));
    output::line(format!(
        "    blocks: {} finished, {} paused, {} not started",
        kernel.blocks_finished, kernel.blocks_paused, kernel.blocks_not_started
    ));
    for (point, threads) in &kernel.resume_points {
        output::line(format!("    {threads} threads at resume point rp{point}"));
    }
    if kernel.threads_finished > 0 {
        output::line(format!(
            "    {} threads of paused blocks have finished",
            kernel.threads_finished
        ));
    }
}
