//! A launch that can stop: what it takes, whether the device has that, and giving it to the driver.
#![allow(unsafe_code, reason = "driver FFI")]

use std::ffi::c_void;
use std::sync::Arc;

use hetckpt_abi::paused_block::PausedGrid;

use super::CudaInner;
use super::driver::{self, DriverError, Shape};
use super::handles::Stream;
use super::module::{CudaKernel, LoadedCuda};
use crate::control::{BlockShape, ControlWords};
use crate::device::{Blocks, Launch};
use crate::error::DeviceError;

/// In place of a control block's address: the launch does not ask whether to stop.
pub(super) const NO_CONTROL: u64 = 0;

/// A launch, looked at and found possible.
pub(super) struct Plan {
    pub kernel: Arc<CudaKernel>,
    pub shape: BlockShape,
    /// What it goes on with, if it does.
    pub given: Option<Arc<PausedGrid>>,
    /// Blocks launched.
    pub num_blocks: u64,
    /// Blocks of it that can be on the device at once.
    pub max_resident: u64,
    /// The grid as the program sees it.
    pub whole_grid: [u32; 3],
    /// As the driver takes it: a continuation has its blocks in a row.
    driver_shape: Shape,
    params: Arc<[u8]>,
}

impl Plan {
    /// Looks at a launch of a kernel of `device`.
    ///
    /// # Errors
    /// [`DeviceError::Launch`].
    pub fn new(device: &CudaInner, launch: &Launch) -> Result<Self, DeviceError> {
        let kernel = own_kernel(launch)?;
        let request = &kernel.request;
        let refused = |reason: String| refusal(&request.name, reason);
        let product = |d: [u32; 3]| d.iter().map(|&n| u64::from(n)).product::<u64>();
        let (threads, all_blocks) = (product(launch.shape.block), product(launch.shape.grid));
        let shared = u64::from(request.static_shared_bytes) + u64::from(launch.shape.dynamic_shared_bytes);
        let limits = &device.limits;
        let max = limits.max_threads_per_block;
        let Some(threads) = u32::try_from(threads).ok().filter(|n| (1..=max).contains(n)) else {
            return Err(refused(format!("{threads} threads a block; the device has 1 to {max}")));
        };
        let max = limits.max_shared_bytes;
        let Some(shared_bytes) = u32::try_from(shared).ok().filter(|&n| n <= max) else {
            return Err(refused(format!(
                "{shared} bytes of shared memory a block; the device has {max}"
            )));
        };
        let shape = BlockShape {
            threads,
            bytes_per_thread: request.layout.bytes_per_thread,
            shared_bytes,
            local_bytes: request.local_bytes,
        };
        let given = given_blocks(&kernel, &launch.blocks, all_blocks).map_err(|e| refused(e.to_string()))?;
        let num_blocks = given
            .as_ref()
            .map_or(all_blocks, |g| g.paused.len() as u64 + g.num_not_started());
        let grid = match (&given, i32::try_from(num_blocks)) {
            (None, _) => launch.shape.grid,
            (Some(_), Ok(listed)) => [listed.cast_unsigned(), 1, 1],
            (Some(_), Err(_)) => {
                return Err(refused(format!(
                    "{num_blocks} blocks to go on with are more than a launch can have"
                )));
            }
        };
        if let Some(block) = given.iter().flat_map(|g| &g.paused).find(|block| !shape.fits(block)) {
            return Err(refused(format!(
                "the state of block {} is not of this launch's shape",
                block.block
            )));
        }
        let per_multiprocessor = kernel
            .prepare(shape.threads, shape.shared_bytes)
            .map_err(|e| refused(e.to_string()))?;
        let max_resident = u64::from(per_multiprocessor) * u64::from(limits.num_multiprocessors);
        if launch.shape.cooperative && num_blocks > max_resident {
            return Err(refused(format!(
                "{num_blocks} blocks that wait for one another; the device has room for {max_resident}"
            )));
        }
        let driver_shape = Shape {
            grid,
            block: launch.shape.block,
            shared_bytes,
            cooperative: launch.shape.cooperative,
            cluster: [0; 3],
        };
        Ok(Self {
            shape,
            given,
            num_blocks,
            max_resident: max_resident.min(num_blocks),
            whole_grid: launch.shape.grid,
            driver_shape,
            params: Arc::clone(&launch.params),
            kernel,
        })
    }

    /// The same for one that ends soon, which can be started with [`NO_CONTROL`].
    ///
    /// # Errors
    /// [`DeviceError::Launch`].
    pub fn to_end(device: &CudaInner, launch: &Launch) -> Result<Self, DeviceError> {
        let plan = Self::new(device, launch)?;
        if plan.given.is_none() && launch.kernel.ends_soon(&launch.shape) {
            return Ok(plan);
        }
        Err(refusal(
            &plan.kernel.request.name,
            "a pause would have to stop it".to_owned(),
        ))
    }

    /// All of it.
    pub fn left(&self) -> PausedGrid {
        let all = || PausedGrid {
            paused: vec![],
            not_started: vec![(0, self.num_blocks)],
        };
        self.given.as_deref().map_or_else(all, PausedGrid::clone)
    }

    /// What its control block says until a pause comes.
    pub fn words(&self, resumed_blocks: u64) -> ControlWords {
        ControlWords {
            resumed_blocks,
            grid: self.whole_grid,
            ..ControlWords::default()
        }
    }

    /// What gives it to a stream, with this control block.
    pub fn starter(&self, control: u64) -> impl FnOnce(&Stream) -> Result<(), DriverError> + Send + use<> {
        let (kernel, shape, params) = (Arc::clone(&self.kernel), self.driver_shape, Arc::clone(&self.params));
        move |stream| start(stream, &kernel, &shape, &params, control)
    }

    /// The words of device memory that tell what a pause leaves of each block.
    pub fn num_list_words(&self) -> u64 {
        self.num_blocks * (1 + u64::from(self.shape.entry_words()))
    }
}

/// A launch that the device has or can be given.
pub(super) struct Launched {
    pub plan: Plan,
    /// Address of its control block, and what it says before a pause.
    pub control: u64,
    pub words: ControlWords,
}

impl Launched {
    /// Gives it to a stream.
    pub fn start(&self, stream: &Stream) -> Result<(), DriverError> {
        self.plan.starter(self.control)(stream)
    }
}

fn start(stream: &Stream, kernel: &CudaKernel, shape: &Shape, params: &[u8], control: u64) -> Result<(), DriverError> {
    let end = kernel
        .request
        .params
        .iter()
        .map(|&(offset, size)| u64::from(offset) + u64::from(size))
        .max();
    if end.unwrap_or(0) > params.len() as u64 {
        return Err(DriverError {
            call: "cuLaunchKernel",
            code: driver::INVALID_VALUE,
        });
    }
    let mut pointers: Vec<*mut c_void> = kernel
        .request
        .params
        .iter()
        .map(|&(offset, _)| params[offset as usize..].as_ptr().cast_mut().cast())
        .collect();
    if !kernel.request.layout.live.is_empty() {
        pointers.push((&raw const control).cast_mut().cast());
    }
    // SAFETY: one pointer for each parameter, into a buffer that holds all of it, then one to the control block's
    // address; the driver copies them before it returns.
    unsafe { driver::cuLaunchKernel(kernel.function(), shape, stream.0, &mut pointers) }
}

/// A launch is to go on with some blocks, and its program starts all of the grid (a bug in the caller).
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the program was not generated for a list of blocks")]
struct NotForLists;

/// What the launch goes on with; `None` if it runs the whole grid from the start.
fn given_blocks(kernel: &CudaKernel, blocks: &Blocks, all: u64) -> Result<Option<Arc<PausedGrid>>, NotForLists> {
    match (blocks, kernel.is_block_list) {
        (Blocks::All, false) => Ok(None),
        (Blocks::All, true) => Ok(Some(Arc::new(PausedGrid {
            paused: vec![],
            not_started: vec![(0, all)],
        }))),
        (Blocks::Rest(rest), true) => Ok(Some(rest.clone())),
        (Blocks::Rest(rest), false) if rest.paused.is_empty() && rest.num_not_started() == all => Ok(None),
        (Blocks::Rest(_), false) => Err(NotForLists),
    }
}

fn own_kernel(launch: &Launch) -> Result<Arc<CudaKernel>, DeviceError> {
    let loaded = launch.kernel.as_any().downcast_ref::<LoadedCuda>();
    loaded
        .map(|l| l.0.clone())
        .ok_or_else(|| refusal("?", "it was loaded on another device".into()))
}

pub(super) fn refusal(kernel: &str, reason: String) -> DeviceError {
    DeviceError::Launch {
        kernel: kernel.to_owned(),
        reason,
    }
}
