//! The C interface of the CPU code generator's shared object, `libhetckpt_cpu_codegen.so`.
//!
//! It is loaded at run time like a driver, so that a node needs LLVM's code only where kernels run on the CPU. Every
//! function returns 0, or 1 and then text in its `error` buffer; none of them unwinds. Buffers are the generator's and
//! go back to it through `hetckpt_cpu_codegen_free`.

use std::ffi::c_void;

/// Version of this interface; [`AbiVersion`] must return it before anything else may be called.
pub const CPU_CODEGEN_ABI: u32 = 4;

/// Bytes that the generator allocated; `data` may be null where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// First byte.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

impl Buffer {
    /// No bytes.
    pub const EMPTY: Buffer = Buffer {
        data: std::ptr::null_mut(),
        len: 0,
    };
}

/// Bytes of the caller, valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// First byte.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}

impl Bytes {
    /// The bytes of `slice`, to be used while it lives.
    #[must_use]
    pub const fn of(slice: &[u8]) -> Self {
        Self {
            data: slice.as_ptr(),
            len: slice.len(),
        }
    }
}

/// A start point: resume point and the basic block it starts at.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Resume point.
    pub resume_point: u32,
    /// Basic block.
    pub block: u32,
}

/// How much is done to make code fast. What it computes, and where it saves registers, is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Little: for a kernel that is to start now.
    Quick,
    /// All there is.
    Full,
}

impl Tier {
    /// As [`CompileRequest::tier`] has it.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Tier::Quick => 0,
            Tier::Full => 1,
        }
    }

    /// The inverse.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Tier::Quick),
            1 => Some(Tier::Full),
            _ => None,
        }
    }
}

/// What `compile` is asked.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompileRequest {
    /// hetIR text of the kernel.
    pub text: Bytes,
    /// Start points; none: every resume point, at its own basic block.
    pub entries: *const Entry,
    /// Number of start points.
    pub num_entries: usize,
    /// A [`Tier`].
    pub tier: u32,
}

/// What `compile` makes. Both parts are position-independent bytes, fit for a cache on disk.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompileResult {
    /// Relocatable objects for this host, as [`Load`] takes them, with one function per start point
    /// ([`crate::cpu_block::region_symbol`]).
    pub object: Buffer,
    /// [`crate::cpu_tables::CpuTables`], encoded.
    pub tables: Buffer,
}

const _: () = assert!(size_of::<Buffer>() == 16 && size_of::<Bytes>() == 16 && size_of::<Entry>() == 8);
const _: () = assert!(size_of::<CompileRequest>() == 40 && size_of::<CompileResult>() == 32);

/// `hetckpt_cpu_codegen_abi`.
pub type AbiVersion = unsafe extern "C" fn() -> u32;
/// `hetckpt_cpu_codegen_identity(out)`: text that names generator version, LLVM version, host CPU and its features;
/// objects are good only where it is the same.
pub type Identity = unsafe extern "C" fn(out: *mut Buffer, error: *mut Buffer) -> i32;
/// `hetckpt_cpu_codegen_compile`.
pub type Compile =
    unsafe extern "C" fn(request: *const CompileRequest, out: *mut CompileResult, error: *mut Buffer) -> i32;
/// `hetckpt_cpu_codegen_llvm_ir`: the request's LLVM IR as text, before optimisation.
pub type LlvmIr = unsafe extern "C" fn(request: *const CompileRequest, out: *mut Buffer, error: *mut Buffer) -> i32;
/// `hetckpt_cpu_codegen_load`: makes an object runnable.
pub type Load = unsafe extern "C" fn(object: *const Bytes, out: *mut *mut c_void, error: *mut Buffer) -> i32;
/// `hetckpt_cpu_codegen_symbol`: address of a function in a loaded object.
pub type Symbol =
    unsafe extern "C" fn(loaded: *mut c_void, name: *const Bytes, out: *mut *const c_void, error: *mut Buffer) -> i32;
/// `hetckpt_cpu_codegen_unload`: no code of the object may run any more.
pub type Unload = unsafe extern "C" fn(loaded: *mut c_void);
/// `hetckpt_cpu_codegen_free`.
pub type Free = unsafe extern "C" fn(buffer: *mut Buffer);
