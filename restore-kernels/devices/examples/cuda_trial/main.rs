//! Tries the CUDA device with the test programs' kernels, on a machine that has one: pauses each at random moments,
//! lets it go on, and compares memory with an unpaused run; measures what probes cost and how long a pause takes.
//!
//! `cuda_trial FOLDER-OF-PTX [PAUSES [SEED [NAME…]]]`; a name is a kernel's, or `figures`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program"
)]

mod cases;
mod figures;
mod forms;
mod trial;

use std::path::PathBuf;

use hetckpt_devices::cuda::{CudaDevice, CudaOptions};
use hetckpt_devices::device::Device;

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().expect("the folder with the programs' PTX"));
    let pauses: u32 = args.next().map_or(10, |n| n.parse().expect("number of pauses"));
    let seed: u64 = args.next().map_or(1, |n| n.parse().expect("a seed"));
    let names: Vec<String> = args.collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let start = std::time::Instant::now();
    let device = match CudaDevice::open(0, &CudaOptions::default()) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let about = device.describe();
    println!(
        "{} {} sm_{} shared base {} opened in {:?}",
        about.name,
        about.driver,
        device.sm(),
        device.shared_base(),
        start.elapsed()
    );
    println!(
        "{:16} {:>8} {:>8} {:>8} {:>7} {:>7}  pauses: mid-flight/not started/finished, wrong",
        "kernel", "orig ms", "hetIR ms", "probe ms", "hetIR%", "probe%"
    );
    let mut failures = 0;
    let mut product = (0.0, 0u32);
    for case in cases::cases().into_iter().filter(|case| is_wanted(case.kernel)) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            trial::run(&device, &folder, &case, pauses, seed)
        }));
        match result {
            Ok(report) => {
                println!("{report}");
                failures += report.wrong;
                product = (product.0 + report.probe_factor().ln(), product.1 + 1);
            }
            Err(_) => {
                println!("{:16} failed", case.kernel);
                failures += 1;
            }
        }
    }
    if product.1 > 1 {
        let mean = (product.0 / f64::from(product.1)).exp();
        println!("probe cost, geometric mean: {:+.2} %", (mean - 1.0) * 100.0);
    }
    if is_wanted("figures") {
        figures::run(&device, &folder, &about);
    }
    println!("{failures} failures, seed {seed}, {:?}", start.elapsed());
    std::process::exit(i32::from(failures > 0));
}
