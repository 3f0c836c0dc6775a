//! Kernels of a PTX text in the forms that are tried: as the program has it, through hetIR, probed, continued.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_codegen::ptx::{PtxOptions, generate};
use hetckpt_devices::cuda::CudaDevice;
use hetckpt_devices::device::{Code, Device, LoadRequest, LoadedKernel};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::{Module, bind_globals};
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};

type Loaded = Arc<dyn LoadedKernel>;

/// A kernel, ready to be tried.
pub struct Forms<'a> {
    device: &'a CudaDevice,
    pub kernel: Kernel,
    pub probed: Kernel,
    layout: ThreadStateLayout,
    pub original: Loaded,
    pub plain: Loaded,
    pub ordinary: Loaded,
    continuations: Mutex<HashMap<Vec<u32>, Loaded>>,
}

/// Reads a PTX text.
pub fn read_module(folder: &Path, file: &str) -> (String, Module) {
    let text = std::fs::read_to_string(folder.join(format!("{file}.ptx"))).expect("the program's PTX");
    let module = hetckpt_ptx::lower_module(&text).expect("PTX that can be lowered");
    (text, module)
}

impl<'a> Forms<'a> {
    pub fn new(device: &'a CudaDevice, text: &str, mut kernel: Kernel, globals: &BTreeMap<String, u64>) -> Self {
        bind_globals(&mut kernel, globals).expect("all variables have addresses");
        let probed = hetckpt_probes::probe(&kernel, &Options::default()).expect("a kernel that can be probed");
        let options = PtxOptions {
            sm: device.sm(),
            shared_base: device.shared_base(),
            ..PtxOptions::default()
        };
        let layout = ThreadStateLayout::new(&probed);
        let none = ThreadStateLayout::new(&kernel);
        let plain = generate(&Program::from_start(kernel.clone()), &none, &options)
            .expect("plain PTX")
            .text;
        let ordinary = generate(&Program::from_start(probed.clone()), &layout, &options)
            .expect("probed PTX")
            .text;
        let load = |ptx: String, layout: &ThreadStateLayout| {
            device
                .load(&request(&kernel, ptx, layout, vec![0]))
                .unwrap_or_else(|e| panic!("{e}"))
        };
        let mut original = request(&kernel, text.to_owned(), &none, vec![0]);
        original.static_shared_bytes = 0;
        let original = device.load(&original).unwrap_or_else(|e| panic!("{e}"));
        let (plain, ordinary) = (load(plain, &none), load(ordinary, &layout));
        // The program's own PTX has variables of its own, which a trial cannot reset.
        let original = if globals.is_empty() { original } else { plain.clone() };
        Self {
            device,
            kernel,
            probed,
            layout,
            original,
            plain,
            ordinary,
            continuations: Mutex::default(),
        }
    }

    /// Hand-made PTX in place of the probed one, for experiments.
    pub fn variant(&self, ptx: String) -> Loaded {
        let request = request(&self.kernel, ptx, &self.layout, vec![0]);
        self.device.load(&request).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The program that goes on with `rest`; `all`: with every resume point, whether needed or not.
    pub fn continuation(&self, rest: &PausedGrid, all: bool) -> Loaded {
        let mut points: Vec<u32> = if all {
            (0u32..).take(self.probed.resume_points.len()).collect()
        } else {
            rest.paused
                .iter()
                .flat_map(|b| &b.resume_points)
                .copied()
                .filter(|&p| p != FINISHED)
                .chain([0])
                .collect()
        };
        points.sort_unstable();
        points.dedup();
        let mut known = self.continuations.lock();
        known
            .entry(points)
            .or_insert_with_key(|points| self.build_continuation(points))
            .clone()
    }

    fn build_continuation(&self, points: &[u32]) -> Loaded {
        let ids: Vec<ResumePointId> = points.iter().map(|&p| ResumePointId(p)).collect();
        let is_plain = |b: &hetckpt_ir::basic_block::BasicBlock| {
            !matches!(b.terminator, Terminator::Barrier { .. })
                && !b.insts.iter().any(|i| matches!(i.op, Op::Warp { .. }))
        };
        let peel = if self.probed.blocks.iter().all(is_plain) {
            Peel::Loops
        } else {
            Peel::None
        };
        let program = continuation(&self.probed, &ids, peel).expect("resume points of this kernel");
        let options = PtxOptions {
            sm: self.device.sm(),
            shared_base: self.device.shared_base(),
            block_list: true,
            ..PtxOptions::default()
        };
        let ptx = generate(&program, &self.layout, &options)
            .expect("a continuation's PTX")
            .text;
        self.device
            .load(&request(&self.kernel, ptx, &self.layout, points.to_vec()))
            .unwrap_or_else(|e| panic!("{e}"))
    }
}

fn request(kernel: &Kernel, ptx: String, layout: &ThreadStateLayout, entries: Vec<u32>) -> LoadRequest {
    LoadRequest {
        name: kernel.name.clone(),
        code: Code::Ptx(ptx),
        entries,
        layout: layout.clone(),
        param_bytes: kernel.param_bytes(),
        params: kernel.params.iter().map(|p| (p.offset, p.size_bytes)).collect(),
        static_shared_bytes: kernel.shared.static_bytes,
        local_bytes: kernel.local.size_bytes,
    }
}
