//! What the tables of `cuGetExportTable` are made of.
#![allow(unsafe_code, reason = "pointers to functions in statics")]

use std::ffi::c_void;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};
use crate::thread_state;

/// A slot: a function, or the table's size.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Slot(pub *const c_void);

// SAFETY: a slot is never written and points to code, or holds a number.
unsafe impl Sync for Slot {}

impl Slot {
    /// A function's slot.
    pub const fn function(function: *const c_void) -> Self {
        Self(function)
    }
}

/// Address of a table, or of anything else the runtime gets from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(pub *const c_void);

/// A table's first slot.
pub const fn size(bytes: usize) -> Slot {
    Slot(std::ptr::without_provenance(bytes))
}

/// The context, or the calling thread's for NULL.
pub fn or_current(context: Handle) -> Outcome<Handle> {
    match context {
        Handle::NULL => match thread_state::current_context() {
            Handle::NULL => Err(CuResult::INVALID_CONTEXT),
            current => Ok(current),
        },
        given => Ok(given),
    }
}

/// What every function of a table goes through.
pub fn flat(body: impl FnOnce() -> Outcome) -> CuResult {
    crate::guard::plain("an export table's function", |()| body())
}
