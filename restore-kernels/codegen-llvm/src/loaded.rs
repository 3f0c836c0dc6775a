#![allow(unsafe_code, reason = "LLVM's C interface to ORC, which inkwell does not wrap")]
//! Native objects made runnable: LLVM's ORC JIT as a linker, one instance per program, so that dropping it frees all.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use inkwell::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddObjectFile, LLVMOrcLLJITGetMainJITDylib,
    LLVMOrcLLJITLookup, LLVMOrcLLJITMangleAndIntern, LLVMOrcLLJITRef,
};
use inkwell::llvm_sys::orc2::{
    LLVMJITEvaluatedSymbol, LLVMJITSymbolFlags, LLVMJITSymbolGenericFlags, LLVMOrcAbsoluteSymbols,
    LLVMOrcCSymbolMapPair, LLVMOrcJITDylibDefine,
};

use crate::compile::initialize;
use crate::error::CodegenError;
use crate::host_functions;
use crate::objects;

/// A program's objects in memory, linked.
#[derive(Debug)]
pub struct LoadedObject {
    jit: LLVMOrcLLJITRef,
}

// SAFETY: LLJIT locks its session itself; its C interface may be used from any thread.
unsafe impl Send for LoadedObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for LoadedObject {}

impl LoadedObject {
    /// Links the objects that are joined in `joined` ([`crate::objects`]).
    ///
    /// # Errors
    /// [`CodegenError::Llvm`], [`CodegenError::Joined`].
    pub fn new(joined: &[u8]) -> Result<Self, CodegenError> {
        initialize();
        let mut jit = ptr::null_mut();
        // SAFETY: `jit` is a valid place for the result; a null builder asks for the default for this host.
        let error = unsafe { LLVMOrcCreateLLJIT(&raw mut jit, ptr::null_mut()) };
        check(error, "make a JIT")?;
        let loaded = Self { jit };
        loaded.define_host_functions()?;
        for object in objects::split(joined)? {
            loaded.add(object)?;
        }
        Ok(loaded)
    }

    fn add(&self, object: &[u8]) -> Result<(), CodegenError> {
        // SAFETY: data and length are those of a slice, the name is a C string; the bytes are copied.
        let buffer = unsafe {
            LLVMCreateMemoryBufferWithMemoryRangeCopy(
                object.as_ptr().cast::<c_char>(),
                object.len(),
                c"kernel".as_ptr(),
            )
        };
        // SAFETY: `jit` lives.
        let library = unsafe { LLVMOrcLLJITGetMainJITDylib(self.jit) };
        // SAFETY: both live; the buffer becomes LLVM's.
        let error = unsafe { LLVMOrcLLJITAddObjectFile(self.jit, library, buffer) };
        check(error, "load the object")
    }

    /// Address of a function.
    ///
    /// # Errors
    /// [`CodegenError::NoSuchSymbol`] if the name is none, [`CodegenError::Llvm`].
    pub fn symbol(&self, name: &str) -> Result<*const c_void, CodegenError> {
        let c_name = CString::new(name).map_err(|_| CodegenError::NoSuchSymbol(name.escape_default().to_string()))?;
        let mut address = 0;
        // SAFETY: `jit` lives, the name is a C string, `address` is a valid place for the result.
        let error = unsafe { LLVMOrcLLJITLookup(self.jit, &raw mut address, c_name.as_ptr()) };
        check(error, "link the object")?;
        if address == 0 {
            return Err(CodegenError::NoSuchSymbol(name.to_owned()));
        }
        Ok(address as *const c_void)
    }

    fn define_host_functions(&self) -> Result<(), CodegenError> {
        let mut pairs = Vec::new();
        for (name, address) in host_functions::all() {
            let Ok(name) = CString::new(name) else { continue };
            // SAFETY: `jit` lives, the name is a C string.
            let name = unsafe { LLVMOrcLLJITMangleAndIntern(self.jit, name.as_ptr()) };
            let flags = LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsExported as u8
                | LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsCallable as u8;
            pairs.push(LLVMOrcCSymbolMapPair {
                Name: name,
                Sym: LLVMJITEvaluatedSymbol {
                    Address: address as u64,
                    Flags: LLVMJITSymbolFlags {
                        GenericFlags: flags,
                        TargetFlags: 0,
                    },
                },
            });
        }
        // SAFETY: the array is valid during the call; the names' references become LLVM's.
        let unit = unsafe { LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len()) };
        // SAFETY: `jit` lives.
        let library = unsafe { LLVMOrcLLJITGetMainJITDylib(self.jit) };
        // SAFETY: both live; the unit becomes LLVM's.
        let error = unsafe { LLVMOrcJITDylibDefine(library, unit) };
        check(error, "define the host's functions")
    }
}

impl Drop for LoadedObject {
    fn drop(&mut self) {
        // SAFETY: `jit` lives and is not used again; its code no longer runs (the caller's promise).
        let error = unsafe { LLVMOrcDisposeLLJIT(self.jit) };
        // There is nobody to tell, but the error must be consumed.
        let _ = check(error, "unload");
    }
}

fn check(error: LLVMErrorRef, step: &'static str) -> Result<(), CodegenError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, consumed here.
    let text = unsafe { LLVMGetErrorMessage(error) };
    // SAFETY: LLVM's messages are C strings.
    let message = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: from `LLVMGetErrorMessage`, not used again.
    unsafe { LLVMDisposeErrorMessage(text) };
    Err(CodegenError::Llvm { step, message })
}
