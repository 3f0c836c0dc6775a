//! `cuGetProcAddress`: names and versions to entry points.
//!
//! # What is not implemented
//! Programs look whether they get a function in order to know whether there is one, so they get none. The CUDA runtime
//! looks for all there are when it starts, and never again: for one that it has not got, each call of its own that
//! needs it fails with "needs a newer driver", and nobody learns which. So the runtime gets a function that says its
//! name and fails with `CUDA_ERROR_NOT_SUPPORTED`. It is known by asking without a place for the status (seen with 12.1
//! to 13.5). Functions for graphics are left out.

use std::collections::HashMap;
use std::ffi::c_void;

use crate::log;

/// An entry point's address.
#[derive(Clone, Copy, Debug)]
pub struct Pointer(pub *const c_void);

// SAFETY: points to code.
#[allow(unsafe_code, reason = "a pointer to code may be shared")]
unsafe impl Sync for Pointer {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a pointer to code may be shared")]
unsafe impl Send for Pointer {}

/// One signature of one function.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name without version suffix.
    pub name: &'static str,
    /// CUDA version that introduced the signature.
    pub version: u32,
    /// True if stream 0 means the thread's own default stream.
    pub is_per_thread: bool,
    /// The function.
    pub pointer: Pointer,
}

/// What a look-up finds.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// The function.
    Pointer(*const c_void),
    /// The function is there, but only in versions newer than asked for.
    TooNew,
    /// No such function here.
    Unknown,
}

/// Who looks for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The CUDA runtime, as it starts.
    Runtime,
    /// The program, which goes by what it gets.
    Program,
}

/// All functions by name.
#[derive(Debug)]
pub struct Table {
    by_name: HashMap<&'static str, Vec<&'static Entry>>,
    /// What the CUDA runtime gets for functions that are not implemented.
    stubs: HashMap<&'static str, Pointer>,
}

impl Table {
    /// The functions of `lists`, and of `stubs` those that have to do with no graphics.
    pub fn new(lists: &'static [&'static [Entry]], stubs: &[(&'static str, Pointer)]) -> Self {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for entry in lists.iter().copied().flatten() {
            by_name.entry(entry.name).or_default().push(entry);
        }
        let is_graphics = |name: &str| {
            ["cuGraphics", "cuGL", "cuEGL", "cuVDPAU"]
                .iter()
                .any(|p| name.starts_with(p))
        };
        let stubs = stubs.iter().copied().filter(|(name, _)| !is_graphics(name)).collect();
        Self { by_name, stubs }
    }

    /// The newest signature of `name` that is not newer than `version`, or what stands in for it.
    pub fn find_for(&self, asker: Asker, name: &str, version: u32, wants_per_thread: bool) -> Found {
        match (self.find(name, version, wants_per_thread), asker) {
            (Found::Unknown, Asker::Runtime) => {
                log::looked_for(name);
                self.stubs
                    .get(name)
                    .map_or(Found::Unknown, |stub| Found::Pointer(stub.0))
            }
            (Found::Unknown, Asker::Program) => {
                log::not_found(name);
                Found::Unknown
            }
            (found, _) => found,
        }
    }

    /// The newest signature of `name` that is not newer than `version`.
    fn find(&self, name: &str, version: u32, wants_per_thread: bool) -> Found {
        let Some(all) = self.by_name.get(name) else {
            return Found::Unknown;
        };
        let has_per_thread = all.iter().any(|entry| entry.is_per_thread);
        let suits =
            |entry: &&&Entry| entry.version <= version && entry.is_per_thread == (wants_per_thread && has_per_thread);
        match all.iter().filter(suits).max_by_key(|entry| entry.version) {
            Some(entry) => Found::Pointer(entry.pointer.0),
            None => Found::TooNew,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::*;
    use crate::api::{ENTRY_LISTS, TABLE};

    fn pointer(name: &str, version: u32, per_thread: bool) -> *const c_void {
        match TABLE.find(name, version, per_thread) {
            Found::Pointer(pointer) => pointer,
            other => panic!("{name} {version}: {other:?}"),
        }
    }

    #[test]
    fn knows_what_runs_a_vector_add() {
        for (name, version) in [
            ("cuInit", 2000),
            ("cuGetProcAddress", 11030),
            ("cuGetProcAddress", 12000),
            ("cuDriverGetVersion", 2020),
            ("cuGetExportTable", 3000),
            ("cuDeviceGetCount", 2000),
            ("cuDeviceGet", 2000),
            ("cuDeviceGetName", 2000),
            ("cuDeviceTotalMem", 3020),
            ("cuDeviceGetAttribute", 2000),
            ("cuDeviceGetUuid", 9020),
            ("cuDevicePrimaryCtxRetain", 7000),
            ("cuCtxGetCurrent", 4000),
            ("cuCtxSetCurrent", 4000),
            ("cuCtxGetDevice", 2000),
            ("cuCtxGetDevice", 13000),
            ("cuCtxSynchronize", 2000),
            ("cuCtxSynchronize", 13000),
            ("cuMemAlloc", 3020),
            ("cuMemFree", 3020),
            ("cuMemcpyHtoD", 3020),
            ("cuMemcpyDtoH", 3020),
            ("cuLibraryLoadData", 12000),
            ("cuLibraryGetKernel", 12000),
            ("cuLaunchKernel", 4000),
            ("cuModuleGetLoadingMode", 11070),
            ("cuCtxPushCurrent", 4000),
            ("cuCtxPopCurrent", 4000),
            ("cuLibraryGetModule", 12000),
            ("cuModuleGetFunction", 2000),
            ("cuEventElapsedTime", 2000),
            ("cuEventElapsedTime", 12080),
            ("cuDevicePrimaryCtxReset", 7000),
            ("cuDevicePrimaryCtxRelease", 7000),
        ] {
            assert!(!pointer(name, version, false).is_null());
        }
    }

    #[test]
    fn versions_and_default_streams_lead_to_different_functions() {
        assert_ne!(
            pointer("cuGetProcAddress", 11030, false),
            pointer("cuGetProcAddress", 12000, false)
        );
        assert_ne!(
            pointer("cuCtxSynchronize", 12000, false),
            pointer("cuCtxSynchronize", 13000, false)
        );
        assert_ne!(
            pointer("cuLaunchKernel", 7000, false),
            pointer("cuLaunchKernel", 7000, true)
        );
        assert_eq!(pointer("cuMemAlloc", 12000, false), pointer("cuMemAlloc", 12000, true));
    }

    #[test]
    fn tells_unknown_from_too_new() {
        assert!(matches!(TABLE.find("cuNoSuchThing", 13000, false), Found::Unknown));
        assert!(matches!(TABLE.find("cuLibraryLoadData", 11000, false), Found::TooNew));
    }

    #[test]
    fn only_the_runtime_gets_a_function_that_says_what_is_missing() {
        for name in [
            "cuMemPrefetchBatchAsync",
            "cuMulticastCreate",
            "cuTexRefCreate",
            "cuGraphDebugDotPrint",
        ] {
            assert!(
                matches!(TABLE.find_for(Asker::Program, name, 13000, false), Found::Unknown),
                "{name}"
            );
            let Found::Pointer(stub) = TABLE.find_for(Asker::Runtime, name, 13000, false) else {
                panic!("{name}");
            };
            assert!(!stub.is_null());
        }
        for name in ["cuGraphicsMapResources", "cuNoSuchThing"] {
            assert!(
                matches!(TABLE.find_for(Asker::Runtime, name, 13000, false), Found::Unknown),
                "{name}"
            );
        }
    }

    #[test]
    fn no_signature_is_listed_twice() {
        let mut seen = std::collections::HashSet::new();
        for entry in ENTRY_LISTS.iter().copied().flatten() {
            assert!(
                seen.insert((entry.name, entry.version, entry.is_per_thread)),
                "{entry:?}"
            );
        }
    }
}
