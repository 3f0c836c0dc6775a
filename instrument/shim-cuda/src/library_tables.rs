//! Tables of `cuGetExportTable` that NVIDIA's libraries (cuBLAS, cuFFT and the like) ask for, beyond the runtime's own
//! ([`crate::export_tables`]). What their functions do is known from how the libraries use them.
#![allow(unsafe_code, reason = "calls a function of the library, pointers to functions")]

use std::ffi::c_void;

use crate::handles::Handle;
use crate::log;
use crate::pointers::Out;
use crate::result::CuResult;
use crate::session;
use crate::table_slots::{Address, Slot, flat, or_current, size};

/// Slots of a table that is larger than what is known of it.
const MANY: usize = 128;
const REFUSED: Slot = Slot::function(refused as *const c_void);

const fn refusing() -> [Slot; MANY] {
    let mut table = [REFUSED; MANY];
    table[0] = size(MANY * 8);
    table
}

/// Contexts: cuBLAS and cuFFT.
pub static CONTEXTS: [Slot; MANY] = {
    let mut table = refusing();
    table[4] = Slot::function(context_number as *const c_void);
    table[39] = Slot::function(number_of_stream_object as *const c_void);
    table[51] = Slot::function(stream_object as *const c_void);
    table
};
/// Functions of modules: cuFFT.
pub static MODULES: [Slot; MANY] = {
    let mut table = refusing();
    table[7] = Slot::function(for_each_function as *const c_void);
    table
};
/// A table of which nothing is known. cuBLASLt does not look whether it gets it, and lives with refusals.
pub static REFUSING: [Slot; MANY] = refusing();

/// Profiling: CUPTI, which XLA loads. It is refused, but for where CUPTI looks up functions of its own: without that
/// function it takes its own table, while a refusal there is a failure whose text it looks up the same way, for ever.
pub static PROFILING: [Slot; MANY] = {
    let mut table = refusing();
    table[67] = Slot::function(std::ptr::null());
    table
};

/// Called for each function of a module: with what the caller has given, the function, and what it belongs to. Returns
/// 0 if it has seen enough.
type EachFunction = Option<unsafe extern "C" fn(opaque: *mut c_void, function: Handle, owner: Handle) -> u32>;

/// Any function of which nothing is known.
extern "C" fn refused() -> CuResult {
    log::detail("a library has called a function of the driver that is in no header; it was refused");
    CuResult::NOT_SUPPORTED
}

/// A number that no other context has, now or later.
extern "C" fn context_number(context: Handle, number: Out<u64>) -> CuResult {
    flat(|| number.set(or_current(context)?.0))
}

/// Something that stands for a stream's capture; NULL.
extern "C" fn stream_object(_context: Handle, _stream: Handle, object: Out<Address>) -> CuResult {
    flat(|| object.set(Address(std::ptr::null())))
}

extern "C" fn number_of_stream_object(_context: Handle, _object: *mut c_void, number: Out<u64>) -> CuResult {
    flat(|| number.set(0))
}

/// Calls `each` until it says that it has seen enough.
extern "C" fn for_each_function(_context: Handle, module: Handle, each: EachFunction, opaque: *mut c_void) -> CuResult {
    /// No `CUresult`, but that all went well.
    const DONE: CuResult = CuResult(1);
    flat(|| {
        let session = session::get()?;
        let each = each.ok_or(CuResult::INVALID_VALUE)?;
        let library = session.libraries.get(module).ok_or(CuResult::INVALID_HANDLE)?;
        for kernel in &library.loaded(&session.device)?.description.kernels {
            if call(each, opaque, session.kernel(&library, &kernel.name)?, module) == 0 {
                break;
            }
        }
        Err(DONE)
    })
}

fn call(
    each: unsafe extern "C" fn(*mut c_void, Handle, Handle) -> u32,
    opaque: *mut c_void,
    function: Handle,
    owner: Handle,
) -> u32 {
    // SAFETY: the library gave this function to be called so.
    unsafe { each(opaque, function, owner) }
}
