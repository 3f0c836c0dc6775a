//! Initialisation, versions, error texts, and how everything else is found.

use std::ffi::CStr;

use crate::export_tables;
use crate::log;
use crate::pointers::{In, Out, Text};
use crate::proc_address::{Asker, Found};
use crate::result::{CuResult, Outcome};
use crate::result_table;
use crate::session;
use crate::table_slots::Address;
use crate::version::DRIVER_VERSION;

use super::TABLE;

entry_points! {
    plain cuInit "cuInit" 2000 (flags: u32) => init;
    plain cuDriverGetVersion "cuDriverGetVersion" 2020 (version: Out<u32>) => driver_version;
    plain cuGetErrorName "cuGetErrorName" 6000 (error: CuResult, text: Out<Address>) => error_name;
    plain cuGetErrorString "cuGetErrorString" 6000 (error: CuResult, text: Out<Address>) => error_string;
    plain cuGetProcAddress "cuGetProcAddress" 11030
        (name: Text, pointer: Out<Address>, version: u32, flags: u64) => proc_address_plain;
    plain cuGetProcAddress_v2 "cuGetProcAddress" 12000
        (name: Text, pointer: Out<Address>, version: u32, flags: u64, status: Out<u32>) => proc_address;
    plain cuGetProcAddress_v2_ptsz "cuGetProcAddress_v2_ptsz" 12000
        (name: Text, pointer: Out<Address>, version: u32, flags: u64, status: Out<u32>) => proc_address_per_thread;
    plain cuGetExportTable "cuGetExportTable" 3000 (table: Out<Address>, uuid: In<[u8; 16]>) => export_table;
    device cuProfilerInitialize "cuProfilerInitialize" 4000 (config: In<u8>, output: In<u8>, mode: u32) => profiler_init;
    device cuProfilerStart "cuProfilerStart" 4000 () => nothing;
    device cuProfilerStop "cuProfilerStop" 4000 () => nothing;
}

const FLAG_PER_THREAD: u64 = 2;
const STATUS_FOUND: u32 = 0;
const STATUS_UNKNOWN: u32 = 1;
const STATUS_TOO_NEW: u32 = 2;

fn init((): (), flags: u32) -> Outcome {
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    session::initialise()
}

fn driver_version((): (), version: Out<u32>) -> Outcome {
    version.set(DRIVER_VERSION)
}

fn error_name((): (), error: CuResult, text: Out<Address>) -> Outcome {
    describe(error, text, |(name, _)| name)
}

fn error_string((): (), error: CuResult, text: Out<Address>) -> Outcome {
    describe(error, text, |(_, description)| description)
}

fn describe(
    error: CuResult,
    text: Out<Address>,
    which: impl FnOnce((&'static CStr, &'static CStr)) -> &'static CStr,
) -> Outcome {
    match result_table::describe(error.0) {
        Some(both) => text.set(Address(which(both).as_ptr().cast())),
        None => {
            text.set(Address(std::ptr::null()))?;
            Err(CuResult::INVALID_VALUE)
        }
    }
}

fn proc_address_plain((): (), name: Text, pointer: Out<Address>, version: u32, flags: u64) -> Outcome {
    look_up(Asker::Program, name, pointer, version, flags)?;
    Ok(())
}

fn proc_address((): (), name: Text, pointer: Out<Address>, version: u32, flags: u64, status: Out<u32>) -> Outcome {
    let asker = if status.is_null() {
        Asker::Runtime
    } else {
        Asker::Program
    };
    status.set_if_wanted(look_up(asker, name, pointer, version, flags)?);
    Ok(())
}

/// As programs built for per-thread default streams call it: that is what they get unless they ask otherwise.
fn proc_address_per_thread(
    scope: (),
    name: Text,
    pointer: Out<Address>,
    version: u32,
    flags: u64,
    status: Out<u32>,
) -> Outcome {
    proc_address(
        scope,
        name,
        pointer,
        version,
        if flags == 0 { FLAG_PER_THREAD } else { flags },
        status,
    )
}

/// An unknown function is no error: the pointer is NULL and the status says why.
fn look_up(asker: Asker, name: Text, pointer: Out<Address>, version: u32, flags: u64) -> Outcome<u32> {
    let name = name.get()?;
    if name.is_empty() {
        pointer.set(Address(std::ptr::null()))?;
        return Ok(STATUS_UNKNOWN);
    }
    let (address, status) = match TABLE.find_for(asker, name, version, flags & FLAG_PER_THREAD != 0) {
        Found::Pointer(address) => (address, STATUS_FOUND),
        Found::TooNew => (std::ptr::null(), STATUS_TOO_NEW),
        Found::Unknown => (std::ptr::null(), STATUS_UNKNOWN),
    };
    pointer.set(Address(address))?;
    Ok(status)
}

fn export_table((): (), table: Out<Address>, uuid: In<[u8; 16]>) -> Outcome {
    let uuid = uuid.get()?;
    match export_tables::find(uuid) {
        Some(found) => table.set(found),
        None => {
            log::looked_for(&format!("export table {:032x}", u128::from_be_bytes(uuid)));
            table.set(Address(std::ptr::null()))?;
            Err(CuResult::INVALID_VALUE)
        }
    }
}

fn profiler_init(_: &session::Session, _config: In<u8>, _output: In<u8>, _mode: u32) -> Outcome {
    Err(CuResult::NOT_SUPPORTED)
}

fn nothing(_: &session::Session) -> Outcome {
    Ok(())
}
