//! Random kernels (`hetckpt_conformance::random_ptx`) leave the same in memory whole and stopped, on the reference
//! interpreter and on devices: stopped by the interpreter at every resume point, each time continued there and on every
//! device; stopped by devices at random moments, and continued on another or the same.
//!
//! `HETCKPT_RANDOM_SECONDS=N` goes on for so long, `HETCKPT_SEED=N` starts with that kernel. `HETCKPT_RANDOM_FILE`
//! names a file with PTX to try instead, with the operands of that number: what a failure prints, cut shorter.
//! `HETCKPT_RANDOM_DEVICES` lists devices (`cpu opencl:1:0 cuda:0`) instead of the CPU and the first OpenCL device, if
//! there is one. A launch, or the building of a kernel, that goes on for more than `HETCKPT_RANDOM_PATIENCE=N` seconds
//! (900) is named, and the test aborts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "a long run says how far it is")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_conformance::random_memory::{self, BLOCKS, COMPARED_BYTES, OPERANDS_BYTES, THREADS, WORKSPACE};
use hetckpt_conformance::random_ptx::{features, has_steps, module};
use hetckpt_devices::device::{Blocks, DEVICE_BASE, GRANULARITY, Launch, LoadedKernel, Outcome};
use hetckpt_interp::{GlobalMemory, Launch as Interpreted, Pause, Run, run};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use hetckpt_ir::types::Dim3;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};
use hetckpt_server::choose_device::{Chosen, DeviceChoice, choose_with_cache};
use hetckpt_server::generate::Start;
use hetckpt_server::start_points::StartPoints;

/// Kernels of a short run.
const FEW: u64 = 2;
/// How often a kernel does what it does: where the interpreter stops it, and where devices do.
const ROUNDS: u64 = 2;
const MANY_ROUNDS: u64 = 20;
/// Most stops of one launch on a device.
const MAX_STOPS: u32 = 4;

/// What a device is at, since when.
static UNDER_WAY: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// A step of a device that may never end, as long as this lives.
struct Step;

impl Step {
    fn new(what: String) -> Self {
        *UNDER_WAY.lock().unwrap() = Some((Instant::now(), what));
        Self
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        *UNDER_WAY.lock().unwrap() = None;
    }
}

/// Aborts, for a core dump, with what has been under way for longer than `patience`.
fn watch(patience: Duration) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let under_way = UNDER_WAY.lock().unwrap();
            if let Some((since, what)) = &*under_way
                && since.elapsed() > patience
            {
                eprintln!("not done after {} s: {what}", patience.as_secs());
                std::process::abort();
            }
        }
    });
}

/// One kernel and what it starts with.
struct Case {
    seed: u64,
    text: String,
    probed: Kernel,
    layout: ThreadStateLayout,
    operands: Vec<u8>,
    /// Output at the end, by rounds.
    expected: BTreeMap<u64, Vec<u8>>,
}

/// A launch that stopped: what is left of it, and the output so far.
#[derive(Clone)]
struct Stopped {
    by: String,
    rounds: u64,
    left: PausedGrid,
    output: Vec<u8>,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn output_at() -> u64 {
    DEVICE_BASE + u64::from(OPERANDS_BYTES).next_multiple_of(4096)
}

impl Case {
    /// The kernel for a seed, or another one.
    fn new(seed: u64, text: Option<&str>) -> Self {
        let text = text.map_or_else(|| module(seed), str::to_owned);
        let lowered = hetckpt_ptx::lower_module(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        let kernel = lowered.kernels.into_iter().find(|kernel| kernel.name == "k");
        let mut kernel = kernel.unwrap_or_else(|| panic!("seed {seed}: {:?}\n{text}", lowered.rejected));
        let variables = lowered.globals.iter().map(|global| &global.name);
        let variables = variables.filter_map(|name| Some((name.clone(), random_memory::variable(name, output_at())?)));
        bind_globals(&mut kernel, &variables.collect()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let mut state = seed;
        // Small numbers among others.
        let operands = (0..OPERANDS_BYTES / 8).flat_map(|_| {
            let word = random(&mut state);
            let word = if random(&mut state).is_multiple_of(4) {
                word % 40
            } else {
                word
            };
            word.to_le_bytes()
        });
        let operands: Vec<u8> = operands.collect();
        let options = match random(&mut state) % 3 {
            0 => Options::default(),
            chunk => Options::dense(4 * u32::try_from(chunk).unwrap()),
        };
        let probed = hetckpt_probes::probe(&kernel, &options).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        hetckpt_probes::check::check(&kernel, &probed).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        let mut case = Self {
            seed,
            text,
            layout: ThreadStateLayout::new(&probed),
            probed: kernel,
            operands,
            expected: BTreeMap::new(),
        };
        // As it came, without probes.
        for rounds in [ROUNDS, MANY_ROUNDS] {
            let whole = case.start(rounds, Pause::Never);
            assert!(whole.left.is_finished());
            case.expected.insert(rounds, whole.output);
        }
        case.probed = probed;
        case
    }

    /// The blocks meet.
    fn is_cooperative(&self) -> bool {
        self.probed.grid_workspace().is_some()
    }

    fn params(&self, rounds: u64) -> Vec<u8> {
        let workspace = self.is_cooperative().then_some(output_at() + u64::from(WORKSPACE));
        let all = [DEVICE_BASE, output_at(), rounds].into_iter().chain(workspace);
        all.flat_map(u64::to_le_bytes).collect()
    }

    fn interpret(&self, program: &Program, from: Stopped, pause: Pause) -> (Stopped, Run) {
        let (grid, block) = (Dim3 { x: BLOCKS, y: 1, z: 1 }, Dim3 { x: THREADS, y: 1, z: 1 });
        let mut memory = GlobalMemory::new();
        memory.map(DEVICE_BASE, self.operands.clone());
        memory.map(output_at(), from.output);
        let params = self.params(from.rounds);
        let mut launch = Interpreted::new(program, &self.layout, grid, block, &params);
        launch.pause = pause;
        launch.from = from.left;
        launch.options.max_steps = u64::MAX;
        launch.options.resident_blocks = if self.is_cooperative() { BLOCKS as usize } else { 2 };
        let ran = run(launch, &mut memory).unwrap_or_else(|e| panic!("seed {}: {e}\n{}", self.seed, self.text));
        let stopped = Stopped {
            by: format!("{}interpreter, {pause:?}", from.by),
            rounds: from.rounds,
            left: ran.left.clone(),
            output: memory.range(output_at()).unwrap().to_vec(),
        };
        (stopped, ran)
    }

    /// Nothing has run yet.
    fn beginning(rounds: u64) -> Stopped {
        Stopped {
            by: String::new(),
            rounds,
            left: PausedGrid {
                paused: Vec::new(),
                not_started: vec![(0, u64::from(BLOCKS))],
            },
            output: random_memory::before(DEVICE_BASE, output_at()),
        }
    }

    fn start(&self, rounds: u64, pause: Pause) -> Stopped {
        let program = Program::from_start(self.probed.clone());
        self.interpret(&program, Self::beginning(rounds), pause).0
    }

    /// Stopped by the interpreter at each resume point that threads come to, at a random time of them.
    fn stopped_everywhere(&self) -> Vec<Stopped> {
        let program = Program::from_start(self.probed.clone());
        let (whole, ran) = self.interpret(&program, Self::beginning(ROUNDS), Pause::Never);
        self.check(&whole);
        let mut state = self.seed ^ 0x57A7E;
        let visited = (0..).zip(&ran.visits).filter(|(_, visits)| **visits > 0);
        let stopped = visited.map(|(point, visits)| {
            let (point, occurrence) = (ResumePointId(point), random(&mut state) % visits);
            self.start(ROUNDS, Pause::AtResumePoint { point, occurrence })
        });
        stopped.filter(|stopped| !stopped.left.is_finished()).collect()
    }

    fn all_points(&self) -> Vec<u32> {
        (0u32..)
            .zip(&self.probed.resume_points)
            .map(|(point, _)| point)
            .collect()
    }

    /// That a launch has ended with the right output.
    fn check(&self, end: &Stopped) {
        assert!(end.left.is_finished());
        let words = |bytes: &[u8]| -> Vec<u64> {
            let words = bytes[..COMPARED_BYTES as usize].chunks_exact(8);
            words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let (ours, expected) = (words(&end.output), words(&self.expected[&end.rounds]));
        if let Some(at) = (0..ours.len()).find(|&at| ours[at] != expected[at]) {
            panic!(
                "seed {}, {}, {} rounds: {:#x} is word {at}, where {:#x} is right\n{}",
                self.seed, end.by, end.rounds, ours[at], expected[at], self.text
            );
        }
    }

    fn continue_interpreted(&self, stopped: &Stopped) {
        let points: Vec<_> = self.all_points().into_iter().map(ResumePointId).collect();
        let program = continuation(&self.probed, &points, Peel::None).unwrap();
        self.check(&self.interpret(&program, stopped.clone(), Pause::Never).0);
    }
}

/// A device with a case's kernel.
struct Bench<'a> {
    case: &'a Case,
    name: &'a str,
    chosen: Chosen,
    whole: Arc<dyn LoadedKernel>,
    /// The kernel for blocks that have stopped.
    listed: Arc<dyn LoadedKernel>,
}

impl<'a> Bench<'a> {
    /// `Err`: the device has no code for the kernel, and why.
    fn new(case: &'a Case, name: &'a str, choice: DeviceChoice) -> Result<Self, String> {
        if features(case.seed).images && matches!(choice, DeviceChoice::OpenCl(..)) {
            return Err("compilers of OpenCL C take minutes for images".to_owned());
        }
        let _step = Step::new(format!("seed {}, building for {name}\n{}", case.seed, case.text));
        // Nobody needs what is built here again.
        let chosen = choose_with_cache(choice, None).unwrap();
        let points = StartPoints {
            points: case.all_points(),
            in_step: false,
            parts_warps: false,
        };
        let load = |start| {
            let request = chosen.generator.request(&case.probed, &case.layout, start);
            let request = request.map_err(|e| e.to_string())?;
            chosen.device.load(&request).map_err(|e| e.to_string())
        };
        let (whole, listed) = (load(Start::Whole)?, load(Start::Listed(&points))?);
        chosen.device.map(DEVICE_BASE, GRANULARITY).unwrap();
        chosen.device.write(DEVICE_BASE, &case.operands).unwrap();
        let bench = Self {
            case,
            name,
            chosen,
            whole,
            listed,
        };
        let queue = bench.chosen.device.create_queue(0).unwrap();
        queue
            .check(&bench.launch(&Case::beginning(ROUNDS)))
            .map_err(|e| e.to_string())?;
        Ok(bench)
    }

    /// The launch of what is left.
    fn launch(&self, from: &Stopped) -> Launch {
        let (kernel, blocks) = if from.left.paused.is_empty() && from.left.num_not_started() == u64::from(BLOCKS) {
            (self.whole.clone(), Blocks::All)
        } else {
            (self.listed.clone(), Blocks::Rest(Arc::new(from.left.clone())))
        };
        Launch {
            kernel,
            shape: random_memory::shape(self.case.is_cooperative()),
            params: Arc::from(self.case.params(from.rounds)),
            blocks,
        }
    }

    /// Runs what is left; stops it after so long.
    fn run(&self, from: &Stopped, stop_after: Option<Duration>) -> Stopped {
        let _step = Step::new(format!(
            "seed {}, {}, {}, {} rounds, stopped after {stop_after:?}\n{}",
            self.case.seed, from.by, self.name, from.rounds, self.case.text
        ));
        let device = &self.chosen.device;
        device.write(output_at(), &from.output).unwrap();
        let queue = device.create_queue(0).unwrap();
        let running = queue.launch(self.launch(from));
        let running = running.unwrap();
        if let Some(after) = stop_after {
            std::thread::sleep(after);
            device.request_pause().unwrap();
        }
        let left = match running.wait() {
            Outcome::Finished => PausedGrid::default(),
            Outcome::Paused(left) => left,
            other => panic!(
                "seed {}, {}, {}, {} rounds: {other:?}\n{}",
                self.case.seed, from.by, self.name, from.rounds, self.case.text
            ),
        };
        if stop_after.is_some() {
            device.end_pause().unwrap();
        }
        let mut output = from.output.clone();
        device.read(output_at(), &mut output).unwrap();
        Stopped {
            by: format!("{}, {}", from.by, self.name),
            rounds: from.rounds,
            left,
            output,
        }
    }

    fn finish(&self, from: &Stopped) {
        self.case.check(&self.run(from, None));
    }

    /// Runs it whole, continues what others have stopped, and stops it at random moments itself: states that it leaves.
    fn try_all(&self, stopped: &[Stopped]) -> Vec<Stopped> {
        let many = Case::beginning(MANY_ROUNDS);
        self.finish(&many);
        let begin = Instant::now();
        self.finish(&many);
        let took = begin.elapsed();
        for state in stopped {
            self.finish(state);
        }
        let mut seed = self.case.seed ^ 0x0DE1_A7ED;
        let mut left = Vec::new();
        for _ in 0..2 {
            let mut at = many.clone();
            for _ in 0..MAX_STOPS {
                let after = took.mul_f64((random(&mut seed) % 100) as f64 / 100.0);
                at = self.run(&at, Some(after));
                if at.left.is_finished() {
                    self.case.check(&at);
                    break;
                }
                if !at.left.paused.is_empty() {
                    left.push(at.clone());
                }
            }
        }
        for state in &left {
            self.finish(state);
        }
        left
    }
}

/// What has been tried.
#[derive(Default)]
struct Counts {
    kernels: u64,
    resume_points: usize,
    /// Launches that a device has stopped with blocks part-way.
    stopped: BTreeMap<String, usize>,
    /// Kernels for which a device has no code.
    refused: BTreeMap<String, usize>,
}

impl Counts {
    fn try_one(&mut self, case: &Case, devices: &[(String, DeviceChoice)]) {
        let by_interpreter = case.stopped_everywhere();
        self.kernels += 1;
        self.resume_points += by_interpreter.len();
        for state in &by_interpreter {
            case.continue_interpreted(state);
        }
        // Device memory has one place in a process, so there is one device at a time. The first comes again at the end,
        // for what the others have stopped.
        let mut by_devices = Vec::new();
        for (name, choice) in devices {
            let bench = match Bench::new(case, name, *choice) {
                Ok(bench) => bench,
                Err(why) => {
                    *self.refused.entry(format!("{name}: {why}")).or_default() += 1;
                    continue;
                }
            };
            let states: Vec<Stopped> = by_interpreter.iter().chain(&by_devices).cloned().collect();
            let left = bench.try_all(&states);
            *self.stopped.entry(name.clone()).or_default() += left.len();
            for state in &left {
                case.continue_interpreted(state);
            }
            by_devices.extend(left);
        }
        let (name, choice) = &devices[0];
        if let (Ok(bench), [_, .., _]) = (Bench::new(case, name, *choice), devices) {
            by_devices.iter().for_each(|state| bench.finish(state));
        }
    }
}

/// The devices that kernels run on, by their names.
fn devices() -> Vec<(String, DeviceChoice)> {
    let names = std::env::var("HETCKPT_RANDOM_DEVICES").unwrap_or_else(|_| {
        let listed = hetckpt_devices::opencl::list();
        let has_opencl = listed.is_ok_and(|listed| !listed.devices.is_empty());
        if has_opencl { "cpu opencl:0:0" } else { "cpu" }.to_owned()
    });
    let device = |name: &str| (name.to_owned(), DeviceChoice::parse(name).unwrap());
    names.split_whitespace().map(device).collect()
}

#[test]
fn random_kernels_leave_the_same_everywhere() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("HETCKPT_RANDOM_SECONDS").map(Duration::from_secs);
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    let first = number("HETCKPT_SEED").unwrap_or_else(now);
    let devices = devices();
    let has_gpu = devices
        .iter()
        .any(|(_, choice)| matches!(choice, DeviceChoice::Cuda(_)));
    let (begin, mut said) = (Instant::now(), Instant::now());
    watch(number("HETCKPT_RANDOM_PATIENCE").map_or(Duration::from_secs(900), Duration::from_secs));
    let mut counts = Counts::default();
    if let Some(file) = std::env::var_os("HETCKPT_RANDOM_FILE") {
        return counts.try_one(
            &Case::new(first, Some(&std::fs::read_to_string(file).unwrap())),
            &devices,
        );
    }
    for seed in first.. {
        let is_over = seconds.map_or(counts.kernels == FEW, |seconds| begin.elapsed() >= seconds);
        if is_over {
            break;
        }
        // On a GPU images are the driver's own, and `activemask` differs where lanes go on apart.
        if has_gpu && (has_steps(seed) || features(seed).images || module(seed).contains("activemask")) {
            continue;
        }
        counts.try_one(&Case::new(seed, None), &devices);
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            eprintln!("{} kernels", counts.kernels);
        }
    }
    assert!(counts.resume_points > 0, "no kernel stopped");
    eprintln!(
        "{} kernels from seed {first} on, stopped at {} resume points; devices stopped {:?}; refused: {:?}",
        counts.kernels, counts.resume_points, counts.stopped, counts.refused
    );
}
