//! One kernel: times its forms, pauses it, compares.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_devices::cuda::CudaDevice;
use hetckpt_devices::device::{Blocks, DEVICE_BASE, Device, GRANULARITY, Launch, LoadedKernel, Outcome, Queue};

use crate::cases::{Arg, Case};
use crate::forms::{Forms, read_module};

/// How long a measured run should take.
const TARGET: Duration = Duration::from_millis(12);
const REPEATS: usize = 7;

/// A generator of random numbers good enough to choose moments.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What came of one kernel.
pub struct Report {
    name: String,
    millis: [f64; 3],
    /// Registers and local bytes.
    resources: [(u32, u32); 3],
    mid_flight: u32,
    not_started: u32,
    finished: u32,
    pub wrong: u32,
}

impl Report {
    pub fn probe_factor(&self) -> f64 {
        self.millis[2] / self.millis[0]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [original, plain, probed] = self.millis;
        let percent = |ms: f64| (ms / original - 1.0) * 100.0;
        write!(
            f,
            "{:16} {original:8.3} {plain:8.3} {probed:8.3} {:+7.2} {:+7.2}  {}/{}/{}, {} {:?}",
            self.name,
            percent(plain),
            percent(probed),
            self.mid_flight,
            self.not_started,
            self.finished,
            self.wrong,
            self.resources
        )
    }
}

/// Memory and arguments of a case.
pub struct Setup {
    pub image: Vec<u8>,
    pub globals: BTreeMap<String, u64>,
    pub params: Vec<u8>,
    /// Bytes of module variables at the image's start.
    globals_bytes: usize,
    iterations_at: Option<(usize, usize)>,
}

impl Setup {
    pub fn new(case: &Case, module: &hetckpt_ir::module::Module, params: &[hetckpt_ir::kernel::Param]) -> Self {
        let mut image = Vec::new();
        let mut random = Random(7);
        let mut globals = BTreeMap::new();
        for global in &module.globals {
            globals.insert(global.name.clone(), DEVICE_BASE + image.len() as u64);
            let end = image.len() + (global.size_bytes as usize).next_multiple_of(256);
            image.extend(&global.init);
            image.resize(end, 0);
        }
        let globals_bytes = image.len();
        let size = params.iter().map(|p| p.offset + p.size_bytes).max().unwrap_or(0) as usize;
        let mut bytes = vec![0; size];
        let mut iterations_at = None;
        for (arg, param) in case.args.iter().zip(params) {
            let address = DEVICE_BASE + image.len() as u64;
            let (at, width) = (param.offset as usize, param.size_bytes as usize);
            let value = match *arg {
                Arg::Words(n) => {
                    (0..n).for_each(|_| image.extend((random.next() as u32).to_le_bytes()));
                    address
                }
                Arg::Floats(n) => {
                    (0..n).for_each(|_| image.extend((random.fraction() as f32).to_le_bytes()));
                    address
                }
                Arg::Zeros(n) => {
                    image.resize(image.len() + n as usize, 0);
                    address
                }
                Arg::U32(v) => u64::from(v),
                Arg::U64(v) => v,
                Arg::F32(v) => u64::from(v.to_bits()),
                Arg::Iterations(v) => {
                    iterations_at = Some((at, width));
                    u64::from(v)
                }
            };
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            image.resize(image.len().next_multiple_of(256), 0);
        }
        Self {
            image,
            globals,
            params: bytes,
            globals_bytes,
            iterations_at,
        }
    }

    fn iterations(&self) -> Option<u64> {
        let (at, width) = self.iterations_at?;
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&self.params[at..at + width]);
        Some(u64::from_le_bytes(bytes))
    }

    pub fn set_iterations(&mut self, iterations: u64) {
        if let Some((at, width)) = self.iterations_at {
            self.params[at..at + width].copy_from_slice(&iterations.to_le_bytes()[..width]);
        }
    }

    pub fn mapped_bytes(&self) -> u64 {
        (self.image.len() as u64).next_multiple_of(GRANULARITY)
    }
}

pub fn launch_of(case: &Case, setup: &Setup, kernel: &Arc<dyn LoadedKernel>, blocks: Blocks) -> Launch {
    Launch {
        kernel: kernel.clone(),
        shape: LaunchShape {
            dynamic_shared_bytes: case.dynamic_shared_bytes,
            ..LaunchShape::new(case.grid, case.block)
        },
        params: setup.params.as_slice().into(),
        blocks,
    }
}

/// Milliseconds of `count` launches; module variables are as at the start.
fn time(device: &CudaDevice, queue: &dyn Queue, setup: &Setup, launch: &Launch, count: usize) -> f64 {
    device
        .write(DEVICE_BASE, &setup.image[..setup.globals_bytes])
        .expect("copy");
    let start = Instant::now();
    let running: Vec<_> = (0..count)
        .map(|_| queue.launch(launch.clone()).expect("a launch"))
        .collect();
    for one in &running {
        assert!(
            matches!(one.wait(), Outcome::Finished),
            "a run that nobody pauses finishes"
        );
    }
    start.elapsed().as_secs_f64() * 1e3
}

pub fn run(device: &CudaDevice, folder: &Path, case: &Case, pauses: u32, seed: u64) -> Report {
    let (text, module) = read_module(folder, case.file);
    let kernel = module
        .kernels
        .iter()
        .find(|k| k.name.contains(case.kernel))
        .expect("the kernel")
        .clone();
    let mut setup = Setup::new(case, &module, &kernel.params);
    device.map(DEVICE_BASE, setup.mapped_bytes()).expect("memory");
    device.write(DEVICE_BASE, &setup.image).expect("copy");
    let forms = Forms::new(device, &text, kernel, &setup.globals);
    let queue = device.create_queue(0).expect("a queue");

    // Find out how many iterations, or else how many launches, take a while.
    let mut count = 1;
    loop {
        time(
            device,
            &*queue,
            &setup,
            &launch_of(case, &setup, &forms.original, Blocks::All),
            count,
        );
        let millis = time(
            device,
            &*queue,
            &setup,
            &launch_of(case, &setup, &forms.original, Blocks::All),
            count,
        );
        let factor = (TARGET.as_secs_f64() * 1e3 / millis).clamp(1.0, 64.0);
        if factor < 1.3 {
            break;
        }
        match setup.iterations() {
            Some(iterations) => setup.set_iterations((iterations as f64 * factor).ceil() as u64),
            None => count = ((count as f64 * factor).ceil() as usize).min(400),
        }
        if count == 400 {
            break;
        }
    }
    let mut millis = [const { Vec::new() }; 3];
    for _ in 0..REPEATS {
        for (kernel, times) in [&forms.original, &forms.plain, &forms.ordinary]
            .into_iter()
            .zip(&mut millis)
        {
            times.push(time(
                device,
                &*queue,
                &setup,
                &launch_of(case, &setup, kernel, Blocks::All),
                count,
            ));
        }
    }
    let millis = millis.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });

    time_variants(device, &*queue, case, &setup, &forms, count);

    let resources = [&forms.original, &forms.plain, &forms.ordinary].map(|kernel| {
        let attributes = kernel.attributes();
        (attributes.num_registers, attributes.local_bytes)
    });
    let mut report = Report {
        resources,
        name: case.kernel.into(),
        millis,
        mid_flight: 0,
        not_started: 0,
        finished: 0,
        wrong: 0,
    };
    device.write(DEVICE_BASE, &setup.image).expect("copy");
    time(
        device,
        &*queue,
        &setup,
        &launch_of(case, &setup, &forms.ordinary, Blocks::All),
        count,
    );
    let expected = read_back(device, &setup);
    let mut random = Random(seed);
    for pause in 0..pauses {
        device.write(DEVICE_BASE, &setup.image).expect("copy");
        run_with_pauses(
            device,
            &*queue,
            case,
            &setup,
            &forms,
            count,
            &mut random,
            &mut report,
            pause % 2 == 1,
        );
        let got = read_back(device, &setup);
        if got != expected {
            report.wrong += 1;
            let at = got.iter().zip(&expected).position(|(a, b)| a != b);
            let differing = got.iter().zip(&expected).filter(|(a, b)| a != b).count();
            println!(
                "  {}: memory differs at {at:?}, {differing} bytes, pause {pause}",
                case.kernel
            );
        }
    }
    drop(queue);
    device.unmap(DEVICE_BASE, setup.mapped_bytes()).expect("unmap");
    report
}

/// Times the PTX files of the folder `HETCKPT_TRIAL_VARIANTS` whose names begin with the kernel's.
fn time_variants(device: &CudaDevice, queue: &dyn Queue, case: &Case, setup: &Setup, forms: &Forms<'_>, count: usize) {
    let Some(folder) = std::env::var_os("HETCKPT_TRIAL_VARIANTS") else {
        return;
    };
    let files = std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|file| file.path());
    let mut files: Vec<_> = files
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(case.kernel))
        })
        .collect();
    files.sort();
    for path in files {
        let kernel = forms.variant(std::fs::read_to_string(&path).expect("PTX"));
        let launch = launch_of(case, setup, &kernel, Blocks::All);
        let mut times: Vec<f64> = (0..REPEATS)
            .map(|_| time(device, queue, setup, &launch, count))
            .collect();
        times.sort_by(f64::total_cmp);
        println!("  {}: {:.3} ms", path.display(), times[times.len() / 2]);
    }
}

fn read_back(device: &CudaDevice, setup: &Setup) -> Vec<u8> {
    let mut bytes = vec![0; setup.image.len()];
    device.read(DEVICE_BASE, &mut bytes).expect("copy");
    bytes
}

#[allow(clippy::too_many_arguments, reason = "a test program")]
fn run_with_pauses(
    device: &CudaDevice,
    queue: &dyn Queue,
    case: &Case,
    setup: &Setup,
    forms: &Forms<'_>,
    count: usize,
    random: &mut Random,
    report: &mut Report,
    all_points: bool,
) {
    // The whole grid, or what is left.
    let mut pending: Vec<Option<Arc<PausedGrid>>> = vec![None; count];
    let mut rounds = 0;
    while !pending.is_empty() {
        let launches: Vec<Launch> = pending
            .iter()
            .map(|rest| match rest {
                None => launch_of(case, setup, &forms.ordinary, Blocks::All),
                Some(rest) => {
                    let kernel = forms.continuation(rest, all_points);
                    launch_of(case, setup, &kernel, Blocks::Rest(rest.clone()))
                }
            })
            .collect();
        let start = Instant::now();
        let running: Vec<_> = launches
            .into_iter()
            .map(|l| queue.launch(l).expect("a launch"))
            .collect();
        let pauses_now = rounds < 3;
        if pauses_now {
            let moment = Duration::from_secs_f64(report.millis[2] / 1e3 * random.fraction() / f64::from(rounds + 1));
            while start.elapsed() < moment {
                std::hint::spin_loop();
            }
            device.request_pause().expect("a pause");
        }
        pending.clear();
        for (i, one) in running.iter().enumerate() {
            match one.wait() {
                Outcome::Finished if i == 0 => report.finished += 1,
                Outcome::Finished => {}
                Outcome::Paused(left) => {
                    if !left.paused.is_empty() {
                        report.mid_flight += 1;
                    } else {
                        report.not_started += u32::from(i == 0);
                    }
                    let of =
                        |b: &&hetckpt_abi::paused_block::PausedBlock| b.resume_points.iter().all(|&p| p == FINISHED);
                    assert!(
                        left.paused.iter().find(of).is_none(),
                        "a paused block has a thread that has not finished"
                    );
                    pending.push(Some(Arc::new(left)));
                }
                Outcome::PausedSteps(_) => panic!("these are no graphs"),
                Outcome::Failed(error) => panic!("{error}"),
            }
        }
        if pauses_now {
            device.end_pause().expect("the pause's end");
        }
        rounds += 1;
    }
}
