//! The test programs' kernels on the CPU: whole through the device, and stopped at every probe that a thread comes to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::MutexGuard;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_interp::cases::{self, Case};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use hetckpt_ir::types::Dim3;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};

use super::super::block_run::{self, BlockEnd};
use super::super::capture::{capture, reinstate};
use super::super::context::BlockMemory;
use super::super::launch::CpuLaunch;
use super::super::warp::WARP_SIZE;
use super::super::{CpuDevice, barrier, warp};
use super::{ADDRESSES, device, device_with, linear, load, probe_ptx};
use crate::device::{Blocks, Device, GRANULARITY, Launch, LoadedKernel, Outcome};

/// A case's memory on the device.
struct Mapped<'d> {
    device: &'d CpuDevice,
    pages: Vec<u64>,
    _exclusive: MutexGuard<'static, ()>,
}

impl<'d> Mapped<'d> {
    fn new(device: &'d CpuDevice, case: &Case) -> Self {
        let exclusive = ADDRESSES.lock();
        let mut pages = BTreeSet::new();
        for (address, bytes) in &case.memory {
            let end = address + bytes.len() as u64;
            pages.extend((address / GRANULARITY..=(end - 1) / GRANULARITY).map(|page| page * GRANULARITY));
        }
        let pages: Vec<u64> = pages.into_iter().collect();
        pages.iter().for_each(|page| device.map(*page, GRANULARITY).unwrap());
        let mapped = Self {
            device,
            pages,
            _exclusive: exclusive,
        };
        mapped.fill(case);
        mapped
    }

    fn fill(&self, case: &Case) {
        case.memory
            .iter()
            .for_each(|(address, bytes)| self.device.write(*address, bytes).unwrap());
    }

    fn check(&self, case: &Case, what: &str) {
        for (address, expected) in &case.expected {
            let mut got = vec![0; expected.len()];
            self.device.read(*address, &mut got).unwrap();
            assert_eq!(&got, expected, "{} {what}, at {address:#x}", case.name);
        }
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.pages
            .iter()
            .for_each(|page| self.device.unmap(*page, GRANULARITY).unwrap());
    }
}

fn probed(case: &Case, options: &Options) -> Kernel {
    let module = hetckpt_ptx::lower_module(case.ptx).unwrap();
    let mut kernel = module.kernels.into_iter().find(|k| k.name == case.kernel).unwrap();
    let addresses: BTreeMap<String, u64> = case.globals.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect();
    bind_globals(&mut kernel, &addresses).unwrap();
    hetckpt_probes::probe(&kernel, options).unwrap()
}

fn array(dim: Dim3) -> [u32; 3] {
    [dim.x, dim.y, dim.z]
}

fn launch(case: &Case, kernel: Arc<dyn LoadedKernel>, blocks: Blocks) -> Launch {
    Launch {
        kernel,
        shape: LaunchShape {
            dynamic_shared_bytes: case.dynamic_shared_bytes,
            ..LaunchShape::new(array(case.grid), array(case.block))
        },
        params: case.params.as_slice().into(),
        blocks,
    }
}

#[test]
fn kernels_compute_what_their_sources_say() {
    let device = device();
    for case in cases::all() {
        let mapped = Mapped::new(&device, &case);
        for (options, what) in [
            (Options::default(), "as usual"),
            (Options::dense(2), "with dense probes"),
        ] {
            mapped.fill(&case);
            let kernel = load(&device, &Program::from_start(probed(&case, &options)));
            let queue = device.create_queue(0).unwrap();
            let running = queue.launch(launch(&case, kernel, Blocks::All)).unwrap();
            let outcome = running.wait();
            assert!(
                matches!(outcome, Outcome::Finished),
                "{} {what}: {outcome:?}",
                case.name
            );
            mapped.check(&case, what);
        }
    }
}

/// Runs a block with the pause word always set: every thread goes from probe to probe, with its state captured and
/// reinstated between. Collects the points where threads stood.
fn step_through(case: &Case, continuation: &Arc<dyn LoadedKernel>, block: u64, seen: &mut BTreeSet<u32>) {
    let pause = AtomicU32::new(1);
    let running = CpuLaunch::new(launch(case, continuation.clone(), Blocks::All)).unwrap();
    let (context, shape) = (running.block_launch().unwrap(), running.shape);
    let mut memory = BlockMemory::default();
    memory.reset(&shape);
    for _ in 0..100_000 {
        let before = capture(&context.kernel.layout, block, &memory);
        memory = BlockMemory::default();
        reinstate(&before, &shape, &mut memory).unwrap();
        seen.extend(before.resume_points.iter().copied());
        match block_run::run(&context, block, &mut memory, &pause) {
            BlockEnd::Finished => return,
            BlockEnd::Interrupted => {}
            BlockEnd::Failed { reason, .. } => panic!("{}: {reason}", case.name),
        }
        if capture(&context.kernel.layout, block, &memory) == before {
            // All threads wait for others, and with the pause word set nobody carries out what they wait for.
            let threads = memory.points.len();
            let mut moved = false;
            for first in (0..threads).step_by(WARP_SIZE) {
                moved |= warp::advance(context.kernel, &mut memory, first, (first + WARP_SIZE).min(threads));
            }
            assert!(
                moved || barrier::release(context.kernel, &mut memory),
                "{}: block {block} is stuck",
                case.name
            );
        }
    }
    panic!("{}: block {block} does not end", case.name);
}

#[test]
fn threads_stopped_at_every_probe_compute_the_same() {
    let device = device();
    for case in cases::all() {
        let mapped = Mapped::new(&device, &case);
        let probed = probed(&case, &Options::dense(2));
        for peel in [Peel::Loops, Peel::None] {
            mapped.fill(&case);
            let points: Vec<ResumePointId> = (0..).map(ResumePointId).take(probed.resume_points.len()).collect();
            let continuation = load(&device, &continuation(&probed, &points, peel).unwrap());
            let mut seen = BTreeSet::new();
            let num_blocks = case.grid.x * case.grid.y * case.grid.z;
            for block in 0..u64::from(num_blocks) {
                step_through(&case, &continuation, block, &mut seen);
            }
            mapped.check(&case, "stopped at every probe");
            let in_loops = probed.resume_points.len() > 1;
            assert!(
                !in_loops || seen.iter().any(|&p| p != 0 && p != FINISHED),
                "{}: nothing stopped",
                case.name
            );
        }
    }
}

#[test]
fn launches_of_a_paused_device_are_not_started() {
    let device = device();
    let case = cases::all().remove(0);
    let _mapped = Mapped::new(&device, &case);
    let kernel = load(&device, &Program::from_start(probed(&case, &Options::default())));
    let queue = device.create_queue(0).unwrap();
    device.request_pause().unwrap();
    let paused = queue.launch(launch(&case, kernel.clone(), Blocks::All)).unwrap();
    let blocks = u64::from(case.grid.x * case.grid.y * case.grid.z);
    match paused.wait() {
        Outcome::Paused(rest) => assert_eq!(
            rest,
            PausedGrid {
                paused: vec![],
                not_started: vec![(0, blocks)]
            }
        ),
        other => panic!("{other:?}"),
    }
    device.end_pause().unwrap();
    let rest = PausedGrid {
        paused: vec![],
        not_started: vec![(0, blocks)],
    };
    let running = queue
        .launch(launch(&case, kernel, Blocks::Rest(Arc::new(rest))))
        .unwrap();
    assert!(matches!(running.wait(), Outcome::Finished));
    _mapped.check(&case, "after the pause");
}

/// Names in the code are made of numbers of registers: none of them means something else, whatever its number.
#[test]
fn kernels_may_use_many_registers() {
    let mut body = String::new();
    for i in 1..200 {
        body += &format!("@%p mov.b32 %f{i}, %r1;\n@!%p add.f32 %f{i}, %f0, %f0;\n");
    }
    for i in 1..200 {
        body += &format!("st.global.f32 [%rd1+{}], %f{i};\n", 4 * i);
    }
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry many(.param .u64 out) {{
    .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .f32 %f<200>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [%rd1];
    ld.global.f32 %f0, [%rd1];
    setp.ne.u32 %p, %r1, 0;
    {body}
    ret;
}}"
    );
    let device = device();
    let kernel = load(&device, &Program::from_start(probe_ptx(&ptx, &Options::default())));
    let mut out = vec![0x7f80_0001_u32; 200];
    let params = [out.as_mut_ptr() as u64];
    let running = device
        .create_queue(0)
        .unwrap()
        .launch(linear(kernel, 1, 1, &params))
        .unwrap();
    assert!(matches!(running.wait(), Outcome::Finished));
    assert_eq!(out, [0x7f80_0001; 200], "bits of a NaN stay as they are");
}

#[test]
fn compiled_objects_come_from_the_cache_unless_damaged() {
    let folder = std::env::temp_dir().join(format!("hetckpt-cpu-cache-{}", std::process::id()));
    let device = device_with(Some(folder.clone()));
    let case = cases::all().remove(0);
    let program = Program::from_start(probed(&case, &Options::default()));
    let files = || -> Vec<PathBuf> { std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect() };
    load(&device, &program);
    let file = files().remove(0);
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    load(&device, &program);
    assert_eq!(
        std::fs::read(&file).unwrap(),
        whole,
        "the damaged file was not replaced"
    );
    assert_eq!(files().len(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}
