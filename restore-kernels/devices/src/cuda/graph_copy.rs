//! One copy of a graph of launches that can stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::CudaInner;
use super::driver::Result;
use super::executable::Executable;
use super::handles::Stream;
use super::launch::{Launched, Plan};

/// Launches, each with a control block.
pub(super) struct GraphCopy {
    pub launches: Vec<Launched>,
    /// `None`: they are given one by one, once.
    executable: Option<Executable>,
    is_on_device: AtomicBool,
    device: Arc<CudaInner>,
}

impl GraphCopy {
    /// Launches that are on the device one by one. `take_control` gives a control block to each.
    pub fn new(
        device: &Arc<CudaInner>,
        plans: Vec<Plan>,
        mut take_control: impl FnMut() -> Result<u64>,
    ) -> Result<Self> {
        let mut copy = Self {
            launches: Vec::with_capacity(plans.len()),
            executable: None,
            is_on_device: AtomicBool::new(true),
            device: Arc::clone(device),
        };
        for plan in plans {
            let (control, words) = (take_control()?, plan.words(0));
            copy.launches.push(Launched { plan, control, words });
        }
        Ok(copy)
    }

    /// From now on the device has them as one.
    pub fn make_executable(&mut self) -> Result<()> {
        let give = |stream: &Stream| self.launches.iter().try_for_each(|launched| launched.start(stream));
        self.executable = Some(Executable::new(&self.device.context, give)?);
        self.is_on_device = AtomicBool::new(false);
        Ok(())
    }

    pub fn start(&self, stream: &Stream) -> Result<()> {
        match &self.executable {
            Some(executable) => executable.launch(stream),
            None => self.launches.iter().try_for_each(|launched| launched.start(stream)),
        }
    }

    /// True if the device has them one by one.
    pub fn is_one_by_one(&self) -> bool {
        self.executable.is_none()
    }

    /// True if it was not on the device; now it is to be.
    pub fn take(&self) -> bool {
        !self.is_on_device.swap(true, Ordering::Acquire)
    }

    /// It is not on the device any more.
    pub fn give_back(&self) {
        self.is_on_device.store(false, Ordering::Release);
    }
}

impl Drop for GraphCopy {
    fn drop(&mut self) {
        // Without a context the driver has freed it.
        let _ = self.device.context.enter();
        self.executable = None;
        let controls = self.launches.iter().map(|launched| launched.control);
        self.device.returned_controls.lock().extend(controls);
    }
}
