//! Launches of one kernel whose grids differ, for runtimes that mix them up.
//!
//! PoCL 4.0 and 5.0 keep a kernel's code by its block and by how wide the grid may be, but give it back by the block
//! alone. Where two launches of different width are under way, in two queues, they come to fail an assertion
//! (`pocl_release_dlhandle_cache`), which ends the process. There such launches wait for one another. Kernels are the
//! same to them whose programs have the same text: one that was loaded twice is one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use opencl3::device::{CL_DEVICE_VERSION, CL_DRIVER_VERSION};
use parking_lot::Mutex;

use super::handles::{DeviceId, Event};

/// True if the device's runtime is such a one.
pub(super) fn are_mixed_up(device: DeviceId) -> bool {
    is_such(&device.text(CL_DEVICE_VERSION), &device.text(CL_DRIVER_VERSION))
}

fn is_such(device_version: &str, driver_version: &str) -> bool {
    let is_pocl = device_version.to_ascii_lowercase().contains("pocl");
    is_pocl && ["4.", "5."].iter().any(|major| driver_version.starts_with(major))
}

/// Sizes of a launch, as OpenCL has them: work-items of all, and of a work-group.
type Shape = ([usize; 3], [usize; 3]);

/// Launches under way of each program that is loaded, by the hash of its text.
#[derive(Default)]
pub(super) struct Programs(Mutex<HashMap<blake3::Hash, Weak<Mutex<UnderWay>>>>);

impl Programs {
    /// Those of the program with this text. Whoever has a launch of it under way holds them.
    pub fn under_way(&self, text: &str) -> Arc<Mutex<UnderWay>> {
        let mut all = self.0.lock();
        all.retain(|_, launches| launches.strong_count() > 0);
        let key = blake3::hash(text.as_bytes());
        let found = all.get(&key).and_then(Weak::upgrade);
        found.unwrap_or_else(|| {
            let launches = Arc::default();
            all.insert(key, Arc::downgrade(&launches));
            launches
        })
    }
}

/// Launches of one program that may be under way.
#[derive(Default)]
pub(super) struct UnderWay(Vec<(Shape, Arc<Event>)>);

impl UnderWay {
    /// Those that a launch of this shape has to come behind.
    pub fn before(&mut self, (global, local): Shape) -> Vec<Arc<Event>> {
        self.0.retain(|(_, end)| !end.is_over());
        let others = self.0.iter().filter(|(shape, _)| shape.1 == local && shape.0 != global);
        others.map(|(_, end)| end.clone()).collect()
    }

    /// Notes one that was launched.
    pub fn note(&mut self, shape: Shape, end: Arc<Event>) {
        self.0.push((shape, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_their_versions() {
        let pocl = "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-skylake-avx512";
        for (device, driver, is_one) in [
            (pocl, "5.0+debian", true),
            (pocl, "4.0", true),
            (pocl, "3.1+debian", false),
            (pocl, "6.0", false),
            ("OpenCL 3.0 pocl HSTR", "5.0", true),
            ("OpenCL 3.0 CUDA", "580.159.04", false),
            ("OpenCL 3.0 (Build 0)", "5.2", false),
        ] {
            assert_eq!(is_such(device, driver), is_one, "{device}, {driver}");
        }
    }
}
