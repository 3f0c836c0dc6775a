//! Contexts: what buffers, programs, queues and events must have in common. All are of the one device.

use std::sync::Arc;

use crate::cuda;
use crate::device;
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::platform;
use crate::pointers::{In, Out};
use crate::status::{Outcome, Status};

entry_points! {
    object clCreateContext
        (properties: In<usize>, count: u32, devices: In<Handle>, notify: usize, data: usize) => create;
    object clCreateContextFromType(properties: In<usize>, kinds: u64, notify: usize, data: usize) => create_from_type;
    status clRetainContext(context: Handle) => handles::retain::<Context>;
    status clReleaseContext(context: Handle) => handles::release::<Context>;
    status clGetContextInfo(context: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
}

const PLATFORM: usize = 0x1084;
const INTEROP_USER_SYNC: usize = 0x1085;

mod name {
    pub const REFERENCE_COUNT: u32 = 0x1080;
    pub const DEVICES: u32 = 0x1081;
    pub const PROPERTIES: u32 = 0x1082;
    pub const NUM_DEVICES: u32 = 0x1083;
}

/// A context.
#[derive(Debug)]
pub struct Context {
    identity: Identity,
    /// As given, the final 0 included; empty if none were.
    properties: Vec<usize>,
}

handles::object!(Context, INVALID_CONTEXT);

#[cfg(test)]
impl Context {
    /// One without a device.
    pub fn of_tests() -> Arc<Self> {
        let properties = Vec::new();
        handles::add(0, |identity| Self { identity, properties })
    }
}

/// Refuses two objects of different contexts.
pub fn check_same(one: &Arc<Context>, other: &Arc<Context>) -> Outcome {
    if Arc::ptr_eq(one, other) {
        Ok(())
    } else {
        Err(Status::INVALID_CONTEXT)
    }
}

fn create(properties: In<usize>, count: u32, devices: In<Handle>, notify: usize, data: usize) -> Outcome<Handle> {
    if count == 0 || devices.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    device::check_list(count, devices)?;
    make(properties, notify, data)
}

fn create_from_type(properties: In<usize>, kinds: u64, notify: usize, data: usize) -> Outcome<Handle> {
    device::check_kind(kinds)?;
    make(properties, notify, data)
}

/// Nothing that a context would have to report goes unsaid by its calls, so the function to notify is never called.
fn make(properties: In<usize>, notify: usize, data: usize) -> Outcome<Handle> {
    if notify == 0 && data != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let properties = read(properties)?;
    cuda::driver()?;
    Ok(handles::add(1, |identity| Context { identity, properties }).handle())
}

/// Pairs of name and value up to a 0.
fn read(properties: In<usize>) -> Outcome<Vec<usize>> {
    let mut read = Vec::new();
    if properties.is_null() {
        return Ok(read);
    }
    loop {
        let name = properties.nth(read.len())?;
        read.push(name);
        if name == 0 {
            return Ok(read);
        }
        let value = properties.nth(read.len())?;
        if read.contains(&name) && read.iter().step_by(2).filter(|&&known| known == name).count() > 1 {
            return Err(Status::INVALID_PROPERTY);
        }
        match name {
            PLATFORM if value == 0 => return Err(Status::INVALID_PLATFORM),
            PLATFORM => platform::check(Handle(value))?,
            INTEROP_USER_SYNC => {}
            _ => return Err(Status::INVALID_PROPERTY),
        }
        read.push(value);
    }
}

fn info(context: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let context = handles::get::<Context>(context)?;
    let found = match name {
        name::REFERENCE_COUNT => bytes(handles::count::<Context>(context.handle())),
        name::DEVICES => bytes(device::handle()),
        name::NUM_DEVICES => bytes(1_u32),
        name::PROPERTIES => bytes(context.properties.clone()),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}
