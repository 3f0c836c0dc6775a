//! Libraries: how the runtime (12 and later) loads kernels.

use std::sync::Arc;

use crate::guard::Current;
use crate::handles::Handle;
use crate::library::Library;
use crate::pointers::{In, Out, Text};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    working cuLibraryLoadData "cuLibraryLoadData" 12000
        (library: Out<Handle>, code: u64, jit_options: In<u32>, jit_values: In<u64>, num_jit: u32,
         options: In<u32>, values: In<u64>, num_options: u32) => load_data;
    working cuLibraryLoadFromFile "cuLibraryLoadFromFile" 12000
        (library: Out<Handle>, path: Text, jit_options: In<u32>, jit_values: In<u64>, num_jit: u32,
         options: In<u32>, values: In<u64>, num_options: u32) => load_file;
    device cuLibraryUnload "cuLibraryUnload" 12000 (library: Handle) => unload;
    working cuLibraryGetKernel "cuLibraryGetKernel" 12000 (kernel: Out<Handle>, library: Handle, name: Text) => get_kernel;
    working cuLibraryGetKernelCount "cuLibraryGetKernelCount" 12040 (count: Out<u32>, library: Handle) => kernel_count;
    working cuLibraryEnumerateKernels "cuLibraryEnumerateKernels" 12040
        (kernels: Out<Handle>, room: u32, library: Handle) => enumerate_kernels;
    context cuLibraryGetModule "cuLibraryGetModule" 12000 (module: Out<Handle>, library: Handle) => get_module;
    context cuLibraryGetGlobal "cuLibraryGetGlobal" 12000
        (addr: Out<u64>, size: Out<u64>, library: Handle, name: Text) => get_global;
    working cuLibraryGetManaged "cuLibraryGetManaged" 12000
        (addr: Out<u64>, size: Out<u64>, library: Handle, name: Text) => get_managed;
}

const OPTION_BINARY_IS_PRESERVED: u32 = 1;

/// A library by handle; a module is the same thing.
pub fn find(session: &Session, library: Handle) -> Outcome<Arc<Library>> {
    session.libraries.get(library).ok_or(CuResult::INVALID_HANDLE)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn load_data(
    session: &Session,
    library: Out<Handle>,
    code: u64,
    _jit_options: In<u32>,
    _jit_values: In<u64>,
    _num_jit: u32,
    options: In<u32>,
    values: In<u64>,
    num_options: u32,
) -> Outcome {
    let mut is_preserved = false;
    for index in 0..num_options as usize {
        is_preserved |=
            options.nth(index)? == OPTION_BINARY_IS_PRESERVED && values.nth(index).is_ok_and(|v| v as u32 != 0);
    }
    add(session, library, Library::new(code, is_preserved)?)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn load_file(
    session: &Session,
    library: Out<Handle>,
    path: Text,
    _jit_options: In<u32>,
    _jit_values: In<u64>,
    _num_jit: u32,
    _options: In<u32>,
    _values: In<u64>,
    _num_options: u32,
) -> Outcome {
    let bytes = std::fs::read(path.get()?).map_err(|_| CuResult::FILE_NOT_FOUND)?;
    add(session, library, Library::from_bytes(bytes))
}

fn add(session: &Session, handle: Out<Handle>, library: Library) -> Outcome {
    if handle.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    library.loaded(&session.device)?;
    handle.set(session.libraries.insert(Arc::new(library)))
}

/// Also called at the process's end, also when the device is broken: then there is nothing to unload.
pub fn unload(session: &Session, library: Handle) -> Outcome {
    let library = session.libraries.remove(library).ok_or(CuResult::INVALID_HANDLE)?;
    session.kernels.retain(|kernel| !Arc::ptr_eq(&kernel.library, &library));
    if session.check_fault().is_err() {
        return Ok(());
    }
    library.unload(&session.device)
}

fn get_kernel(session: &Session, kernel: Out<Handle>, library: Handle, name: Text) -> Outcome {
    kernel.set(session.kernel(&find(session, library)?, name.get()?)?)
}

fn kernel_count(session: &Session, count: Out<u32>, library: Handle) -> Outcome {
    let loaded = find(session, library)?.loaded(&session.device)?;
    count.set(loaded.description.kernels.len() as u32)
}

/// Handles of all kernels, as many as there is room for.
pub fn enumerate_kernels(session: &Session, kernels: Out<Handle>, room: u32, library: Handle) -> Outcome {
    let library = find(session, library)?;
    let loaded = library.loaded(&session.device)?;
    for (index, description) in loaded.description.kernels.iter().take(room as usize).enumerate() {
        kernels.nth(index).set(session.kernel(&library, &description.name)?)?;
    }
    Ok(())
}

fn get_module(current: Current, module: Out<Handle>, library: Handle) -> Outcome {
    find(current.session, library)?;
    module.set(library)
}

fn get_global(current: Current, addr: Out<u64>, size: Out<u64>, library: Handle, name: Text) -> Outcome {
    let library = find(current.session, library)?;
    let (at, bytes) = library.loaded(&current.session.device)?.variable(name.get()?)?;
    addr.set_if_wanted(at);
    size.set_if_wanted(bytes);
    Ok(())
}

fn get_managed(session: &Session, addr: Out<u64>, size: Out<u64>, library: Handle, name: Text) -> Outcome {
    let library = find(session, library)?;
    let (at, bytes) = library.loaded(&session.device)?.managed_variable(name.get()?)?;
    addr.set_if_wanted(at);
    size.set_if_wanted(bytes);
    Ok(())
}
