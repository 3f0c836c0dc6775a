//! Modules: how driver-API programs and older runtimes load kernels. A module is a library here.

use std::sync::Arc;

use crate::guard::Current;
use crate::handles::Handle;
use crate::library::Library;
use crate::pointers::{In, Out, Text, TextOut};
use crate::result::{CuResult, Outcome};

use super::library::{enumerate_kernels, find, unload as unload_library};

entry_points! {
    context cuModuleLoad "cuModuleLoad" 2000 (module: Out<Handle>, path: Text) => load_file;
    context cuModuleLoadData "cuModuleLoadData" 2000 (module: Out<Handle>, image: u64) => load_data;
    context cuModuleLoadDataEx "cuModuleLoadDataEx" 2010
        (module: Out<Handle>, image: u64, num_options: u32, options: In<u32>, values: In<u64>) => load_data_with_options;
    context cuModuleLoadFatBinary "cuModuleLoadFatBinary" 2000 (module: Out<Handle>, image: u64) => load_data;
    device cuModuleUnload "cuModuleUnload" 2000 (module: Handle) => unload_library;
    context cuModuleGetFunction "cuModuleGetFunction" 2000
        (function: Out<Handle>, module: Handle, name: Text) => get_function;
    context cuModuleGetFunctionCount "cuModuleGetFunctionCount" 12040 (count: Out<u32>, module: Handle) => function_count;
    context cuModuleEnumerateFunctions "cuModuleEnumerateFunctions" 12040
        (functions: Out<Handle>, room: u32, module: Handle) => enumerate_functions;
    context cuModuleGetGlobal_v2 "cuModuleGetGlobal" 3020
        (addr: Out<u64>, size: Out<u64>, module: Handle, name: Text) => get_global;
    device cuModuleGetLoadingMode "cuModuleGetLoadingMode" 11070 (mode: Out<u32>) => loading_mode;
}

const LOADING_EAGER: u32 = 1;
const LOADING_LAZY: u32 = 2;
const OPTION_INFO_LOG: u32 = 3;
const OPTION_INFO_LOG_BYTES: u32 = 4;
const OPTION_ERROR_LOG: u32 = 5;
const OPTION_ERROR_LOG_BYTES: u32 = 6;

fn load_file(current: Current, module: Out<Handle>, path: Text) -> Outcome {
    let bytes = std::fs::read(path.get()?).map_err(|_| CuResult::FILE_NOT_FOUND)?;
    add(current, module, Library::from_bytes(bytes), &mut String::new())
}

fn load_data(current: Current, module: Out<Handle>, image: u64) -> Outcome {
    add(current, module, Library::new(image, false)?, &mut String::new())
}

fn add(current: Current, module: Out<Handle>, library: Library, refusal: &mut String) -> Outcome {
    if module.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let loaded = library.load(&current.session.device, refusal)?;
    for kernel in &loaded.description.kernels {
        if let Some(reason) = &kernel.refused {
            refusal.push_str(&format!("kernel {}: {reason}\n", kernel.name));
        }
    }
    module.set(current.session.libraries.insert(Arc::new(library)))
}

/// Options set the compiler; the log buffers get the reason of a refusal, also if it is only of some kernels, which
/// then fail when they are launched. All else is left to the device.
fn load_data_with_options(
    current: Current,
    module: Out<Handle>,
    image: u64,
    num_options: u32,
    options: In<u32>,
    values: In<u64>,
) -> Outcome {
    let mut refusal = String::new();
    let result = Library::new(image, false).and_then(|library| add(current, module, library, &mut refusal));
    let value_of = |wanted: u32| {
        (0..num_options as usize)
            .find(|&i| options.nth(i) == Ok(wanted))
            .and_then(|i| values.nth(i).ok())
    };
    for (log, room, text) in [
        (OPTION_INFO_LOG, OPTION_INFO_LOG_BYTES, ""),
        (OPTION_ERROR_LOG, OPTION_ERROR_LOG_BYTES, refusal.as_str()),
    ] {
        if let (Some(addr), Some(room)) = (value_of(log).filter(|&addr| addr != 0), value_of(room)) {
            TextOut::at(addr).set(text, room as u32 as usize)?;
        }
    }
    result
}

fn get_function(current: Current, function: Out<Handle>, module: Handle, name: Text) -> Outcome {
    let library = find(current.session, module)?;
    function.set(current.session.kernel(&library, name.get()?)?)
}

fn function_count(current: Current, count: Out<u32>, module: Handle) -> Outcome {
    let loaded = find(current.session, module)?.loaded(&current.session.device)?;
    count.set(loaded.description.kernels.len() as u32)
}

fn enumerate_functions(current: Current, functions: Out<Handle>, room: u32, module: Handle) -> Outcome {
    enumerate_kernels(current.session, functions, room, module)
}

fn get_global(current: Current, addr: Out<u64>, size: Out<u64>, module: Handle, name: Text) -> Outcome {
    let (at, bytes) = find(current.session, module)?
        .loaded(&current.session.device)?
        .variable(name.get()?)?;
    addr.set_if_wanted(at);
    size.set_if_wanted(bytes);
    Ok(())
}

fn loading_mode(_: &crate::session::Session, mode: Out<u32>) -> Outcome {
    let is_eager = std::env::var("CUDA_MODULE_LOADING").is_ok_and(|value| value.eq_ignore_ascii_case("EAGER"));
    mode.set(if is_eager { LOADING_EAGER } else { LOADING_LAZY })
}
