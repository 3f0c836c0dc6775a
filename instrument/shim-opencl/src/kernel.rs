//! Kernels and their arguments.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::buffer::Memory;
use crate::device::attribute;
use crate::executable::{Code, Executable};
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::metadata::Space;
use crate::pointers::{In, Out, Text};
use crate::program::Program;
use crate::status::{Outcome, Status};
use crate::{cuda, device};

entry_points! {
    object clCreateKernel(program: Handle, name: Text) => create;
    status clCreateKernelsInProgram(program: Handle, room: u32, kernels: Out<Handle>, count: Out<u32>) => create_all;
    status clRetainKernel(kernel: Handle) => handles::retain::<Kernel>;
    status clReleaseKernel(kernel: Handle) => handles::release::<Kernel>;
    status clSetKernelArg(kernel: Handle, index: u32, size_bytes: usize, value: In<u8>) => set_argument;
    status clGetKernelInfo(kernel: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clGetKernelArgInfo
        (kernel: Handle, index: u32, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => argument_info;
    status clGetKernelWorkGroupInfo
        (kernel: Handle, device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => group_info;
}

mod name {
    pub const FUNCTION_NAME: u32 = 0x1190;
    pub const NUM_ARGS: u32 = 0x1191;
    pub const REFERENCE_COUNT: u32 = 0x1192;
    pub const CONTEXT: u32 = 0x1193;
    pub const PROGRAM: u32 = 0x1194;
    pub const ATTRIBUTES: u32 = 0x1195;
    pub const ARG_ADDRESS: u32 = 0x1196;
    pub const ARG_ACCESS: u32 = 0x1197;
    pub const ARG_TYPE: u32 = 0x1198;
    pub const ARG_TYPE_QUALIFIERS: u32 = 0x1199;
    pub const ARG_NAME: u32 = 0x119A;
    pub const GROUP_SIZE: u32 = 0x11B0;
    pub const COMPILE_GROUP_SIZE: u32 = 0x11B1;
    pub const LOCAL_BYTES: u32 = 0x11B2;
    pub const PREFERRED_MULTIPLE: u32 = 0x11B3;
    pub const PRIVATE_BYTES: u32 = 0x11B4;
}

/// A kernel's argument as set.
#[derive(Clone, Debug)]
pub enum Value {
    /// Bytes of a value.
    Bytes(Vec<u8>),
    /// A buffer, or NULL. A kernel must not hold what its arguments name: programs release it when they like.
    Buffer(Option<Weak<Memory>>),
    /// That much local memory.
    Local(usize),
}

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    identity: Identity,
    /// Its program.
    pub program: Arc<Program>,
    /// What its code is in.
    pub executable: Arc<Executable>,
    /// Its code.
    pub code: Arc<Code>,
    arguments: Mutex<Vec<Option<Value>>>,
}

handles::object!(Kernel, INVALID_KERNEL);

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.num_kernels.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kernel {
    fn add(program: &Arc<Program>, executable: &Arc<Executable>, code: &Arc<Code>) -> Handle {
        program.num_kernels.fetch_add(1, Ordering::Relaxed);
        let kernel = handles::add(1, |identity| Self {
            identity,
            program: program.clone(),
            executable: executable.clone(),
            code: code.clone(),
            arguments: Mutex::new(vec![None; code.declaration.arguments.len()]),
        });
        kernel.handle()
    }

    /// All arguments.
    pub fn arguments(&self) -> Outcome<Vec<Value>> {
        let all: Option<Vec<Value>> = self.arguments.lock().iter().cloned().collect();
        all.ok_or(Status::INVALID_KERNEL_ARGS)
    }
}

fn create(program: Handle, name: Text) -> Outcome<Handle> {
    let program = handles::get::<Program>(program)?;
    let executable = program.executable()?;
    let name = name.get()?;
    let code = executable.kernels.iter().find(|code| code.declaration.name == name);
    let code = code.ok_or(Status::INVALID_KERNEL_NAME)?;
    Ok(Kernel::add(&program, &executable, code))
}

fn create_all(program: Handle, room: u32, kernels: Out<Handle>, count: Out<u32>) -> Outcome {
    let program = handles::get::<Program>(program)?;
    let executable = program.executable()?;
    let num_kernels = u32::try_from(executable.kernels.len()).map_err(|_| Status::OUT_OF_RESOURCES)?;
    if !kernels.is_null() {
        if (room as usize) < executable.kernels.len() {
            return Err(Status::INVALID_VALUE);
        }
        let made: Vec<Handle> = executable
            .kernels
            .iter()
            .map(|code| Kernel::add(&program, &executable, code))
            .collect();
        kernels.set_all(&made);
    }
    count.set(num_kernels);
    Ok(())
}

fn set_argument(kernel: Handle, index: u32, size_bytes: usize, value: In<u8>) -> Outcome {
    let kernel = handles::get::<Kernel>(kernel)?;
    let index = index as usize;
    let arguments = &kernel.code.declaration.arguments;
    let declared = arguments.get(index).ok_or(Status::INVALID_ARG_INDEX)?;
    let expected = kernel.code.argument_bytes.get(index).copied().unwrap_or(0);
    let value = match declared.space {
        Space::Local if !value.is_null() => return Err(Status::INVALID_ARG_VALUE),
        Space::Local if size_bytes == 0 => return Err(Status::INVALID_ARG_SIZE),
        Space::Local => Value::Local(size_bytes),
        _ if size_bytes != expected => return Err(Status::INVALID_ARG_SIZE),
        Space::Private if value.is_null() => return Err(Status::INVALID_ARG_VALUE),
        Space::Private => Value::Bytes(value.all(size_bytes)?),
        Space::Global | Space::Constant => Value::Buffer(buffer(&kernel, value)?),
    };
    kernel.arguments.lock()[index] = Some(value);
    Ok(())
}

/// The buffer of a pointer's argument; NULL, or a pointer to it, is none.
fn buffer(kernel: &Kernel, value: In<u8>) -> Outcome<Option<Weak<Memory>>> {
    if value.is_null() {
        return Ok(None);
    }
    let bytes: [u8; size_of::<usize>()] = value
        .all(size_of::<usize>())?
        .try_into()
        .map_err(|_| Status::INVALID_ARG_SIZE)?;
    match Handle(usize::from_ne_bytes(bytes)) {
        Handle::NULL => Ok(None),
        handle => {
            let memory = handles::get::<Memory>(handle)?;
            if !Arc::ptr_eq(&memory.context, &kernel.program.context) {
                return Err(Status::INVALID_MEM_OBJECT);
            }
            Ok(Some(Arc::downgrade(&memory)))
        }
    }
}

fn attributes(code: &Code) -> String {
    let group = |name: &str, size: Option<[u32; 3]>| size.map(|[x, y, z]| format!("{name}({x},{y},{z})"));
    let declaration = &code.declaration;
    let all = [
        group("reqd_work_group_size", declaration.required_group),
        group("work_group_size_hint", declaration.group_hint),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn info(kernel: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let kernel = handles::get::<Kernel>(kernel)?;
    let declaration = &kernel.code.declaration;
    let found = match name {
        name::FUNCTION_NAME => bytes(&*declaration.name),
        name::NUM_ARGS => bytes(u32::try_from(declaration.arguments.len()).map_err(|_| Status::OUT_OF_RESOURCES)?),
        name::REFERENCE_COUNT => bytes(handles::count::<Kernel>(kernel.handle())),
        name::CONTEXT => bytes(kernel.program.context.handle()),
        name::PROGRAM => bytes(kernel.program.handle()),
        name::ATTRIBUTES => bytes(attributes(&kernel.code)),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

fn argument_info(kernel: Handle, index: u32, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    const ACCESS_NONE: u32 = 0x11A3;
    let kernel = handles::get::<Kernel>(kernel)?;
    let arguments = &kernel.code.declaration.arguments;
    let argument = arguments.get(index as usize).ok_or(Status::INVALID_ARG_INDEX)?;
    let found = match name {
        name::ARG_ADDRESS => bytes(match argument.space {
            Space::Global => 0x119B_u32,
            Space::Local => 0x119C,
            Space::Constant => 0x119D,
            Space::Private => 0x119E,
        }),
        name::ARG_ACCESS => bytes(ACCESS_NONE),
        name::ARG_TYPE => bytes(&*argument.type_name),
        name::ARG_TYPE_QUALIFIERS => bytes(argument.qualifiers),
        name::ARG_NAME => bytes(&*argument.name),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

fn group_info(kernel: Handle, device: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let kernel = handles::get::<Kernel>(kernel)?;
    // There is one device, so none need be named.
    if device != Handle::NULL {
        device::check(device)?;
    }
    let code = &kernel.code;
    let local_arguments = || {
        let of = |value: &Option<Value>| match value {
            Some(Value::Local(size_bytes)) => *size_bytes as u64,
            _ => 0,
        };
        kernel.arguments.lock().iter().map(of).sum::<u64>()
    };
    let found = match name {
        name::GROUP_SIZE => bytes(code.max_group),
        name::COMPILE_GROUP_SIZE => {
            let size = code.declaration.required_group.unwrap_or([0; 3]);
            bytes(size.map(|n| n as usize))
        }
        name::LOCAL_BYTES => bytes(code.local_bytes + local_arguments()),
        name::PREFERRED_MULTIPLE => bytes(cuda::driver()?.attribute(attribute::WARP) as usize),
        name::PRIVATE_BYTES => bytes(code.private_bytes),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}
