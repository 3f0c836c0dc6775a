//! The driver API: `libcuda.so.1` from the folder this library lies in, by the functions that are used of it.
//!
//! Every function makes the primary context current for its own duration only, so that a program that uses CUDA too
//! keeps its own.
#![allow(unsafe_code, reason = "loads a library and calls its functions")]

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;
use thiserror::Error;

use crate::log;
use crate::status::{Outcome, Status};

/// A `CUresult` that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError(pub u32);

impl CudaError {
    const INVALID_VALUE: Self = Self(1);
    /// A module that is not what it must be.
    pub const INVALID_IMAGE: Self = Self(200);
    const INVALID_SOURCE: Self = Self(300);
    const NOT_SUPPORTED: Self = Self(801);
}

/// Why there is no driver. The fault lies with the installation or the host.
#[derive(Debug, Error)]
enum OpenError {
    /// The driver lies beside this library, wherever that is.
    #[error("cannot tell which folder this library lies in")]
    Folder,
    /// The driver's library is not there, or is none.
    #[error("cannot load {path}", path = path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// Why.
        #[source]
        cause: libloading::Error,
    },
    /// The driver refuses to work.
    #[error("{call} gives CUDA error {code}")]
    Call {
        /// The function called.
        call: &'static str,
        /// What it gives.
        code: u32,
    },
}

/// What the driver's functions give here.
pub type CudaResult<T = ()> = Result<T, CudaError>;

/// `CUDA_MEMCPY2D` of two sides whose kind the address tells.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Side2D {
    x_bytes: u64,
    y: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Copy2D {
    src: Side2D,
    dst: Side2D,
    width_bytes: u64,
    height: u64,
}

const _: () = assert!(size_of::<Copy2D>() == 128);
const UNIFIED: u32 = 4;
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
const OPTION_ERROR_LOG: u32 = 5;
const OPTION_ERROR_LOG_BYTES: u32 = 6;

macro_rules! functions {
    ($($field:ident $symbol:literal ($($arg:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($arg),*) -> u32,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the driver API declares the function so.
                    $($field: *unsafe { library.get($symbol) }?,)*
                })
            }
        }
    };
}

functions! {
    init b"cuInit\0" (u32);
    device_name b"cuDeviceGetName\0" (*mut c_char, i32, i32);
    device_memory b"cuDeviceTotalMem_v2\0" (*mut u64, i32);
    device_attribute b"cuDeviceGetAttribute\0" (*mut i32, i32, i32);
    retain_primary b"cuDevicePrimaryCtxRetain\0" (*mut u64, i32);
    push b"cuCtxPushCurrent_v2\0" (u64);
    pop b"cuCtxPopCurrent_v2\0" (*mut u64);
    alloc b"cuMemAlloc_v2\0" (*mut u64, u64);
    free_async b"cuMemFreeAsync\0" (u64, u64);
    copy b"cuMemcpyAsync\0" (u64, u64, u64, u64);
    copy_rows b"cuMemcpy2DAsync_v2\0" (*const Copy2D, u64);
    fill_rows b"cuMemsetD2D32Async\0" (u64, u64, u32, u64, u64, u64);
    fill_u8 b"cuMemsetD8Async\0" (u64, u8, u64, u64);
    fill_u16 b"cuMemsetD16Async\0" (u64, u16, u64, u64);
    fill_u32 b"cuMemsetD32Async\0" (u64, u32, u64, u64);
    load b"cuModuleLoadDataEx\0" (*mut u64, *const c_void, u32, *const u32, *const usize);
    unload b"cuModuleUnload\0" (u64);
    function b"cuModuleGetFunction\0" (*mut u64, u64, *const c_char);
    function_attribute b"cuFuncGetAttribute\0" (*mut i32, i32, u64);
    function_param b"cuFuncGetParamInfo\0" (u64, u64, *mut u64, *mut u64);
    launch b"cuLaunchKernel\0" (u64, u32, u32, u32, u32, u32, u32, u32, u64, *const *const u8, *const u64);
    stream_create b"cuStreamCreate\0" (*mut u64, u32);
    stream_destroy b"cuStreamDestroy_v2\0" (u64);
    stream_synchronize b"cuStreamSynchronize\0" (u64);
    event_create b"cuEventCreate\0" (*mut u64, u32);
    event_destroy b"cuEventDestroy_v2\0" (u64);
    event_record b"cuEventRecord\0" (u64, u64);
    event_synchronize b"cuEventSynchronize\0" (u64);
}

/// The driver with its one device.
pub struct Driver {
    functions: Functions,
    context: u64,
    /// Where freeing is queued: nothing else is, so it happens at once.
    freeing: Stream,
    _library: Library,
}

/// A stream of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

#[cfg(test)]
impl Stream {
    /// One that no driver knows.
    pub fn of_tests() -> Self {
        Self(0)
    }
}

/// An event of the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// A module of the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Module(u64);

/// A kernel of the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Function(u64);

/// One launch.
#[derive(Debug)]
pub struct Launch {
    /// What.
    pub function: Function,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Each parameter's bytes.
    pub params: Vec<Vec<u8>>,
}

/// One side of a copy of rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Address of the first.
    pub addr: u64,
    /// From row to row, bytes.
    pub pitch: u64,
}

/// The driver; the first call starts the device server.
pub fn driver() -> Outcome<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let open = || match Driver::open() {
        Ok(driver) => Some(driver),
        Err(error) => {
            log::failure(&with_cause(&error));
            None
        }
    };
    DRIVER.get_or_init(open).as_ref().ok_or(Status::DEVICE_NOT_FOUND)
}

fn with_cause(error: &OpenError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The folder of this library.
fn own_folder() -> Option<PathBuf> {
    let here = own_folder as *const c_void;
    // SAFETY: all of it is pointers and numbers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the place for the answer is ours.
    if unsafe { libc::dladdr(here, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's name of the file is a NUL-terminated text that lives as long as we do.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()?;
    path.parent().map(Path::to_owned)
}

fn check(result: u32) -> CudaResult {
    match result {
        0 => Ok(()),
        error => Err(CudaError(error)),
    }
}

impl Driver {
    fn open() -> Result<Self, OpenError> {
        let path = own_folder().ok_or(OpenError::Folder)?.join("libcuda.so.1");
        let cannot = |cause: libloading::Error| OpenError::Load {
            path: path.clone(),
            cause,
        };
        // SAFETY: it is the installation's own, whose initialisation has no requirements.
        let library = unsafe { Library::new(&path) }.map_err(cannot)?;
        let functions = Functions::find(&library).map_err(cannot)?;
        let say = |call: &'static str| move |e: CudaError| OpenError::Call { call, code: e.0 };
        // SAFETY: plain numbers.
        check(unsafe { (functions.init)(0) }).map_err(say("cuInit"))?;
        let mut context = 0;
        // SAFETY: the place for the handle is ours.
        check(unsafe { (functions.retain_primary)(&raw mut context, 0) }).map_err(say("cuDevicePrimaryCtxRetain"))?;
        let mut driver = Self {
            functions,
            context,
            freeing: Stream(0),
            _library: library,
        };
        driver.freeing = driver.stream().map_err(say("cuStreamCreate"))?;
        Ok(driver)
    }

    /// Runs `body` with the context current.
    fn current<T>(&self, body: impl FnOnce(&Functions) -> CudaResult<T>) -> CudaResult<T> {
        // SAFETY: the context is never given back.
        check(unsafe { (self.functions.push)(self.context) })?;
        let result = body(&self.functions);
        let mut popped = 0;
        // SAFETY: the place for the handle is ours.
        check(unsafe { (self.functions.pop)(&raw mut popped) })?;
        result
    }

    /// The device's name.
    pub fn name(&self) -> String {
        let mut bytes = [0; 256];
        // SAFETY: the place and its size belong together.
        let result = check(unsafe { (self.functions.device_name)(bytes.as_mut_ptr().cast(), 255, 0) });
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        match result {
            Ok(()) => text.to_string_lossy().into_owned(),
            Err(_) => String::new(),
        }
    }

    /// The device's memory, bytes.
    pub fn memory(&self) -> u64 {
        let mut bytes = 0;
        // SAFETY: the place for the answer is ours.
        let result = check(unsafe { (self.functions.device_memory)(&raw mut bytes, 0) });
        result.map_or(0, |()| bytes)
    }

    /// A device attribute by its CUDA number; 0 if there is none.
    pub fn attribute(&self, number: i32) -> u32 {
        let mut value = 0;
        // SAFETY: the place for the answer is ours.
        let result = check(unsafe { (self.functions.device_attribute)(&raw mut value, number, 0) });
        result.ok().and_then(|()| u32::try_from(value).ok()).unwrap_or(0)
    }

    /// Device memory.
    pub fn alloc(&self, size_bytes: u64) -> CudaResult<u64> {
        let mut addr = 0;
        // SAFETY: the place for the address is ours.
        self.current(|f| check(unsafe { (f.alloc)(&raw mut addr, size_bytes) }))?;
        Ok(addr)
    }

    /// Frees it; nothing may use it any more.
    pub fn free(&self, addr: u64) -> CudaResult {
        // SAFETY: plain numbers; the library checks them.
        self.current(|f| check(unsafe { (f.free_async)(addr, self.freeing.0) }))
    }

    /// Copies a range; waits where one side is ordinary memory that is written.
    ///
    /// The program promised that its side is there until the copy is done.
    pub fn copy(&self, dst: u64, src: u64, size_bytes: u64, stream: Stream) -> CudaResult {
        // SAFETY: plain numbers; the library checks device addresses, the program answers for its own.
        self.current(|f| check(unsafe { (f.copy)(dst, src, size_bytes, stream.0) }))
    }

    /// Copies rows, likewise.
    pub fn copy_rows(&self, dst: Rows, src: Rows, width: u64, rows: u64, stream: Stream) -> CudaResult {
        let side = |rows: Rows| Side2D {
            memory_type: UNIFIED,
            device: rows.addr,
            pitch: rows.pitch,
            ..Side2D::default()
        };
        let copy = Copy2D {
            src: side(src),
            dst: side(dst),
            width_bytes: width,
            height: rows,
        };
        // SAFETY: the description is ours and read during the call; for the rest see `copy`.
        self.current(|f| check(unsafe { (f.copy_rows)(&raw const copy, stream.0) }))
    }

    /// Fills a range with a pattern of a power of two bytes.
    pub fn fill(&self, dst: u64, pattern: &[u8], size_bytes: u64, stream: Stream) -> CudaResult {
        let count = size_bytes / pattern.len() as u64;
        self.current(|f| match *pattern {
            // SAFETY: plain numbers; the library checks them.
            [a] => check(unsafe { (f.fill_u8)(dst, a, count, stream.0) }),
            // SAFETY: as above.
            [a, b] => check(unsafe { (f.fill_u16)(dst, u16::from_ne_bytes([a, b]), count, stream.0) }),
            // SAFETY: as above.
            [a, b, c, d] => check(unsafe { (f.fill_u32)(dst, u32::from_ne_bytes([a, b, c, d]), count, stream.0) }),
            _ => {
                // Columns of a word each, as wide apart as the pattern is long.
                let (words, _) = pattern.as_chunks::<4>();
                for (at, &word) in (0..).step_by(4).zip(words) {
                    let (value, pitch) = (u32::from_ne_bytes(word), pattern.len() as u64);
                    // SAFETY: as above.
                    check(unsafe { (f.fill_rows)(dst + at, pitch, value, 1, count, stream.0) })?;
                }
                Ok(())
            }
        })
    }

    /// Loads PTX; the text of a failure is what the device says about it. A module of which a kernel is refused is a
    /// failure.
    pub fn load(&self, ptx: &CStr) -> Result<Module, (CudaError, String)> {
        let mut log = vec![0_u8; 16 << 10];
        let (options, values) = (
            [OPTION_ERROR_LOG, OPTION_ERROR_LOG_BYTES],
            [log.as_mut_ptr().expose_provenance(), log.len()],
        );
        let mut module = 0;
        let image = ptx.as_ptr().cast::<c_void>();
        let result = self.current(|f| {
            // SAFETY: two options with their values, the first of which is a place as long as the second says.
            check(unsafe { (f.load)(&raw mut module, image, 2, options.as_ptr(), values.as_ptr()) })
        });
        let text = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        let refused = |e| (e, text.clone().into_owned());
        result.map_err(refused)?;
        if !text.is_empty() {
            // The program gets no kernel of it; should unloading fail, there is nothing more to be done about it.
            let _ = self.unload(Module(module));
            return Err(refused(CudaError::NOT_SUPPORTED));
        }
        Ok(Module(module))
    }

    /// Unloads a module.
    pub fn unload(&self, module: Module) -> CudaResult {
        // SAFETY: plain numbers; the library checks them.
        self.current(|f| check(unsafe { (f.unload)(module.0) }))
    }

    /// A kernel of a module.
    pub fn function(&self, module: Module, name: &str) -> CudaResult<Function> {
        let name = CString::new(name).map_err(|_| CudaError::INVALID_SOURCE)?;
        let mut function = 0;
        // SAFETY: the name is NUL-terminated, the place for the handle ours.
        self.current(|f| check(unsafe { (f.function)(&raw mut function, module.0, name.as_ptr()) }))?;
        Ok(Function(function))
    }

    /// An attribute of a kernel by its CUDA number. The first question has the device build the kernel.
    pub fn function_attribute(&self, function: Function, number: i32) -> CudaResult<u32> {
        let mut value = 0;
        // SAFETY: the place for the answer is ours.
        self.current(|f| check(unsafe { (f.function_attribute)(&raw mut value, number, function.0) }))?;
        u32::try_from(value).map_err(|_| CudaError::INVALID_VALUE)
    }

    /// Sizes of a kernel's parameters.
    pub fn param_bytes(&self, function: Function) -> CudaResult<Vec<usize>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            let index = sizes.len() as u64;
            let asked = self.current(|f| {
                // SAFETY: the places for the answers are ours.
                check(unsafe { (f.function_param)(function.0, index, &raw mut offset, &raw mut size) })
            });
            match asked {
                Ok(()) => sizes.push(usize::try_from(size).map_err(|_| CudaError::INVALID_VALUE)?),
                Err(CudaError::INVALID_VALUE) => return Ok(sizes),
                Err(e) => return Err(e),
            }
        }
    }

    /// Launches.
    pub fn launch(&self, launch: &Launch, stream: Stream) -> CudaResult {
        let params: Vec<*const u8> = launch.params.iter().map(|param| param.as_ptr()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let (function, shared) = (launch.function.0, launch.shared_bytes);
        let (params, none) = (params.as_ptr(), std::ptr::null());
        self.current(|f| {
            // SAFETY: a pointer for each parameter, to as many bytes as the library says that it has.
            check(unsafe { (f.launch)(function, gx, gy, gz, bx, by, bz, shared, stream.0, params, none) })
        })
    }

    /// A new stream that waits for no other.
    pub fn stream(&self) -> CudaResult<Stream> {
        let mut stream = 0;
        // SAFETY: the place for the handle is ours.
        self.current(|f| check(unsafe { (f.stream_create)(&raw mut stream, NON_BLOCKING) }))?;
        Ok(Stream(stream))
    }

    /// Ends a stream.
    pub fn destroy_stream(&self, stream: Stream) -> CudaResult {
        // SAFETY: plain numbers; the library checks them.
        self.current(|f| check(unsafe { (f.stream_destroy)(stream.0) }))
    }

    /// Waits until a stream is empty.
    pub fn synchronize(&self, stream: Stream) -> CudaResult {
        // SAFETY: plain numbers; the library checks them.
        self.current(|f| check(unsafe { (f.stream_synchronize)(stream.0) }))
    }

    /// A mark behind what a stream has so far.
    pub fn mark(&self, stream: Stream) -> CudaResult<Mark> {
        self.current(|f| {
            let mut event = 0;
            // SAFETY: the place for the handle is ours.
            check(unsafe { (f.event_create)(&raw mut event, NO_TIMING) })?;
            // SAFETY: plain numbers; the library checks them.
            check(unsafe { (f.event_record)(event, stream.0) })?;
            Ok(Mark(event))
        })
    }

    /// Waits until a stream has come to the mark, which then is gone.
    pub fn wait(&self, mark: Mark) -> CudaResult {
        self.current(|f| {
            // SAFETY: plain numbers; the library checks them.
            let result = check(unsafe { (f.event_synchronize)(mark.0) });
            // SAFETY: as above.
            let destroyed = check(unsafe { (f.event_destroy)(mark.0) });
            result.and(destroyed)
        })
    }
}
