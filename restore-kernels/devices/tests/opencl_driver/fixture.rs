//! A device under test, and short words for what tests do with it.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{Blocks, DEVICE_BASE, Device, GRANULARITY, Launch, LoadedKernel, Outcome};
use hetckpt_devices::error::DeviceError;
use hetckpt_devices::opencl::{OpenClDevice, OpenClOptions, list};

/// Device memory has one place in a process, so only one device can have it.
static ADDRESSES: Mutex<()> = Mutex::new(());

/// Where tests put their results: across the end of the first buffer, where a buffer has [`GRANULARITY`] bytes.
pub const OUT: u64 = DEVICE_BASE + GRANULARITY - 64;

/// An open device, alone in the process.
pub struct Bench {
    pub device: OpenClDevice,
    /// True if a pause stops running kernels for sure. A device of the host's processor that is made to share no memory
    /// may see the request only when a kernel has ended.
    pub stops_surely: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Runs `test` on the device as it is, and as one that shares no memory with the host, in one buffer and in several.
pub fn on_devices(test: impl Fn(&Bench)) {
    on_devices_with(&OpenClOptions::default(), test);
}

pub fn on_devices_with(options: &OpenClOptions, test: impl Fn(&Bench)) {
    let wanted = std::env::var("HETCKPT_TEST_OPENCL").unwrap_or_default();
    let (platform, device) = wanted.split_once(':').unwrap_or(("0", "0"));
    if !list().is_ok_and(|listed| !listed.devices.is_empty()) {
        let is_required = std::env::var("HETCKPT_TEST_REQUIRE_OPENCL").is_ok_and(|value| value == "1");
        assert!(
            !is_required && wanted.is_empty(),
            "there is no OpenCL device {platform}:{device}"
        );
        eprintln!("skipped: no OpenCL device");
        return;
    }
    let mut can_share = false;
    for (force_separate, max_buffer_bytes) in [(false, None), (true, None), (true, Some(GRANULARITY))] {
        let options = OpenClOptions {
            force_separate,
            max_buffer_bytes: options.max_buffer_bytes.or(max_buffer_bytes),
            max_arena_bytes: options.max_arena_bytes.or(Some(256 << 20)),
            // One that is made to share no memory may let no write through while kernels run; tests of slices say so
            // themselves.
            sees_host_writes: options
                .sees_host_writes
                .or((can_share && force_separate).then_some(true)),
            ..options.clone()
        };
        let alone = ADDRESSES.lock();
        let (platform, device) = (platform.parse().unwrap(), device.parse().unwrap());
        let device = match OpenClDevice::open(platform, device, &options) {
            Ok(device) => device,
            // Its runtime needs the host's memory.
            Err(error @ DeviceError::Unusable { .. }) if can_share && force_separate => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        device.map(DEVICE_BASE, 4 * GRANULARITY).unwrap();
        can_share |= device.shares_memory();
        test(&Bench {
            stops_surely: device.sees_host_writes && !(force_separate && can_share),
            device,
            _alone: alone,
        });
    }
}

impl Bench {
    /// A launch of `blocks` blocks of `threads` threads, all of it.
    pub fn launch(&self, kernel: &Arc<dyn LoadedKernel>, blocks: u32, threads: u32, steps: u64) -> Launch {
        let params: Vec<u8> = [OUT, steps].iter().flat_map(|v| v.to_le_bytes()).collect();
        Launch {
            kernel: kernel.clone(),
            shape: LaunchShape::new([blocks, 1, 1], [threads, 1, 1]),
            params: params.into(),
            blocks: Blocks::All,
        }
    }

    /// The first `count` results.
    pub fn results(&self, count: u32) -> Vec<u64> {
        let mut bytes = vec![0; count as usize * 8];
        self.device.read(OUT, &mut bytes).unwrap();
        bytes
            .chunks_exact(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    /// Forgets the results.
    pub fn clear(&self, count: u32) {
        let byte = hetckpt_devices::device::Fill::U8(0xee);
        self.device.fill(OUT, 0, byte, u64::from(count) * 8, 1).unwrap();
    }
}

/// What is left of a launch; nothing if it has finished.
pub fn left(outcome: Outcome) -> PausedGrid {
    match outcome {
        Outcome::Finished => PausedGrid::default(),
        Outcome::Paused(left) => {
            assert!(!left.is_finished());
            left
        }
        Outcome::PausedSteps(_) => panic!("it is no graph"),
        Outcome::Failed(error) => panic!("{error}"),
    }
}

/// The rest of a launch.
pub fn rest(launch: &Launch, left: PausedGrid) -> Launch {
    Launch {
        blocks: Blocks::Rest(Arc::new(left)),
        ..launch.clone()
    }
}
