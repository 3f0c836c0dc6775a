//! Memory and events that processes share: refused, since a snapshot holds one of them. Programs go by the functions'
//! being there, so they are.

use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

entry_points! {
    context cuMemExportToShareableHandle "cuMemExportToShareableHandle" 10020
        (shareable: Out<u8>, handle: u64, kind: u32, flags: u64) => export_memory;
    context cuMemImportFromShareableHandle "cuMemImportFromShareableHandle" 10020
        (handle: Out<u64>, shareable: In<u8>, kind: u32) => import_memory;
    context cuIpcGetMemHandle "cuIpcGetMemHandle" 4010 (shareable: Out<u8>, addr: u64) => export_allocation;
    context cuIpcCloseMemHandle "cuIpcCloseMemHandle" 4010 (addr: u64) => close_allocation;
    context cuIpcGetEventHandle "cuIpcGetEventHandle" 4010 (shareable: Out<u8>, event: Handle) => export_event;
}

fn export_memory(_: Current, _shareable: Out<u8>, _handle: u64, _kind: u32, _flags: u64) -> Outcome {
    Err(CuResult::NOT_SUPPORTED)
}

fn import_memory(_: Current, _handle: Out<u64>, _shareable: In<u8>, _kind: u32) -> Outcome {
    Err(CuResult::NOT_SUPPORTED)
}

fn export_allocation(_: Current, _shareable: Out<u8>, _addr: u64) -> Outcome {
    Err(CuResult::NOT_SUPPORTED)
}

/// Nothing was ever opened.
fn close_allocation(_: Current, _addr: u64) -> Outcome {
    Err(CuResult::INVALID_VALUE)
}

fn export_event(_: Current, _shareable: Out<u8>, _event: Handle) -> Outcome {
    Err(CuResult::NOT_SUPPORTED)
}
