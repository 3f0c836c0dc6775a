//! Modules and their functions.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::image::{self, Contents};
use crate::memory::place;
use crate::result::{INVALID_CLUSTER_SIZE, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, SUCCESS, put};

/// A kernel of a loaded module.
pub struct Function {
    name: CString,
    pub params: Vec<(usize, usize)>,
    allows_non_portable_clusters: AtomicBool,
    prints: bool,
}

impl Function {
    /// What a launch prints: the stand-in knows no more of it than its name.
    pub fn printed(&self) -> Option<String> {
        self.prints.then(|| format!("{}\n", self.name.to_string_lossy()))
    }
}

/// Multiprocessors of each of its parts; a cluster lies within one.
const PARTS: [u32; 8] = [18, 18, 16, 16, 16, 16, 16, 16];

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: *const c_void,
    attributes: *const LaunchAttribute,
    num_attributes: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

impl LaunchConfig {
    fn blocks_per_cluster(&self) -> u32 {
        const CLUSTER_DIMENSION: u32 = 4;
        if self.num_attributes == 0 {
            return 1;
        }
        // SAFETY: what the driver API asks of its callers.
        let attributes = unsafe { std::slice::from_raw_parts(self.attributes, self.num_attributes as usize) };
        let named = attributes.iter().find(|attribute| attribute.id == CLUSTER_DIMENSION);
        named.map_or(1, |attribute| attribute.value[..3].iter().product())
    }
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
    let Some(Contents {
        kernels,
        variables,
        prints,
    }) = image::contents(bytes)
    else {
        return NO_BINARY_FOR_GPU;
    };
    let functions = kernels.into_iter().map(|kernel| Function {
        name: kernel.name,
        params: kernel.params,
        allows_non_portable_clusters: AtomicBool::new(false),
        prints,
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
    fn cuFuncSetAttribute(function: Option<&'static Function>, attribute: u32, value: i32) {
        const NON_PORTABLE_CLUSTERS: u32 = 14;
        if let Some(function) = function.filter(|_| attribute == NON_PORTABLE_CLUSTERS) {
            function.allows_non_portable_clusters.store(value != 0, Ordering::Relaxed);
        }
        SUCCESS
    }
    // One block a multiprocessor.
    fn cuOccupancyMaxActiveClusters(
        clusters: Option<&mut i32>,
        function: Option<&'static Function>,
        config: Option<&LaunchConfig>,
    ) {
        let (Some(function), Some(config)) = (function, config) else { return INVALID_VALUE };
        match config.blocks_per_cluster() {
            0 => INVALID_CLUSTER_SIZE,
            9.. if !function.allows_non_portable_clusters.load(Ordering::Relaxed) => INVALID_CLUSTER_SIZE,
            blocks => put(clusters, PARTS.iter().map(|part| part / blocks).sum::<u32>() as i32),
        }
    }
    fn cuOccupancyMaxPotentialClusterSize(
        size: Option<&mut i32>,
        function: Option<&'static Function>,
        _config: Option<&LaunchConfig>,
    ) {
        let is_wide = |function: &Function| function.allows_non_portable_clusters.load(Ordering::Relaxed);
        function.map_or(INVALID_VALUE, |function| put(size, if is_wide(function) { 16 } else { 8 }))
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
