#![allow(unsafe_code, reason = "the code generator's C interface")]
//! The code generator's shared object ([`hetckpt_abi::cpu_codegen`]), loaded like a driver.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use hetckpt_abi::cpu_codegen::{
    AbiVersion, Buffer, Bytes, CPU_CODEGEN_ABI, Compile, CompileRequest, CompileResult, Entry, Free, Identity, LlvmIr,
    Load, Symbol, Tier, Unload,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::DeviceError;

/// The loaded shared object. It stays loaded: LLVM has thread-local data whose destructors must find their code.
pub struct CodeGenerator {
    compile: Compile,
    llvm_ir: LlvmIr,
    load: Load,
    symbol: Symbol,
    unload: Unload,
    free: Free,
    identity: String,
}

/// What the code generator refuses, in its own words: its interface has no others (the program's limit, or a bug in
/// us).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeneratorError(String);

/// What compiling makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Relocatable object.
    pub object: Vec<u8>,
    /// Encoded tables.
    pub tables: Vec<u8>,
}

impl Compiled {
    /// For a cache: the object's length (`u64`, little-endian), the object, the tables.
    pub fn to_bytes(&self) -> Vec<u8> {
        let length = (self.object.len() as u64).to_le_bytes();
        [&length, self.object.as_slice(), &self.tables].concat()
    }

    /// The inverse.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (object, tables) = rest.split_at_checked(length)?;
        Some(Self {
            object: object.to_vec(),
            tables: tables.to_vec(),
        })
    }
}

impl CodeGenerator {
    /// Loads the shared object and checks its version.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        let absent = |reason: String| DeviceError::NotPresent {
            device: "cpu".to_owned(),
            reason,
        };
        let broken = |error: libloading::Error| absent(format!("code generator {}: {error}", path.display()));
        // SAFETY: its initialisers are LLVM's and Rust's, which may run in any process.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) }.map_err(broken)?;
        // SAFETY: the interface says what type the symbol has.
        let version = unsafe { library.get::<AbiVersion>(b"hetckpt_cpu_codegen_abi") }.map_err(broken)?;
        // SAFETY: takes nothing, returns a number.
        let version = unsafe { version() };
        if version != CPU_CODEGEN_ABI {
            let path = path.display();
            return Err(absent(format!(
                "code generator {path} has interface {version}, not {CPU_CODEGEN_ABI}"
            )));
        }
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: this version of the interface says what type the symbol has.
                *unsafe { library.get($name) }.map_err(broken)?
            };
        }
        let identity: Identity = function!(b"hetckpt_cpu_codegen_identity");
        let mut generator = Self {
            compile: function!(b"hetckpt_cpu_codegen_compile"),
            llvm_ir: function!(b"hetckpt_cpu_codegen_llvm_ir"),
            load: function!(b"hetckpt_cpu_codegen_load"),
            symbol: function!(b"hetckpt_cpu_codegen_symbol"),
            unload: function!(b"hetckpt_cpu_codegen_unload"),
            free: function!(b"hetckpt_cpu_codegen_free"),
            identity: String::new(),
        };
        let (mut out, mut error) = (Buffer::EMPTY, Buffer::EMPTY);
        // SAFETY: both are valid places.
        let result = unsafe { identity(&raw mut out, &raw mut error) };
        generator.check(result, error).map_err(|e| absent(e.to_string()))?;
        generator.identity = String::from_utf8_lossy(&generator.take(out)).into_owned();
        Ok(generator)
    }

    /// Names everything that objects depend on beside the program.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Compiles hetIR text for the given start points; without any, for all resume points.
    pub fn compile(&self, text: &str, entries: &[Entry], tier: Tier) -> Result<Compiled, GeneratorError> {
        let request = CompileRequest {
            text: Bytes::of(text.as_bytes()),
            entries: entries.as_ptr(),
            num_entries: entries.len(),
            tier: tier.number(),
        };
        let mut out = CompileResult {
            object: Buffer::EMPTY,
            tables: Buffer::EMPTY,
        };
        let mut error = Buffer::EMPTY;
        // SAFETY: the request points to slices that live through the call; the others are valid places.
        let result = unsafe { (self.compile)(&raw const request, &raw mut out, &raw mut error) };
        self.check(result, error)?;
        Ok(Compiled {
            object: self.take(out.object),
            tables: self.take(out.tables),
        })
    }

    /// LLVM IR of hetIR text, for all resume points.
    pub fn llvm_ir(&self, text: &str) -> Result<String, GeneratorError> {
        let request = CompileRequest {
            text: Bytes::of(text.as_bytes()),
            entries: ptr::null(),
            num_entries: 0,
            tier: Tier::Full.number(),
        };
        let (mut out, mut error) = (Buffer::EMPTY, Buffer::EMPTY);
        // SAFETY: the request points to text that lives through the call; the others are valid places.
        let result = unsafe { (self.llvm_ir)(&raw const request, &raw mut out, &raw mut error) };
        self.check(result, error)?;
        Ok(String::from_utf8_lossy(&self.take(out)).into_owned())
    }

    /// Makes an object runnable.
    pub fn load(self: &Arc<Self>, object: &[u8]) -> Result<LoadedObject, GeneratorError> {
        let bytes = Bytes::of(object);
        let (mut handle, mut error) = (ptr::null_mut(), Buffer::EMPTY);
        // SAFETY: the bytes live through the call; the others are valid places.
        let result = unsafe { (self.load)(&raw const bytes, &raw mut handle, &raw mut error) };
        self.check(result, error)?;
        Ok(LoadedObject {
            generator: self.clone(),
            handle,
        })
    }

    fn check(&self, result: i32, error: Buffer) -> Result<(), GeneratorError> {
        let text = String::from_utf8_lossy(&self.take(error)).into_owned();
        if result == 0 { Ok(()) } else { Err(GeneratorError(text)) }
    }

    /// Copies a buffer of the generator and gives it back.
    fn take(&self, mut buffer: Buffer) -> Vec<u8> {
        if buffer.data.is_null() || buffer.len == 0 {
            return Vec::new();
        }
        // SAFETY: the generator filled it: data and length belong together.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.data, buffer.len) }.to_vec();
        // SAFETY: the generator's buffer, not used again.
        unsafe { (self.free)(&raw mut buffer) };
        bytes
    }
}

/// Runnable code; freed on drop.
pub struct LoadedObject {
    generator: Arc<CodeGenerator>,
    handle: *mut c_void,
}

// SAFETY: the handle may be used from any thread (the interface's promise).
unsafe impl Send for LoadedObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for LoadedObject {}

impl LoadedObject {
    /// Address of a function; valid while `self` lives.
    pub fn symbol(&self, name: &str) -> Result<*const c_void, GeneratorError> {
        let name = Bytes::of(name.as_bytes());
        let (mut address, mut error) = (ptr::null(), Buffer::EMPTY);
        // SAFETY: the handle lives, the name lives through the call, the others are valid places.
        let result = unsafe { (self.generator.symbol)(self.handle, &raw const name, &raw mut address, &raw mut error) };
        self.generator.check(result, error)?;
        Ok(address)
    }
}

impl Drop for LoadedObject {
    fn drop(&mut self) {
        // SAFETY: the handle lives; launches hold the kernel that owns this, so no code of it runs.
        unsafe { (self.generator.unload)(self.handle) };
    }
}
