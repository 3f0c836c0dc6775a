//! Programs: OpenCL C built into a module of the driver's.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::compiler;
use crate::context::Context;
use crate::cuda::{self, Driver, Function, Module};
use crate::device;
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::metadata::{self, Declaration};
use crate::options;
use crate::pointers::{Callback, In, ObjectFn, Out, Text};
use crate::ptx_text;
use crate::status::{Outcome, Status};

entry_points! {
    object clCreateProgramWithSource(context: Handle, count: u32, texts: In<Text>, lengths: In<usize>) => create;
    object clCreateProgramWithBinary
        (context: Handle, count: u32, devices: In<Handle>, lengths: In<usize>, binaries: In<usize>,
         binary_status: Out<Status>) => create_with_binary;
    object clCreateProgramWithBuiltInKernels
        (context: Handle, count: u32, devices: In<Handle>, names: Text) => create_with_built_in_kernels;
    status clRetainProgram(program: Handle) => handles::retain::<Program>;
    status clReleaseProgram(program: Handle) => handles::release::<Program>;
    status clBuildProgram
        (program: Handle, count: u32, devices: In<Handle>, options: Text, notify: Option<ObjectFn>, data: usize) => build;
    status clCompileProgram
        (program: Handle, count: u32, devices: In<Handle>, options: Text, num_headers: u32, headers: In<Handle>,
         names: In<Text>, notify: usize, data: usize) => compile;
    object clLinkProgram
        (context: Handle, count: u32, devices: In<Handle>, options: Text, num_programs: u32, programs: In<Handle>,
         notify: usize, data: usize) => link;
    status clGetProgramInfo(program: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clGetProgramBuildInfo
        (program: Handle, device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => build_info;
}

mod name {
    pub const REFERENCE_COUNT: u32 = 0x1160;
    pub const CONTEXT: u32 = 0x1161;
    pub const NUM_DEVICES: u32 = 0x1162;
    pub const DEVICES: u32 = 0x1163;
    pub const SOURCE: u32 = 0x1164;
    pub const BINARY_SIZES: u32 = 0x1165;
    pub const BINARIES: u32 = 0x1166;
    pub const NUM_KERNELS: u32 = 0x1167;
    pub const KERNEL_NAMES: u32 = 0x1168;
    pub const BUILD_STATUS: u32 = 0x1181;
    pub const BUILD_OPTIONS: u32 = 0x1182;
    pub const BUILD_LOG: u32 = 0x1183;
    pub const BINARY_TYPE: u32 = 0x1184;
}

const BUILD_NONE: i32 = -1;
const BUILD_ERROR: i32 = -2;
const BUILD_SUCCESS: i32 = 0;
const BINARY_TYPE_NONE: u32 = 0;
const BINARY_TYPE_EXECUTABLE: u32 = 4;

/// A program.
#[derive(Debug)]
pub struct Program {
    identity: Identity,
    /// Its context.
    pub context: Arc<Context>,
    source: String,
    build: Mutex<Build>,
    /// Kernels made of it that are still there.
    pub num_kernels: AtomicUsize,
}

#[derive(Debug)]
struct Build {
    status: i32,
    options: String,
    log: String,
    executable: Option<Arc<Executable>>,
}

/// What a build gives.
#[derive(Debug)]
pub struct Executable {
    module: Module,
    /// In the source's order.
    pub kernels: Vec<Arc<Code>>,
}

/// A kernel as built.
#[derive(Debug)]
pub struct Code {
    /// As declared.
    pub declaration: Declaration,
    /// Sizes of its arguments.
    pub argument_bytes: Vec<usize>,
    /// The driver's.
    pub function: Function,
    /// Most work-items of a group.
    pub max_group: usize,
    /// Local memory declared in it.
    pub local_bytes: u64,
    /// Private memory of a work-item.
    pub private_bytes: u64,
}

handles::object!(Program, INVALID_PROGRAM);

impl Drop for Executable {
    fn drop(&mut self) {
        if let Ok(driver) = cuda::driver() {
            // A lost device has lost it too.
            let _ = driver.unload(self.module);
        }
    }
}

/// Numbers of `CUfunction_attribute`.
mod attribute {
    pub const MAX_THREADS: i32 = 0;
    pub const SHARED_BYTES: i32 = 1;
    pub const LOCAL_BYTES: i32 = 3;
}

impl Program {
    fn lock(&self) -> MutexGuard<'_, Build> {
        self.build.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the last build gave.
    pub fn executable(&self) -> Outcome<Arc<Executable>> {
        self.lock().executable.clone().ok_or(Status::INVALID_PROGRAM_EXECUTABLE)
    }
}

/// Why there is no executable: the status and the text for the log.
type Failure = (Status, String);

impl Executable {
    /// Builds `source`; gives the compiler's log too.
    fn build(source: &str, options: &[String]) -> Result<(Self, String), Failure> {
        let failure = |log: String| (Status::BUILD_PROGRAM_FAILURE, log);
        let toolchain =
            compiler::toolchain().map_err(|reason| (Status::COMPILER_NOT_AVAILABLE, format!("{reason}\n")))?;
        let compiled = toolchain.compile(source, options).map_err(failure)?;
        let declared = metadata::read(&compiled.ir);
        let prepared = ptx_text::prepare(&compiled.ptx, &declared)
            .map_err(|reason| failure(format!("{}{reason}", compiled.log)))?;
        let driver = cuda::driver().map_err(|status| (status, String::new()))?;
        let text = CString::new(prepared.ptx).map_err(|_| failure("the program has a NUL in it\n".to_owned()))?;
        let module = driver.load(&text).map_err(|(e, reason)| {
            failure(format!(
                "{}the device refuses it (CUDA error {}): {reason}\n",
                compiled.log, e.0
            ))
        })?;
        // From here on the module is unloaded when this goes.
        let mut executable = Self {
            module,
            kernels: Vec::new(),
        };
        for declaration in declared {
            let name = declaration.name.clone();
            let code = Code::find(driver, module, declaration, &prepared.param_bytes);
            let refused = |e: cuda::CudaError| {
                let reason = "cannot be built for the device; standard error says why";
                failure(format!(
                    "{}kernel `{name}` {reason} (CUDA error {})\n",
                    compiled.log, e.0
                ))
            };
            executable.kernels.push(Arc::new(code.map_err(refused)?));
        }
        Ok((executable, compiled.log))
    }
}

impl Code {
    fn find(
        driver: &Driver,
        module: Module,
        declaration: Declaration,
        param_bytes: &BTreeMap<String, Vec<usize>>,
    ) -> cuda::CudaResult<Self> {
        let function = driver.function(module, &declaration.name)?;
        Ok(Self {
            argument_bytes: param_bytes.get(&declaration.name).cloned().unwrap_or_default(),
            function,
            max_group: driver.function_attribute(function, attribute::MAX_THREADS)? as usize,
            local_bytes: u64::from(driver.function_attribute(function, attribute::SHARED_BYTES)?),
            private_bytes: u64::from(driver.function_attribute(function, attribute::LOCAL_BYTES)?),
            declaration,
        })
    }
}

fn create(context: Handle, count: u32, texts: In<Text>, lengths: In<usize>) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    if count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let mut source = Vec::new();
    for index in 0..count as usize {
        let text = texts.nth(index)?;
        let length = if lengths.is_null() { 0 } else { lengths.nth(index)? };
        if text.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        source.extend(if length == 0 {
            text.bytes()?
        } else {
            text.prefix(length)?
        });
    }
    // A length may count the NUL.
    source.retain(|&byte| byte != 0);
    let source = String::from_utf8_lossy(&source).into_owned();
    let build = Build {
        status: BUILD_NONE,
        options: String::new(),
        log: String::new(),
        executable: None,
    };
    let program = handles::add(1, |identity| Program {
        identity,
        context,
        source,
        build: Mutex::new(build),
        num_kernels: AtomicUsize::new(0),
    });
    Ok(program.handle())
}

/// Binaries are never given out, so whatever this is, it is not one of ours.
fn create_with_binary(
    context: Handle,
    count: u32,
    devices: In<Handle>,
    lengths: In<usize>,
    binaries: In<usize>,
    binary_status: Out<Status>,
) -> Outcome<Handle> {
    handles::get::<Context>(context)?;
    if count == 0 || lengths.is_null() || binaries.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    device::check_list(count, devices)?;
    binary_status.set(Status::INVALID_BINARY);
    Err(Status::INVALID_BINARY)
}

fn create_with_built_in_kernels(context: Handle, count: u32, devices: In<Handle>, _names: Text) -> Outcome<Handle> {
    handles::get::<Context>(context)?;
    device::check_list(count, devices)?;
    Err(Status::INVALID_VALUE)
}

fn build(
    program: Handle,
    count: u32,
    devices: In<Handle>,
    options: Text,
    notify: Option<ObjectFn>,
    data: usize,
) -> Outcome {
    let program = handles::get::<Program>(program)?;
    device::check_list(count, devices)?;
    if notify.is_none() && data != 0 {
        return Err(Status::INVALID_VALUE);
    }
    if program.num_kernels.load(Ordering::Relaxed) > 0 {
        return Err(Status::INVALID_OPERATION);
    }
    let options = if options.is_null() {
        String::new()
    } else {
        options.get()?
    };
    let result = match options::read(&options) {
        Ok(options) => Executable::build(&program.source, &options),
        Err(bad) => Err((
            Status::INVALID_BUILD_OPTIONS,
            format!("error: unknown or incomplete build option `{}`\n", bad.0),
        )),
    };
    let mut build = program.lock();
    build.options = options;
    let (outcome, gone) = match result {
        Ok((executable, log)) => {
            build.status = BUILD_SUCCESS;
            build.log = log;
            (Ok(()), build.executable.replace(Arc::new(executable)))
        }
        Err((status, log)) => {
            build.status = BUILD_ERROR;
            build.log = log;
            (Err(status), build.executable.take())
        }
    };
    drop(build);
    drop(gone);
    if let Some(function) = notify {
        Callback { function, data }.call(program.handle().0);
    }
    outcome
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn compile(
    program: Handle,
    count: u32,
    devices: In<Handle>,
    _options: Text,
    _num_headers: u32,
    _headers: In<Handle>,
    _names: In<Text>,
    _notify: usize,
    _data: usize,
) -> Outcome {
    handles::get::<Program>(program)?;
    device::check_list(count, devices)?;
    Err(Status::COMPILER_NOT_AVAILABLE)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn link(
    context: Handle,
    count: u32,
    devices: In<Handle>,
    _options: Text,
    _num_programs: u32,
    _programs: In<Handle>,
    _notify: usize,
    _data: usize,
) -> Outcome<Handle> {
    handles::get::<Context>(context)?;
    device::check_list(count, devices)?;
    Err(Status::LINKER_NOT_AVAILABLE)
}

fn info(program: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let program = handles::get::<Program>(program)?;
    let names = || -> Outcome<Vec<String>> {
        let executable = program.executable()?;
        let name = |code: &Arc<Code>| code.declaration.name.clone();
        Ok(executable.kernels.iter().map(name).collect())
    };
    let found = match name {
        name::REFERENCE_COUNT => bytes(handles::count::<Program>(program.handle())),
        name::CONTEXT => bytes(program.context.handle()),
        name::NUM_DEVICES => bytes(1_u32),
        name::DEVICES => bytes(device::handle()),
        name::SOURCE => bytes(&*program.source),
        // No binary: nothing goes where the pointers to binaries point.
        name::BINARY_SIZES => bytes(0_usize),
        name::BINARIES => {
            size.set(size_of::<usize>());
            return Ok(());
        }
        name::NUM_KERNELS => bytes(names()?.len()),
        name::KERNEL_NAMES => bytes(names()?.join(";")),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

fn build_info(program: Handle, device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let program = handles::get::<Program>(program)?;
    device::check(device)?;
    let build = program.lock();
    let found = match name {
        name::BUILD_STATUS => bytes(build.status),
        name::BUILD_OPTIONS => bytes(&*build.options),
        name::BUILD_LOG => bytes(&*build.log),
        name::BINARY_TYPE if build.executable.is_some() => bytes(BINARY_TYPE_EXECUTABLE),
        name::BINARY_TYPE => bytes(BINARY_TYPE_NONE),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}
