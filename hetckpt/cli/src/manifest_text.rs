//! A manifest for people.

use hetckpt_archive::manifest::{Manifest, MemberEntry};
use hetckpt_report::quantity;
use hetckpt_state::summary::{KernelSummary, Summary};

use crate::output;

/// Prints what a manifest tells.
pub fn print(manifest: &Manifest) {
    let stored: u64 = manifest.index.members.iter().map(MemberEntry::stored_bytes).sum();
    let raw: u64 = manifest.index.members.iter().map(MemberEntry::raw_bytes).sum();
    output::line(format!("command      {}", manifest.header.command.join(" ")));
    output::line(format!("root process {}", manifest.header.root_pid));
    output::line(format!(
        "dumped       {}",
        quantity::moment(manifest.header.created_unix)
    ));
    let criu_version = match manifest.header.criu_version.as_str() {
        "" => "of unknown version",
        version => version,
    };
    output::line(format!(
        "written by   hetckpt {}, CRIU {criu_version}",
        manifest.header.written_by
    ));
    output::line(format!(
        "members      {}, {} stored ({} raw)",
        manifest.index.members.len(),
        quantity::bytes(stored),
        quantity::bytes(raw)
    ));
    let borrowed: u64 = manifest.index.members.iter().map(MemberEntry::borrowed_bytes).sum();
    if !manifest.index.parents.is_empty() {
        output::line(format!("borrowed     {}, from", quantity::bytes(borrowed)));
    }
    for parent in &manifest.index.parents {
        output::line(format!("  {}", parent.file));
    }
    let carried: u64 = manifest.index.files.iter().map(|file| file.size_bytes).sum();
    match manifest.index.files.len() {
        0 => output::line("files        none carried"),
        count => output::line(format!(
            "files        {count} carried, {} raw",
            quantity::bytes(carried)
        )),
    }
    if manifest.index.processes.is_empty() {
        output::line("no process had made a CUDA call");
    }
    for summary in manifest.summaries() {
        print_process(summary);
    }
    // Last: a program may have loaded a hundred libraries.
    if !manifest.index.files.is_empty() {
        output::line("");
        output::line("carried files");
    }
    for file in &manifest.index.files {
        output::line(format!("  {} ({})", file.path, quantity::bytes(file.size_bytes)));
    }
}

fn print_process(summary: &Summary) {
    output::line("");
    output::line(format!("process {}", summary.pid));
    if !summary.label.is_empty() {
        output::line(format!("  label         {}", summary.label));
    }
    for device in &summary.devices {
        let (name, kind) = (&device.captured_on, &device.captured_on_kind);
        output::line(format!("  captured on   {name} ({kind})"));
        output::line(format!("  sees          {}", device.virtual_device));
    }
    output::line(format!("  restorable on {}", summary.restorable_on.join(", ")));
    for code in &summary.native_code {
        output::line(format!("  native code   {}", code));
    }
    output::line(format!(
        "  device memory {} in {}, {} stored",
        quantity::bytes(summary.allocated_bytes),
        quantity::counted(summary.allocations.len(), "allocation"),
        quantity::bytes(summary.stored_bytes)
    ));
    if summary.num_arrays > 0 || summary.num_image_objects > 0 {
        let count = |count, one| quantity::counted(usize::try_from(count).unwrap_or(usize::MAX), one);
        output::line(format!(
            "  arrays        {} in {}, {}",
            quantity::bytes(summary.array_bytes),
            count(summary.num_arrays, "array"),
            count(summary.num_image_objects, "texture or surface object")
        ));
    }
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
