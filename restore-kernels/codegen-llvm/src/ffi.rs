#![allow(unsafe_code, reason = "the C interface of the shared object")]
//! The exported functions. Types and contracts: [`hetckpt_abi::cpu_codegen`].

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use hetckpt_abi::cpu_codegen::{Buffer, Bytes, CPU_CODEGEN_ABI, CompileRequest, CompileResult, Entry, Tier};
use hetckpt_abi::program::Program;
use hetckpt_ir::entity::{BbId, ResumePointId};

use crate::compile;
use crate::emit;
use crate::error::CodegenError;
use crate::loaded::LoadedObject;

/// Version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn hetckpt_cpu_codegen_abi() -> u32 {
    CPU_CODEGEN_ABI
}

/// What objects depend on beside the program.
///
/// # Safety
/// `out` and `error` are valid places for a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_identity(out: *mut Buffer, error: *mut Buffer) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, || Ok(buffer(compile::identity().into_bytes()))) }
}

/// Compiles.
///
/// # Safety
/// `request` and all it points to are valid during the call; `out` and `error` are valid places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_compile(
    request: *const CompileRequest,
    out: *mut CompileResult,
    error: *mut Buffer,
) -> i32 {
    let work = || {
        // SAFETY: the caller's promise.
        let program = unsafe { program(request) }?;
        // SAFETY: the caller's promise.
        let tier = unsafe { (*request).tier };
        let tier = Tier::from_number(tier).ok_or(CodegenError::Tier(tier))?;
        let compiled = compile::compile(&program, tier)?;
        Ok(CompileResult {
            object: buffer(compiled.object),
            tables: buffer(compiled.tables),
        })
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, work) }
}

/// LLVM IR of a request.
///
/// # Safety
/// As [`hetckpt_cpu_codegen_compile`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_llvm_ir(
    request: *const CompileRequest,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    let work = || {
        // SAFETY: the caller's promise.
        let program = unsafe { program(request) }?;
        Ok(buffer(emit::module(&program)?.text().into_bytes()))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, work) }
}

/// Loads an object.
///
/// # Safety
/// `object` and its bytes are valid during the call; `out` and `error` are valid places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_load(
    object: *const Bytes,
    out: *mut *mut c_void,
    error: *mut Buffer,
) -> i32 {
    let work = || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes(object) };
        let loaded = LoadedObject::new(bytes)?;
        Ok(Box::into_raw(Box::new(loaded)).cast::<c_void>())
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, work) }
}

/// Finds a function.
///
/// # Safety
/// `loaded` is from [`hetckpt_cpu_codegen_load`] and not unloaded; `name` is valid during the call; `out` and `error`
/// are valid places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_symbol(
    loaded: *mut c_void,
    name: *const Bytes,
    out: *mut *const c_void,
    error: *mut Buffer,
) -> i32 {
    let work = || {
        // SAFETY: the caller's promise.
        let name = String::from_utf8_lossy(unsafe { bytes(name) });
        // SAFETY: the caller's promise.
        let loaded = unsafe { &*loaded.cast::<LoadedObject>() };
        loaded.symbol(&name)
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, work) }
}

/// Unloads an object.
///
/// # Safety
/// `loaded` is from [`hetckpt_cpu_codegen_load`], not used again, and none of its code runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_unload(loaded: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(loaded.cast::<LoadedObject>()) });
    }));
}

/// Frees a buffer and empties it.
///
/// # Safety
/// `buffer` is null or a buffer that this library filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hetckpt_cpu_codegen_free(buffer: *mut Buffer) {
    // SAFETY: the caller's promise.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return;
    };
    if !buffer.data.is_null() {
        let slice = ptr::slice_from_raw_parts_mut(buffer.data, buffer.len);
        // SAFETY: made by `buffer` below from a boxed slice of this length.
        drop(unsafe { Box::from_raw(slice) });
    }
    *buffer = Buffer::EMPTY;
}

/// Runs `work`; its result goes to `out`, its error or panic as text to `error`.
///
/// # Safety
/// `out` and `error` are valid places.
unsafe fn guard<T>(out: *mut T, error: *mut Buffer, work: impl FnOnce() -> Result<T, CodegenError>) -> i32 {
    let text = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            // SAFETY: the caller's promise.
            unsafe { out.write(value) };
            return 0;
        }
        Ok(Err(error)) => error.to_string(),
        Err(panic) => {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            format!("the code generator panicked: {}", said.unwrap_or("no message"))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { error.write(buffer(text.into_bytes())) };
    1
}

fn buffer(bytes: Vec<u8>) -> Buffer {
    let bytes = bytes.into_boxed_slice();
    let len = bytes.len();
    Buffer {
        data: Box::into_raw(bytes).cast::<u8>(),
        len,
    }
}

/// # Safety
/// `bytes` is valid, and so is what it points to, for `'a`.
unsafe fn bytes<'a>(bytes: *const Bytes) -> &'a [u8] {
    // SAFETY: the caller's promise.
    let bytes = unsafe { &*bytes };
    if bytes.len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.data, bytes.len) }
}

/// # Safety
/// As [`hetckpt_cpu_codegen_compile`].
unsafe fn program(request: *const CompileRequest) -> Result<Program, CodegenError> {
    // SAFETY: the caller's promise.
    let request = unsafe { &*request };
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(&raw const request.text) };
    let text = std::str::from_utf8(text).map_err(|e| CodegenError::Text(e.to_string()))?;
    let kernel = hetckpt_ir::text::parse::kernel(text).map_err(|e| CodegenError::Text(e.to_string()))?;
    let entries = if request.num_entries == 0 {
        // None named: threads may start at every resume point.
        (0u32..)
            .zip(&kernel.resume_points)
            .map(|(id, point)| (ResumePointId(id), point.block))
            .collect()
    } else {
        // SAFETY: the caller's promise.
        let entries: &[Entry] = unsafe { std::slice::from_raw_parts(request.entries, request.num_entries) };
        entries
            .iter()
            .map(|e| (ResumePointId(e.resume_point), BbId(e.block)))
            .collect()
    };
    Ok(Program { kernel, entries })
}
