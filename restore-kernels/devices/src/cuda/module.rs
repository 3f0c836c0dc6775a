//! Building PTX with the driver's compiler, and keeping what it made on disk.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute};

use super::driver::{self, DriverError};
use super::handles::Module;
use super::lock;
use crate::device::{KernelAttributes, LoadRequest, LoadedKernel};
use crate::error::DeviceError;

/// First line of a program that is launched over a list of blocks (the PTX generator's `BLOCK_LIST_MARK`).
const BLOCK_LIST_MARK: &str = "// hetckpt: launched over a list of blocks";
/// First bytes of a file in the cache; then the hash of the rest.
const CACHE_MAGIC: &[u8; 16] = b"hetckpt cubin 1\n";
/// Blocks may have this much shared memory without being asked.
const SHARED_WITHOUT_OPT_IN: u32 = 48 << 10;

/// A program loaded on a CUDA device.
pub(super) struct CudaKernel {
    pub request: LoadRequest,
    pub is_block_list: bool,
    /// Columns of its registers ([`crate::control::register_columns`]).
    pub columns: Vec<(u32, u32)>,
    attributes: KernelAttributes,
    function: CUfunction,
    /// Threads and shared memory of a block: how many fit a multiprocessor.
    occupancy: Mutex<HashMap<(u32, u32), u32>>,
    _module: Module,
}

#[allow(unsafe_code, reason = "driver handles may be shared")]
mod shared_handles {
    // SAFETY: functions of a loaded module may be used from any thread.
    unsafe impl Send for super::CudaKernel {}
    // SAFETY: as above; the driver locks.
    unsafe impl Sync for super::CudaKernel {}
}

/// The program as the device's user holds it.
pub(super) struct LoadedCuda(pub Arc<CudaKernel>);

impl LoadedKernel for LoadedCuda {
    fn attributes(&self) -> KernelAttributes {
        self.0.attributes
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl CudaKernel {
    pub fn function(&self) -> CUfunction {
        self.function
    }

    /// Lets blocks have `shared_bytes` of shared memory; returns how many of `threads` threads fit a multiprocessor.
    pub fn prepare(&self, threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        let mut known = lock(&self.occupancy);
        if let Some(&blocks) = known.get(&(threads, shared_bytes)) {
            return Ok(blocks);
        }
        if shared_bytes > SHARED_WITHOUT_OPT_IN {
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            driver::cuFuncSetAttribute(self.function, attribute, bytes)?;
        }
        let blocks = driver::cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, threads, shared_bytes)?;
        known.insert((threads, shared_bytes), blocks);
        Ok(blocks)
    }
}

/// Builds and loads programs for one device.
#[derive(Debug)]
pub(super) struct Builder {
    /// As the user names it.
    pub device: String,
    /// What the compiler's output depends on beside the text.
    pub key: String,
    /// Where the compiler's output is kept.
    pub cache_dir: Option<PathBuf>,
}

impl Builder {
    pub fn load(&self, request: &LoadRequest, ptx: &str) -> Result<CudaKernel, DeviceError> {
        let fault = |log: String| DeviceError::Build {
            kernel: request.name.clone(),
            device: self.device.clone(),
            log,
        };
        let refused = |e: DriverError| fault(format!("{}: {}", e.call, e.reason()));
        let cubin = self
            .build(ptx)
            .map_err(|(error, log)| if log.is_empty() { refused(error) } else { fault(log) })?;
        let module = Module(driver::cuModuleLoadData(&cubin).map_err(refused)?);
        let name = CString::new(request.name.as_str()).map_err(|e| fault(e.to_string()))?;
        let function = driver::cuModuleGetFunction(module.0, &name).map_err(refused)?;
        let attribute = |which| driver::cuFuncGetAttribute(which, function).map(i32::cast_unsigned);
        let get = || {
            Ok(KernelAttributes {
                max_threads_per_block: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
                num_registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
                static_shared_bytes: request.static_shared_bytes,
                local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            })
        };
        Ok(CudaKernel {
            attributes: get().map_err(refused)?,
            is_block_list: ptx.starts_with(BLOCK_LIST_MARK),
            columns: crate::control::register_columns(&request.layout),
            function,
            occupancy: Mutex::default(),
            request: LoadRequest {
                code: crate::device::Code::Ptx(String::new()),
                ..request.clone()
            },
            _module: module,
        })
    }

    fn build(&self, ptx: &str) -> Result<Vec<u8>, (DriverError, String)> {
        let path = self.cache_dir.as_ref().map(|dir| dir.join(self.file_name(ptx)));
        if let Some(cubin) = path.as_deref().and_then(read_cached) {
            return Ok(cubin);
        }
        let cubin = driver::link_ptx(ptx)?;
        if let Some(path) = path
            && let Err(error) = write_cached(&path, &cubin)
        {
            tracing::warn!(path = %path.display(), %error, "a built kernel cannot be kept");
        }
        Ok(cubin)
    }

    fn file_name(&self, ptx: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.key.as_bytes());
        hasher.update(&[0]);
        hasher.update(ptx.as_bytes());
        format!("cuda-{}.cubin", hasher.finalize().to_hex())
    }
}

/// A file of the cache, if it is there and undamaged.
fn read_cached(path: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).ok()?;
    let rest = bytes.strip_prefix(CACHE_MAGIC)?;
    let (hash, cubin) = rest.split_at_checked(blake3::OUT_LEN)?;
    (blake3::hash(cubin).as_bytes() == hash).then(|| cubin.to_vec())
}

fn write_cached(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(CACHE_MAGIC)?;
        file.write_all(blake3::hash(cubin).as_bytes())?;
        file.write_all(cubin)?;
        drop(file);
        std::fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn refuses_a_damaged_file_of_the_cache() {
        let folder = std::env::temp_dir().join(format!("hetckpt-cubin-{}", std::process::id()));
        let path = folder.join("a.cubin");
        write_cached(&path, b"machine code").unwrap();
        assert_eq!(read_cached(&path).as_deref(), Some(&b"machine code"[..]));
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_cached(&path), None);
        std::fs::write(&path, &bytes[..20]).unwrap();
        assert_eq!(read_cached(&path), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn keeps_programs_apart_by_text_and_device() {
        let a = Builder {
            device: "cuda:0".into(),
            key: "a".into(),
            cache_dir: None,
        };
        let b = Builder {
            device: "cuda:0".into(),
            key: "b".into(),
            cache_dir: None,
        };
        assert_ne!(a.file_name("x"), b.file_name("x"));
        assert_ne!(a.file_name("x"), a.file_name("y"));
        assert_eq!(a.file_name("x"), a.file_name("x"));
    }
}
