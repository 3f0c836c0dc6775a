//! How fast generated OpenCL C is beside the same kernels by hand, and what the probes cost.
//!
//! `cargo run --release -p hetckpt-devices --example opencl_speed -- [--device PLATFORM:DEVICE] [--repeats N] [--text
//! FOLDER] [--sub-groups] [--shared] [KERNEL…]`. The three forms of a kernel take turns; the shortest time of each
//! counts. What they leave in memory must be the same. `--text` keeps the generated texts; `--sub-groups` has votes for
//! them; `--shared` has device memory in shared virtual memory, which generated kernels reach by address, without a
//! base.
#![allow(clippy::print_stdout, reason = "an example")]
#![allow(unsafe_code, reason = "calls the OpenCL driver")]

mod cases;
mod launcher;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hetckpt_abi::opencl_program::OpenClProgram;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;

use cases::{Case, Element};
use launcher::{Launcher, Prepared};

struct Settings {
    platform: usize,
    device: usize,
    repeats: u32,
    texts: Option<PathBuf>,
    sub_groups: bool,
    shared: bool,
    names: Vec<String>,
}

fn settings() -> Result<Settings> {
    let mut settings = Settings {
        platform: 0,
        device: 0,
        repeats: 15,
        texts: None,
        sub_groups: false,
        shared: false,
        names: vec![],
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().context("a value is missing");
        match arg.as_str() {
            "--device" => {
                let value = value()?;
                let (platform, device) = value.split_once(':').context("PLATFORM:DEVICE")?;
                (settings.platform, settings.device) = (platform.parse()?, device.parse()?);
            }
            "--repeats" => settings.repeats = value()?.parse()?,
            "--sub-groups" => settings.sub_groups = true,
            "--shared" => settings.shared = true,
            "--text" => settings.texts = Some(value()?.into()),
            _ => settings.names.push(arg),
        }
    }
    Ok(settings)
}

fn main() -> Result<()> {
    let settings = settings()?;
    let mut launcher = Launcher::open(settings.platform, settings.device)?;
    if settings.shared {
        launcher.share_memory()?;
    }
    println!("{}; milliseconds, the shortest of {}", launcher.name, settings.repeats);
    println!();
    println!("| kernel | by hand | generated | with probes | hand / generated | cost of the probes % |");
    println!("|---|---|---|---|---|---|");
    let (mut speeds, mut costs) = (Vec::new(), Vec::new());
    let is_wanted = |case: &Case| settings.names.is_empty() || settings.names.iter().any(|n| n == case.name);
    for case in cases::all().iter().filter(|case| is_wanted(case)) {
        let [by_hand, plain, probed] = compare(&launcher, case, &settings)
            .with_context(|| case.name.to_owned())?
            .map(|t| t.as_secs_f64());
        let (speed, cost) = (by_hand / plain, probed / plain);
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {speed:.2} | {:+.1} |",
            case.name,
            by_hand * 1e3,
            plain * 1e3,
            probed * 1e3,
            (cost - 1.0) * 100.0
        );
        speeds.push(speed);
        costs.push(cost);
    }
    println!(
        "| geometric mean | | | | {:.3} | {:+.1} |",
        mean(&speeds),
        (mean(&costs) - 1.0) * 100.0
    );
    Ok(())
}

fn mean(factors: &[f64]) -> f64 {
    (factors.iter().map(|f| f.ln()).sum::<f64>() / factors.len() as f64).exp()
}

/// Times of the kernel by hand, generated, and generated with probes.
fn compare(launcher: &Launcher, case: &Case, settings: &Settings) -> Result<[Duration; 3]> {
    let kernel = kernel_of(launcher, case)?;
    let probed = hetckpt_probes::probe(&kernel, &Default::default())?;
    let shared_bytes = kernel.shared.static_bytes;
    let probed = text_of(probed, false, settings.sub_groups)?;
    // What goes in rounds has its probes in any case.
    let plain = text_of(kernel, true, settings.sub_groups).unwrap_or_else(|_| probed.clone());
    let mut all = vec![launcher.by_hand(case)?];
    for (text, form) in [(plain, "plain"), (probed, "probed")] {
        if let Some(folder) = &settings.texts {
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join(format!("{}-{form}.cl", case.name)), &text.text)?;
        }
        all.push(launcher.generated(case, &text, shared_bytes)?);
    }
    // The first launch waits for the driver's compiler.
    let mut expected: Option<Vec<Vec<u8>>> = None;
    for prepared in &mut all {
        launcher.run(case, prepared)?;
        let memory = launcher.memory(case, prepared)?;
        match &expected {
            None => expected = Some(memory),
            Some(expected) => check(case, expected, &memory)?,
        }
    }
    best_times(launcher, case, &mut all, settings.repeats)
}

fn best_times(launcher: &Launcher, case: &Case, all: &mut [Prepared], repeats: u32) -> Result<[Duration; 3]> {
    let mut best = [Duration::MAX; 3];
    for _ in 0..repeats {
        for (best, prepared) in best.iter_mut().zip(all.iter_mut()) {
            *best = (*best).min(launcher.run(case, prepared)?);
        }
    }
    Ok(best)
}

/// The kernel, its variables bound to the case's buffers.
fn kernel_of(launcher: &Launcher, case: &Case) -> Result<Kernel> {
    let sources = hetckpt_interp::cases::all();
    let source = sources
        .iter()
        .find(|source| source.ptx.contains(&format!(".entry {}(", case.mangled)));
    let module = hetckpt_ptx::lower_module(source.context("no PTX")?.ptx)?;
    let kernels = module.kernels.into_iter();
    let mut kernel = kernels
        .into_iter()
        .find(|k| k.name == case.mangled)
        .context("no kernel")?;
    let own: BTreeMap<&str, usize> = case.globals.iter().copied().collect();
    let addresses = module
        .globals
        .iter()
        .map(|global| {
            (
                global.name.clone(),
                own.get(global.name.as_str()).map_or(0, |i| launcher.address(case, *i)),
            )
        })
        .collect();
    bind_globals(&mut kernel, &addresses).map_err(|global| anyhow!("`{}` has no address", global.name))?;
    Ok(kernel)
}

fn text_of(kernel: Kernel, never_stops: bool, has_votes_of_sub_groups: bool) -> Result<OpenClProgram> {
    let layout = ThreadStateLayout::new(&kernel);
    let options = OpenClOptions {
        never_stops,
        has_votes_of_sub_groups,
        ..OpenClOptions::default()
    };
    Ok(generate(&Program::from_start(kernel), &layout, &options)?)
}

fn check(case: &Case, expected: &[Vec<u8>], found: &[Vec<u8>]) -> Result<()> {
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        let differing = match case.compared_as {
            Element::U32 => words(expected).zip(words(found)).position(|(a, b)| a != b),
            Element::F32 => {
                let of = |bits: u32| f64::from(f32::from_bits(bits));
                words(expected)
                    .zip(words(found))
                    .position(|(a, b)| is_far(of(a), of(b), 1e-4))
            }
            Element::F64 => {
                let pairs = doubles(expected).zip(doubles(found));
                pairs.into_iter().position(|(a, b)| is_far(a, b, 1e-4))
            }
        };
        if let Some(at) = differing {
            bail!("buffer {i} differs, first in element {at}");
        }
    }
    Ok(())
}

fn is_far(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() > tolerance * (1.0 + a.abs())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word))
}
