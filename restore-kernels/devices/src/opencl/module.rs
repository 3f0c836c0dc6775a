//! A program in OpenCL C, built and loaded.

use std::sync::Arc;

use hetckpt_abi::opencl_program::{Argument, OpenClProgram};
use hetckpt_cache::folder::{CacheFolder, Key, Kind};
use hetckpt_ir::entity::ResumePointId;
use opencl3::device::{CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION};
use opencl3::kernel::{CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PRIVATE_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE};
use parking_lot::Mutex;

use super::arena::Arena;
use super::capabilities::OpenClCapabilities;
use super::failure::ClFailure;
use super::grids::{Programs, UnderWay};
use super::handles::{Context, Kernel, Program};
use super::program_form::ProgramForm;
use crate::device::{Code, DeviceDescription, KernelAttributes, LoadRequest, LoadedKernel};
use crate::error::DeviceError;

/// A loaded program.
pub(super) struct OpenClKernel {
    pub request: LoadRequest,
    pub program: OpenClProgram,
    pub attributes: KernelAttributes,
    /// Local memory that the kernel takes beside what the launch gives it.
    pub own_local_bytes: u64,
    /// Registers live at each resume point: bytes per thread before the column, bytes of a value.
    pub live_columns: Vec<Vec<(u32, u32)>>,
    /// Its arguments are set and the launch is given under one lock, since OpenCL keeps them in the kernel.
    pub built: Mutex<Built>,
}

/// A program built for as many buffers of device memory as there were then.
pub(super) struct Built {
    pub kernel: Kernel,
    pub num_buffers: u32,
    /// Noted only where [`super::grids`] wants it.
    pub under_way: Arc<Mutex<UnderWay>>,
}

/// What callers hold of it.
pub(super) struct LoadedOpenCl(pub Arc<OpenClKernel>);

impl LoadedKernel for LoadedOpenCl {
    fn attributes(&self) -> KernelAttributes {
        self.0.attributes
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Builds programs for one device.
pub(super) struct Builder {
    pub description: DeviceDescription,
    pub capabilities: OpenClCapabilities,
    pub form: ProgramForm,
    /// Programs must count their looks at the pause word; elsewhere they must not.
    pub counts_looks: bool,
    /// Keeps built programs.
    pub cache: Option<CacheFolder>,
    /// Held while a compiler runs: not all of them bear company.
    pub compiling: Mutex<()>,
    /// What is under way of the programs built.
    pub programs: Programs,
}

/// Why a program cannot be built.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    /// OpenCL refuses a call.
    #[error(transparent)]
    Call(#[from] ClFailure),
    /// The device does not take the program in its form.
    #[error(transparent)]
    Form(#[from] DeviceError),
    /// The device's compiler refuses it (a bug in us, or in the compiler); its words.
    #[error("{failure}\n{log}")]
    Refused { failure: ClFailure, log: String },
}

impl Builder {
    pub fn load(&self, context: &Context, request: &LoadRequest, arena: &Arena) -> Result<OpenClKernel, DeviceError> {
        let failed = |log: String| self.failure(&request.name, log);
        let Code::OpenClC(program) = &request.code else {
            return Err(failed("an OpenCL device takes OpenCL C".into()));
        };
        let missing = self.capabilities.missing(&program.requires);
        if !missing.is_empty() {
            return Err(failed(format!("the device lacks {}", missing.join(", "))));
        }
        if program.arguments.contains(&Argument::Pause) && program.counts_looks() != self.counts_looks {
            return Err(failed("it takes the pause word for something else".into()));
        }
        let built = self
            .build_for(context, program, arena)
            .map_err(|e| failed(e.to_string()))?;
        let refused = |e: ClFailure| failed(e.to_string());
        let number = |what| built.kernel.work_group_number(context.device, what).map_err(refused);
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let own_local_bytes = number(CL_KERNEL_LOCAL_MEM_SIZE)?;
        let attributes = KernelAttributes {
            max_threads_per_block: small(number(CL_KERNEL_WORK_GROUP_SIZE)?)
                .min(self.description.max_threads_per_block),
            // There is no such number; this one lets occupancy computations come out as usual.
            num_registers: 32,
            static_shared_bytes: request.static_shared_bytes,
            local_bytes: small(number(CL_KERNEL_PRIVATE_MEM_SIZE)?).max(request.local_bytes),
        };
        Ok(OpenClKernel {
            live_columns: live_columns(request),
            program: program.clone(),
            // The program has the text.
            request: LoadRequest {
                code: Code::Ptx(String::new()),
                ..request.clone()
            },
            attributes,
            own_local_bytes,
            built: Mutex::new(built),
        })
    }

    /// Makes sure that the kernel is built for all buffers of device memory that there are. Kernels that are under way
    /// need no others than theirs: what was not there when they were launched, they do not know of.
    pub fn fit(&self, context: &Context, kernel: &OpenClKernel, arena: &Arena) -> Result<(), DeviceError> {
        let mut built = kernel.built.lock();
        if built.num_buffers < arena.num_buffers() {
            *built = self
                .build_for(context, &kernel.program, arena)
                .map_err(|error| self.failure(&kernel.request.name, error.to_string()))?;
        }
        Ok(())
    }

    fn failure(&self, kernel: &str, log: String) -> DeviceError {
        DeviceError::Build {
            kernel: kernel.to_owned(),
            device: self.description.id.clone(),
            log,
        }
    }

    fn build_for(&self, context: &Context, program: &OpenClProgram, arena: &Arena) -> Result<Built, BuildError> {
        let num_buffers = arena.num_buffers();
        let program = program.with_memory_in(num_buffers, arena.buffer_shift());
        let built = self.build(context, &program)?;
        let kernel = built.kernel(&program.entry);
        Ok(Built {
            kernel: kernel?,
            num_buffers,
            under_way: self.programs.under_way(&program.text),
        })
    }

    fn build_options(&self, program: &OpenClProgram) -> String {
        let fences = self.capabilities.device_fences.filter(|_| program.orders_for_device);
        let mut options = fences.unwrap_or("-cl-std=CL1.2").to_owned();
        if program.requires.correctly_rounded_divide_sqrt {
            options += " -cl-fp32-correctly-rounded-divide-sqrt";
        }
        options
    }

    /// Builds, or takes what was built before.
    fn build(&self, context: &Context, program: &OpenClProgram) -> Result<Program, BuildError> {
        let device = context.device;
        let options = &self.build_options(program);
        let _compiling = self.compiling.lock();
        let facts = [CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION].map(|what| device.text(what));
        let [name, version, driver] = facts.each_ref().map(String::as_str);
        let parts = [self.form.name(), &program.text, options, name, version, driver];
        let key = Key::new(Kind::OpenCl, &parts.map(str::as_bytes));
        if let Some(binary) = self.cache.as_ref().and_then(|cache| cache.read(&key)) {
            let cached = context.program_from_binary(&binary);
            match cached.and_then(|built| built.build(device, options).map(|()| built)) {
                Ok(built) => return Ok(built),
                Err(error) => tracing::debug!(reason = error.reason(), "cached program refused"),
            }
        }
        let built = self.form.create(context, program)?;
        if let Err(failure) = built.build(device, options) {
            let log = built.log(device);
            return Err(BuildError::Refused { failure, log });
        }
        if let (Some(cache), Some(binary)) = (&self.cache, built.binary()) {
            cache.write(&key, &binary);
        }
        Ok(built)
    }
}

fn live_columns(request: &LoadRequest) -> Vec<Vec<(u32, u32)>> {
    let layout = &request.layout;
    let all = crate::control::register_columns(layout);
    let column = |start: u32| all.binary_search_by_key(&start, |c| c.0).ok().map(|i| all[i]);
    (0u32..)
        .map(ResumePointId)
        .take(layout.live.len())
        .map(|point| {
            let live = layout.live_at(point);
            live.iter()
                .filter_map(|reg| layout.column(reg).and_then(column))
                .collect()
        })
        .collect()
}
