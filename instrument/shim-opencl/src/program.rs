//! Programs: OpenCL C or a binary, built into a module of the driver's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::binary::{Binary, kind};
use crate::context::Context;
use crate::device;
use crate::executable::{self, Code, Executable, Failure};
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::options;
use crate::pointers::{Callback, In, ObjectFn, Out, Text};
use crate::status::{Outcome, Status};

entry_points! {
    object clCreateProgramWithSource(context: Handle, count: u32, texts: In<Text>, lengths: In<usize>) => create;
    object clCreateProgramWithBinary
        (context: Handle, count: u32, devices: In<Handle>, lengths: In<usize>, binaries: In<In<u8>>,
         binary_status: Out<Status>) => create_with_binary;
    object clCreateProgramWithBuiltInKernels
        (context: Handle, count: u32, devices: In<Handle>, names: Text) => create_with_built_in_kernels;
    status clRetainProgram(program: Handle) => handles::retain::<Program>;
    status clReleaseProgram(program: Handle) => handles::release::<Program>;
    status clBuildProgram
        (program: Handle, count: u32, devices: In<Handle>, options: Text, notify: Option<ObjectFn>, data: usize) => build;
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

/// A program.
#[derive(Debug)]
pub struct Program {
    identity: Identity,
    /// Its context.
    pub context: Arc<Context>,
    /// What it was made of.
    pub origin: Origin,
    build: Mutex<Build>,
    /// Kernels made of it that are still there.
    pub num_kernels: AtomicUsize,
}

/// What a program was made of.
#[derive(Debug)]
pub enum Origin {
    /// OpenCL C.
    Source(String),
    /// A binary.
    Binary(Arc<Binary>),
    /// Other programs.
    Linked,
}

impl Origin {
    fn binary(&self) -> Option<Arc<Binary>> {
        match self {
            Self::Binary(binary) => Some(binary.clone()),
            Self::Source(_) | Self::Linked => None,
        }
    }
}

#[derive(Debug)]
struct Build {
    status: i32,
    options: String,
    log: String,
    binary: Option<Arc<Binary>>,
    executable: Option<Arc<Executable>>,
}

/// What a build gave.
#[derive(Debug)]
pub struct Built {
    /// What others can have of it.
    pub binary: Arc<Binary>,
    /// What kernels are made of; objects and libraries have none.
    pub executable: Option<Executable>,
    /// The compiler's log.
    pub log: String,
}

handles::object!(Program, INVALID_PROGRAM);

impl Program {
    /// A program that is not built yet.
    pub fn add(context: Arc<Context>, origin: Origin) -> Arc<Self> {
        let build = Build {
            status: BUILD_NONE,
            options: String::new(),
            log: String::new(),
            binary: origin.binary(),
            executable: None,
        };
        handles::add(1, |identity| Self {
            identity,
            context,
            origin,
            build: Mutex::new(build),
            num_kernels: AtomicUsize::new(0),
        })
    }

    /// What the last build gave.
    pub fn executable(&self) -> Outcome<Arc<Executable>> {
        self.build
            .lock()
            .executable
            .clone()
            .ok_or(Status::INVALID_PROGRAM_EXECUTABLE)
    }

    /// The binary that the last build gave, or that it was made of.
    pub fn binary(&self) -> Option<Arc<Binary>> {
        self.build.lock().binary.clone()
    }

    /// What the compiler said at the last build.
    pub fn log(&self) -> String {
        self.build.lock().log.clone()
    }

    /// Notes what became of a build with these options.
    pub fn finish(&self, options: String, result: Result<Built, Failure>) -> Outcome {
        let mut build = self.build.lock();
        build.options = options;
        let (outcome, executable) = match result {
            Ok(built) => {
                build.status = BUILD_SUCCESS;
                build.log = built.log;
                build.binary = Some(built.binary);
                (Ok(()), built.executable.map(Arc::new))
            }
            Err((status, log)) => {
                build.status = BUILD_ERROR;
                build.log = log;
                build.binary = self.origin.binary();
                (Err(status), None)
            }
        };
        let gone = std::mem::replace(&mut build.executable, executable);
        drop(build);
        drop(gone);
        outcome
    }

    /// Refuses to build it anew while there are kernels of it.
    pub fn check_no_kernels(&self) -> Outcome {
        if self.num_kernels.load(Ordering::Relaxed) > 0 {
            return Err(Status::INVALID_OPERATION);
        }
        Ok(())
    }
}

/// An image loaded; `log` is the compiler's.
pub fn built(image: crate::binary::Image, log: String, status: Status) -> Result<Built, Failure> {
    let executable = Executable::load(&image, status).map_err(|(status, reason)| (status, format!("{log}{reason}")))?;
    Ok(Built {
        binary: Arc::new(Binary::Executable(image)),
        executable: Some(executable),
        log,
    })
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
    Ok(Program::add(context, Origin::Source(source)).handle())
}

/// There is one device, so all binaries but the last are for nothing; yet all must be right.
fn create_with_binary(
    context: Handle,
    count: u32,
    devices: In<Handle>,
    lengths: In<usize>,
    binaries: In<In<u8>>,
    binary_status: Out<Status>,
) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    if count == 0 || devices.is_null() || lengths.is_null() || binaries.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    device::check_list(count, devices)?;
    let mut found = Err(Status::INVALID_VALUE);
    let mut statuses = Vec::new();
    for index in 0..count as usize {
        let read = read_binary(binaries.nth(index)?, lengths.nth(index)?);
        statuses.push(read.as_ref().err().copied().unwrap_or(Status::SUCCESS));
        found = read;
    }
    binary_status.set_all(&statuses);
    match statuses.into_iter().find(|&status| status != Status::SUCCESS) {
        Some(status) => Err(status),
        None => Ok(Program::add(context, Origin::Binary(Arc::new(found?))).handle()),
    }
}

fn read_binary(bytes: In<u8>, length: usize) -> Outcome<Binary> {
    if length == 0 || bytes.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    Binary::read(&bytes.all(length)?).map_err(|_| Status::INVALID_BINARY)
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
    program.check_no_kernels()?;
    let options = options.or_empty()?;
    let result = match &program.origin {
        Origin::Source(source) => build_source(source, &options),
        Origin::Binary(binary) => build_binary(binary, &options)?,
        Origin::Linked => return Err(Status::INVALID_OPERATION),
    };
    let outcome = program.finish(options, result);
    if let Some(function) = notify {
        Callback { function, data }.call(program.handle().0);
    }
    outcome
}

/// Reads options; `status` is that of bad ones.
pub fn read_options(options: &str, status: Status) -> Result<Vec<String>, Failure> {
    options::read(options).map_err(|bad| (status, bad.build_log()))
}

fn build_source(source: &str, options: &str) -> Result<Built, Failure> {
    const FAILURE: Status = Status::BUILD_PROGRAM_FAILURE;
    let options = read_options(options, Status::INVALID_BUILD_OPTIONS)?;
    let toolchain = executable::toolchain(Status::COMPILER_NOT_AVAILABLE)?;
    let compiled = toolchain
        .build(source, &options)
        .map_err(|error| (FAILURE, error.build_log()))?;
    built(executable::image(&compiled, FAILURE)?, compiled.log, FAILURE)
}

/// Loads an executable; of options there are none left to take effect.
///
/// # Errors
/// If the binary is no executable.
fn build_binary(binary: &Arc<Binary>, options: &str) -> Outcome<Result<Built, Failure>> {
    let Binary::Executable(image) = &**binary else {
        return Err(Status::INVALID_BINARY);
    };
    Ok(read_options(options, Status::INVALID_BUILD_OPTIONS).and_then(|_| {
        let executable = Executable::load(image, Status::BUILD_PROGRAM_FAILURE)?;
        Ok(Built {
            binary: binary.clone(),
            executable: Some(executable),
            log: String::new(),
        })
    }))
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
        name::SOURCE => match &program.origin {
            Origin::Source(source) => bytes(&**source),
            Origin::Binary(_) | Origin::Linked => bytes(""),
        },
        name::BINARY_SIZES => bytes(program.binary().map_or(0, |binary| binary.to_bytes().len())),
        name::BINARIES => return give_binary(&program, room, value, size),
        name::NUM_KERNELS => bytes(names()?.len()),
        name::KERNEL_NAMES => bytes(names()?.join(";")),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

/// The value is a list of addresses, where the binaries go: here one, and nothing where it is NULL or there is no
/// binary.
fn give_binary(program: &Program, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    if !value.is_null() {
        if room < size_of::<usize>() {
            return Err(Status::INVALID_VALUE);
        }
        if let Some(binary) = program.binary() {
            value.indirect::<u8>(0)?.set_all(&binary.to_bytes());
        }
    }
    size.set(size_of::<usize>());
    Ok(())
}

fn build_info(program: Handle, device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let program = handles::get::<Program>(program)?;
    device::check(device)?;
    let build = program.build.lock();
    let found = match name {
        name::BUILD_STATUS => bytes(build.status),
        name::BUILD_OPTIONS => bytes(&*build.options),
        name::BUILD_LOG => bytes(&*build.log),
        name::BINARY_TYPE => bytes(build.binary.as_ref().map_or(kind::NONE, |binary| binary.kind())),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}
