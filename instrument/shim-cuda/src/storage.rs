//! Values that the CUDA runtime keeps with each context (export table `c693336e`). Asked in nearly every runtime call.
#![allow(unsafe_code, reason = "calls the runtime's destructors")]

use std::collections::HashMap;
use std::ffi::c_void;

use parking_lot::RwLock;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

/// Called when a context goes: context, key, value.
pub type Destructor = Option<unsafe extern "C" fn(Handle, *mut c_void, *mut c_void)>;

#[derive(Clone, Copy, Debug)]
struct Value {
    value: usize,
    destructor: Destructor,
}

/// All values by context and key.
#[derive(Debug, Default)]
pub struct Storage {
    values: RwLock<HashMap<(u64, usize), Value>>,
}

impl Storage {
    /// Stores a value.
    pub fn put(&self, context: Handle, key: *mut c_void, value: *mut c_void, destructor: Destructor) {
        let value = Value {
            value: value.expose_provenance(),
            destructor,
        };
        self.values.write().insert((context.0, key.addr()), value);
    }

    /// The value.
    pub fn get(&self, context: Handle, key: *mut c_void) -> Outcome<*mut c_void> {
        let values = self.values.read();
        let found = values.get(&(context.0, key.addr())).ok_or(CuResult::INVALID_HANDLE)?;
        Ok(std::ptr::with_exposed_provenance_mut(found.value))
    }

    /// Forgets a value.
    pub fn delete(&self, context: Handle, key: *mut c_void) {
        self.values.write().remove(&(context.0, key.addr()));
    }

    /// Forgets all values of a context and calls their destructors.
    pub fn destroy(&self, context: Handle) {
        let mut gone = Vec::new();
        self.values.write().retain(|&(of, key), value| {
            if of == context.0 {
                gone.push((key, *value));
            }
            of != context.0
        });
        for (key, Value { value, destructor }) in gone {
            if let Some(destructor) = destructor {
                let pointer = std::ptr::with_exposed_provenance_mut;
                // SAFETY: the runtime registered this function for exactly this call; no lock of ours is held.
                unsafe { destructor(context, pointer(key), pointer(value)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn note(context: Handle, key: *mut c_void, value: *mut c_void) {
        SEEN.fetch_add(
            context.0 as usize * 10_000 + key.addr() * 100 + value.addr(),
            Ordering::SeqCst,
        );
    }

    #[test]
    fn keeps_values_by_context_and_runs_destructors() {
        let pointer = std::ptr::without_provenance_mut::<c_void>;
        let storage = Storage::default();
        storage.put(Handle(1), pointer(2), pointer(3), Some(note));
        storage.put(Handle(4), pointer(2), pointer(5), Some(note));
        assert_eq!(storage.get(Handle(1), pointer(2)).map(<*mut c_void>::addr), Ok(3));
        assert_eq!(storage.get(Handle(1), pointer(9)), Err(CuResult::INVALID_HANDLE));
        storage.destroy(Handle(1));
        assert_eq!(SEEN.load(Ordering::SeqCst), 10_203);
        assert_eq!(storage.get(Handle(1), pointer(2)), Err(CuResult::INVALID_HANDLE));
        assert_eq!(storage.get(Handle(4), pointer(2)).map(<*mut c_void>::addr), Ok(5));
    }
}
