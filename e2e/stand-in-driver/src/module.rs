//! Modules and their functions.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::image::{self, Contents};
use crate::memory::place;
use crate::result::{INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, SUCCESS, put};

/// A kernel of a loaded module.
pub struct Function {
    name: CString,
    pub params: Vec<(usize, usize)>,
}

/// A loaded module. It stays for the process's life.
pub struct Module {
    functions: Vec<Function>,
    /// Name, address, size.
    variables: Vec<(String, u64, u64)>,
}

fn load(place_for: Option<&mut *const Module>, image: *const u8) -> u32 {
    if image.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: what the driver API asks of its callers.
    let bytes = unsafe { image::bytes_at(image) };
    let Some(Contents { kernels, variables }) = image::contents(bytes) else {
        return NO_BINARY_FOR_GPU;
    };
    let functions = kernels.into_iter().map(|kernel| Function {
        name: kernel.name,
        params: kernel.params,
    });
    let variables = variables.into_iter().filter_map(|variable| {
        let addr = place(variable.size)?;
        let at = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
        // SAFETY: memory just placed, of at least that size.
        unsafe { std::ptr::copy_nonoverlapping(variable.init.as_ptr(), at, variable.init.len()) };
        Some((variable.name, addr, variable.size))
    });
    let module = Module {
        functions: functions.collect(),
        variables: variables.collect(),
    };
    put(place_for, Box::into_raw(Box::new(module)).cast_const())
}

driver_api! {
    fn cuModuleLoadData(module: Option<&mut *const Module>, image: *const u8) {
        load(module, image)
    }
    fn cuModuleLoadDataEx(
        module: Option<&mut *const Module>,
        image: *const u8,
        _count: u32,
        _options: *const c_void,
        _values: *const c_void,
    ) {
        load(module, image)
    }
    fn cuModuleUnload(_module: *const Module) {
        SUCCESS
    }
    fn cuModuleGetFunctionCount(count: Option<&mut u32>, module: Option<&'static Module>) {
        module.map_or(INVALID_VALUE, |module| put(count, module.functions.len() as u32))
    }
    fn cuModuleEnumerateFunctions(functions: *mut *const Function, count: u32, module: Option<&'static Module>) {
        let Some(module) = module else { return INVALID_VALUE };
        for (at, function) in module.functions.iter().take(count as usize).enumerate() {
            // SAFETY: the caller has as many places as it says.
            unsafe { functions.wrapping_add(at).write(std::ptr::from_ref(function)) };
        }
        SUCCESS
    }
    fn cuModuleGetFunction(found: Option<&mut *const Function>, module: Option<&'static Module>, name: *const c_char) {
        // SAFETY: what the driver API asks of its callers.
        let name = unsafe { CStr::from_ptr(name) };
        let function = module.and_then(|module| module.functions.iter().find(|f| *f.name == *name));
        function.map_or(NOT_FOUND, |function| put(found, std::ptr::from_ref(function)))
    }
    fn cuModuleGetGlobal_v2(
        addr: Option<&mut u64>,
        size: Option<&mut usize>,
        module: Option<&'static Module>,
        name: *const c_char,
    ) {
        // SAFETY: what the driver API asks of its callers.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let variable = module.and_then(|module| module.variables.iter().find(|v| v.0 == name));
        let Some((_, at, bytes)) = variable else { return NOT_FOUND };
        // Either may be left out.
        put(addr, *at);
        put(size, *bytes as usize);
        SUCCESS
    }
    fn cuFuncGetName(name: Option<&mut *const c_char>, function: Option<&'static Function>) {
        function.map_or(INVALID_VALUE, |function| put(name, function.name.as_ptr()))
    }
    fn cuFuncGetParamInfo(
        function: Option<&'static Function>,
        index: usize,
        offset: Option<&mut usize>,
        size: Option<&mut usize>,
    ) {
        let param = function.and_then(|function| function.params.get(index));
        param.map_or(INVALID_VALUE, |&(at, bytes)| put(offset, at).max(put(size, bytes)))
    }
    fn cuFuncGetAttribute(value: Option<&mut i32>, attribute: u32, _function: Option<&'static Function>) {
        // Threads a block, registers, PTX and binary version.
        put(value, match attribute {
            0 => 1024,
            4 => 32,
            5 | 6 => 90,
            _ => 0,
        })
    }
    fn cuTensorMapEncodeTiled(map: Option<&mut [u64; 16]>) {
        // What it says is for kernels alone.
        put(map, [0; 16])
    }
    fn cuFuncSetAttribute(_function: Option<&'static Function>, _attribute: u32, _value: i32) {
        SUCCESS
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Option<&mut i32>,
        _function: Option<&'static Function>,
        threads: i32,
        _shared: usize,
    ) {
        put(blocks, 2048 / threads.max(64))
    }
}
