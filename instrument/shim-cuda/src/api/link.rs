//! Linking at run time.

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::guard::Current;
use crate::handles::Handle;
use crate::link::{Input, Linking};
use crate::pointers::{HostMemory, In, Out, Text};
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::table_slots::Address;

entry_points! {
    context cuLinkCreate_v2 "cuLinkCreate" 6050
        (num_options: u32, options: In<u32>, values: In<u64>, linking: Out<Handle>) => create;
    context cuLinkAddData_v2 "cuLinkAddData" 6050
        (linking: Handle, kind: u32, data: u64, size: u64, name: Text, num_options: u32, options: In<u32>,
         values: In<u64>) => add_data;
    context cuLinkAddFile_v2 "cuLinkAddFile" 6050
        (linking: Handle, kind: u32, path: Text, num_options: u32, options: In<u32>, values: In<u64>) => add_file;
    context cuLinkComplete "cuLinkComplete" 5050
        (linking: Handle, image: Out<Address>, size: Out<u64>) => complete;
    context cuLinkDestroy "cuLinkDestroy" 5050 (linking: Handle) => destroy;
}

/// Options set the compiler, which is the device's.
fn create(current: Current, _num: u32, _options: In<u32>, _values: In<u64>, linking: Out<Handle>) -> Outcome {
    if linking.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    linking.set(current.session.linkings.insert(Arc::default()))
}

fn find(session: &Session, linking: Handle) -> Outcome<Arc<Mutex<Linking>>> {
    session.linkings.get(linking).ok_or(CuResult::INVALID_HANDLE)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn add_data(
    current: Current,
    linking: Handle,
    kind: u32,
    data: u64,
    size: u64,
    _name: Text,
    _num_options: u32,
    _options: In<u32>,
    _values: In<u64>,
) -> Outcome {
    let (linking, kind) = (find(current.session, linking)?, Input::from_number(kind)?);
    if data == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    linking.lock().add(kind, HostMemory::bytes(data, size as usize))
}

fn add_file(
    current: Current,
    linking: Handle,
    kind: u32,
    path: Text,
    _num_options: u32,
    _options: In<u32>,
    _values: In<u64>,
) -> Outcome {
    let (linking, kind) = (find(current.session, linking)?, Input::from_number(kind)?);
    let bytes = std::fs::read(path.get()?).map_err(|_| CuResult::FILE_NOT_FOUND)?;
    linking.lock().add(kind, &bytes)
}

/// The image is good until the linking is destroyed.
fn complete(current: Current, linking: Handle, image: Out<Address>, size: Out<u64>) -> Outcome {
    let linking = find(current.session, linking)?;
    let mut linking = linking.lock();
    let result = linking.complete()?;
    image.set(Address(result.as_ptr().cast::<c_void>()))?;
    size.set_if_wanted(result.len() as u64);
    Ok(())
}

fn destroy(current: Current, linking: Handle) -> Outcome {
    let gone = current.session.linkings.remove(linking);
    gone.map(drop).ok_or(CuResult::INVALID_HANDLE)
}
