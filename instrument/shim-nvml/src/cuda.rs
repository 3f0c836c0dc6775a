//! The CUDA driver that the program sees: our `libcuda.so.1`.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use libloading::Library;

use crate::result::{NvmlReturn, Outcome};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`; the minor number follows.
const CAPABILITY: u32 = 75;

/// The driver library, once it is initialised.
pub struct Cuda(Library);

/// What device 0 is.
pub struct Description {
    pub name: String,
    pub uuid: [u8; 16],
    pub pci_bus_id: String,
    pub total_bytes: u64,
    pub capability: (i32, i32),
}

/// Initialises the driver at the first call, which starts a device server.
pub fn get() -> Outcome<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    CUDA.get_or_init(Cuda::open)
        .as_ref()
        .ok_or(NvmlReturn::DRIVER_NOT_LOADED)
}

macro_rules! call {
    ($cuda:expr, $name:literal ($($ty:ty),*) ($($arg:expr),*)) => {{
        type Function = unsafe extern "C" fn($($ty),*) -> u32;
        // SAFETY: the driver API's function of that name has this type.
        let function = unsafe { $cuda.0.get::<Function>($name) }.map_err(|_| NvmlReturn::UNKNOWN)?;
        // SAFETY: places for what it writes, as long as it is told.
        match unsafe { function($($arg),*) } {
            0 => Ok(()),
            _ => Err(NvmlReturn::UNKNOWN),
        }
    }};
}

impl Cuda {
    fn open() -> Option<Self> {
        // SAFETY: the library that the program uses too.
        let cuda = Self(unsafe { Library::new("libcuda.so.1") }.ok()?);
        cuda.init().ok()?;
        Some(cuda)
    }

    fn init(&self) -> Outcome {
        call!(self, b"cuInit"(u32)(0))
    }

    pub fn version(&self) -> Outcome<i32> {
        let mut version = 0;
        call!(self, b"cuDriverGetVersion" (*mut i32)(&raw mut version))?;
        Ok(version)
    }

    pub fn count(&self) -> Outcome<u32> {
        let mut count = 0;
        call!(self, b"cuDeviceGetCount" (*mut u32)(&raw mut count))?;
        Ok(count)
    }

    pub fn describe(&self) -> Outcome<Description> {
        const ROOM: i32 = 128;
        let (mut name, mut bus, mut uuid) = ([0_u8; ROOM as usize], [0_u8; ROOM as usize], [0; 16]);
        let (mut total, mut major, mut minor) = (0, 0, 0);
        call!(self, b"cuDeviceGetName" (*mut c_char, i32, i32)(name.as_mut_ptr().cast(), ROOM, 0))?;
        call!(self, b"cuDeviceGetPCIBusId" (*mut c_char, i32, i32)(bus.as_mut_ptr().cast(), ROOM, 0))?;
        call!(self, b"cuDeviceGetUuid_v2" (*mut [u8; 16], i32)(&raw mut uuid, 0))?;
        call!(self, b"cuDeviceTotalMem_v2" (*mut u64, i32)(&raw mut total, 0))?;
        call!(self, b"cuDeviceGetAttribute" (*mut i32, u32, i32)(&raw mut major, CAPABILITY, 0))?;
        call!(self, b"cuDeviceGetAttribute" (*mut i32, u32, i32)(&raw mut minor, CAPABILITY + 1, 0))?;
        Ok(Description {
            name: text(&name),
            uuid,
            pci_bus_id: text(&bus),
            total_bytes: total,
            capability: (major, minor),
        })
    }

    /// Free and all memory, in a thread with a context.
    pub fn memory(&self) -> Outcome<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        call!(self, b"cuMemGetInfo_v2" (*mut u64, *mut u64)(&raw mut free, &raw mut total))?;
        Ok((free, total))
    }
}

fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
