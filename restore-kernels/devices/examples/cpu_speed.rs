//! How fast kernels run on the CPU device with one worker, beside the same work as a plain loop on one thread.
//!
//! `cargo run --release -p hetckpt-devices --example cpu_speed`. The loops are compiled for the processor they run on
//! if `RUSTFLAGS=-Ctarget-cpu=native` says so, as kernels always are.

#![allow(clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_devices::cpu::{CpuDevice, CpuOptions};
use hetckpt_devices::device::{Blocks, Code, Device, Launch, LoadRequest, LoadedKernel, Outcome};
use hetckpt_interp::cases;
use hetckpt_ir::text::print;
use hetckpt_probes::options::Options;

fn main() -> Result<()> {
    let folder = std::env::current_exe()?
        .parent()
        .and_then(|p| p.parent())
        .context("no folder")?
        .join("deps");
    let code_generator = Some(folder.join("libhetckpt_cpu_codegen.so"));
    let device = CpuDevice::open(&CpuOptions {
        code_generator,
        num_workers: Some(1),
        ..CpuOptions::default()
    })?;
    println!("{:<34} {:>10} {:>10} {:>7}", "", "kernel", "loop", "ratio");
    vector_add(&device, "vector_add, once", 1 << 22, 1)?;
    vector_add(&device, "vector_add, 100 times in cache", 1 << 16, 100)?;
    saxpy(&device)?;
    matmul(&device)?;
    scan(&device)?;
    empty_blocks(&device)
}

fn load(device: &CpuDevice, case: &str) -> Result<Arc<dyn LoadedKernel>> {
    let case = cases::all()
        .into_iter()
        .find(|c| c.name == case)
        .context("no such case")?;
    let module = hetckpt_ptx::lower_module(case.ptx)?;
    let kernel = module
        .kernels
        .iter()
        .find(|k| k.name == case.kernel)
        .context("no such kernel")?;
    let program = Program::from_start(hetckpt_probes::probe(kernel, &Options::default())?);
    let kernel = &program.kernel;
    Ok(device.load(&LoadRequest {
        name: kernel.name.clone(),
        code: Code::HetIr {
            text: print::kernel(kernel),
            entries: vec![(0, 0)],
        },
        entries: vec![0],
        layout: ThreadStateLayout::new(kernel),
        param_bytes: kernel.param_bytes(),
        params: vec![],
        static_shared_bytes: kernel.shared.static_bytes,
        local_bytes: kernel.local.size_bytes,
    })?)
}

/// Parameters are given as their bytes, laid out.
fn time_kernel(
    device: &CpuDevice,
    kernel: &Arc<dyn LoadedKernel>,
    grid: [u32; 3],
    block: [u32; 3],
    params: &[u8],
) -> Result<Duration> {
    let queue = device.create_queue(0)?;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let launch = Launch {
            kernel: kernel.clone(),
            shape: LaunchShape::new(grid, block),
            params: params.into(),
            blocks: Blocks::All,
        };
        let began = Instant::now();
        let outcome = queue.launch(launch)?.wait();
        best = best.min(began.elapsed());
        if !matches!(outcome, Outcome::Finished) {
            bail!("{outcome:?}");
        }
    }
    Ok(best)
}

fn time_loop(mut work: impl FnMut()) -> Duration {
    (0..5)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed()
        })
        .min()
        .unwrap_or_default()
}

fn report(what: &str, kernel: Duration, plain: Duration) {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "{what:<34} {:>7.2} ms {:>7.2} ms {:>7.2}",
        ms(kernel),
        ms(plain),
        ms(kernel) / ms(plain)
    );
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Two 32-bit parameters in one word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn vector_add(device: &CpuDevice, what: &str, n: u32, passes: u32) -> Result<()> {
    let kernel = load(device, "vector_add")?;
    let (mut sum, addend) = (vec![1u32; n as usize], vec![3u32; n as usize]);
    let params = bytes(&[sum.as_mut_ptr() as u64, addend.as_ptr() as u64, pair(n, passes)]);
    let took = time_kernel(device, &kernel, [n / 256, 1, 1], [256, 1, 1], &params)?;
    let plain = time_loop(|| {
        for (s, a) in sum.iter_mut().zip(&addend) {
            for _ in 0..passes {
                *s = black_box(s.wrapping_add(*a));
            }
        }
    });
    report(what, took, plain);
    Ok(())
}

fn saxpy(device: &CpuDevice) -> Result<()> {
    let (n, passes, a) = (1u32 << 18, 100, 0.5f32);
    let kernel = load(device, "saxpy")?;
    let (x, mut y) = (vec![1f32; n as usize], vec![3f32; n as usize]);
    let mut params = bytes(&[
        u64::from(a.to_bits()),
        x.as_ptr() as u64,
        y.as_mut_ptr() as u64,
        pair(n, passes),
    ]);
    params.truncate(32);
    let took = time_kernel(device, &kernel, [n / 256, 1, 1], [256, 1, 1], &params)?;
    let plain = time_loop(|| {
        for (x, y) in x.iter().zip(&mut y) {
            for _ in 0..passes {
                *y = black_box(a * *x + *y);
            }
        }
    });
    report("saxpy, 100 times", took, plain);
    Ok(())
}

fn matmul(device: &CpuDevice) -> Result<()> {
    let n = 256u32;
    let size = (n * n) as usize;
    let kernel = load(device, "matmul")?;
    let (a, b, mut sums) = (vec![1f32; size], vec![2f32; size], vec![0f64; size]);
    let params = bytes(&[
        a.as_ptr() as u64,
        b.as_ptr() as u64,
        sums.as_mut_ptr() as u64,
        pair(n, 1),
    ]);
    let took = time_kernel(device, &kernel, [n / 16, n / 16, 1], [16, 16, 1], &params)?;
    let n = n as usize;
    let plain = time_loop(|| {
        for row in 0..n {
            for column in 0..n {
                let mut product = 0f32;
                for k in 0..n {
                    product += a[row * n + k] * b[k * n + column];
                }
                sums[row * n + column] = f64::from(product);
            }
        }
        black_box(&sums);
    });
    report("matmul 256x256, barriers", took, plain);
    Ok(())
}

fn scan(device: &CpuDevice) -> Result<()> {
    let n = 1u32 << 20;
    let kernel = load(device, "scan_tiles")?;
    let (input, mut out, mut sums) = (
        vec![1u32; n as usize],
        vec![0u32; n as usize],
        vec![0u32; n as usize / 256],
    );
    let params = bytes(&[
        input.as_ptr() as u64,
        out.as_mut_ptr() as u64,
        sums.as_mut_ptr() as u64,
        pair(n, 1),
    ]);
    let took = time_kernel(device, &kernel, [n / 256, 1, 1], [256, 1, 1], &params)?;
    let plain = time_loop(|| {
        for (tile_in, tile_out) in input.chunks(256).zip(out.chunks_mut(256)) {
            let mut total = 0u32;
            for (i, o) in tile_in.iter().zip(tile_out) {
                total = total.wrapping_add(*i);
                *o = black_box(total);
            }
        }
    });
    report("scan of 1 Mi, warp shuffles", took, plain);
    Ok(())
}

/// What a block costs that does next to nothing.
fn empty_blocks(device: &CpuDevice) -> Result<()> {
    let kernel = load(device, "vector_add")?;
    let blocks = 1u32 << 18;
    let took = time_kernel(device, &kernel, [blocks, 1, 1], [32, 1, 1], &bytes(&[0, 0, 0]))?;
    println!(
        "{:<34} {:>7.1} ns a block of 32 threads",
        "empty blocks",
        took.as_secs_f64() * 1e9 / f64::from(blocks)
    );
    Ok(())
}
