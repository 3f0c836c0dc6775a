//! Handles: opaque numbers that stand for objects. A number the library never gave out is told from a good one by
//! looking it up, so that a program's mistake is a `CUDA_ERROR_INVALID_HANDLE` and nothing worse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// A handle as the program holds it (`CUstream`, `CUmodule`, …); pointer-sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Handle(pub u64);

impl Handle {
    /// NULL.
    pub const NULL: Self = Self(0);
}

/// Objects of one kind by handle.
#[derive(Debug)]
pub struct Registry<T> {
    kind: u64,
    next: AtomicU64,
    objects: RwLock<FxHashMap<u64, Arc<T>>>,
}

impl<T> Registry<T> {
    /// An empty registry; `kind` keeps the handles of different registries apart.
    pub fn new(kind: u64) -> Self {
        Self {
            kind,
            next: AtomicU64::new(1),
            objects: RwLock::default(),
        }
    }

    /// Adds an object.
    pub fn insert(&self, object: Arc<T>) -> Handle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = 0x6800_0000_0000 | (self.kind << 36) | (number << 4);
        self.objects.write().insert(handle, object);
        Handle(handle)
    }

    /// The object.
    pub fn get(&self, handle: Handle) -> Option<Arc<T>> {
        self.objects.read().get(&handle.0).cloned()
    }

    /// The handle of an object.
    pub fn find(&self, object: &Arc<T>) -> Option<Handle> {
        let objects = self.objects.read();
        objects
            .iter()
            .find(|(_, known)| Arc::ptr_eq(known, object))
            .map(|(&handle, _)| Handle(handle))
    }

    /// Takes the object out.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.objects.write().remove(&handle.0)
    }

    /// Looks at all objects.
    pub fn for_each(&self, mut look: impl FnMut(&T)) {
        self.objects.read().values().for_each(|object| look(object));
    }

    /// Takes out all objects that are not wanted any more.
    pub fn retain(&self, mut wanted: impl FnMut(&T) -> bool) {
        self.objects.write().retain(|_, object| wanted(object));
    }
}
