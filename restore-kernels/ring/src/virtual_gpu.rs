//! What a program's virtual GPU is to claim where the device is no NVIDIA GPU.

use std::fmt;
use std::str::FromStr;

/// Variable that tells a device server a [`VirtualGpu`].
pub const VIRTUAL_GPU_ENV: &str = "HETCKPT_VIRTUAL_GPU";

/// A compute capability, and the limits that come with it.
///
/// # Source
/// CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualGpu {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Threads of a multiprocessor.
    pub threads: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_bytes: u32,
    /// Shared memory that a block can have if it asks, bytes.
    pub block_shared_bytes: u32,
}

const fn gpu(major: u32, minor: u32, threads: u32, blocks: u32, shared_kib: u32, block_shared_kib: u32) -> VirtualGpu {
    VirtualGpu {
        major,
        minor,
        threads,
        blocks,
        shared_bytes: shared_kib << 10,
        block_shared_bytes: block_shared_kib << 10,
    }
}

impl VirtualGpu {
    /// Those that can be claimed, by number.
    pub const ALL: [Self; 9] = [
        gpu(7, 5, 1024, 16, 64, 64),
        gpu(8, 0, 2048, 32, 164, 163),
        gpu(8, 6, 1536, 16, 100, 99),
        gpu(8, 9, 1536, 24, 100, 99),
        Self::HOPPER,
        gpu(10, 0, 2048, 32, 228, 227),
        gpu(10, 3, 2048, 32, 228, 227),
        gpu(12, 0, 1536, 24, 100, 99),
        gpu(12, 1, 1536, 24, 100, 99),
    ];

    /// An H100's, and the one that is claimed if nobody says.
    pub const HOPPER: Self = gpu(9, 0, 2048, 32, 228, 227);
}

impl Default for VirtualGpu {
    fn default() -> Self {
        Self::HOPPER
    }
}

impl fmt::Display for VirtualGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// No virtual GPU claims this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchGpu;

impl fmt::Display for NoSuchGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = VirtualGpu::ALL.map(|gpu| gpu.to_string());
        write!(f, "a compute capability is expected: {}", all.join(", "))
    }
}

impl std::error::Error for NoSuchGpu {}

impl FromStr for VirtualGpu {
    type Err = NoSuchGpu;

    fn from_str(text: &str) -> Result<Self, NoSuchGpu> {
        let found = Self::ALL.into_iter().find(|gpu| gpu.to_string() == text);
        found.ok_or(NoSuchGpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        for gpu in VirtualGpu::ALL {
            assert_eq!(gpu.to_string().parse(), Ok(gpu));
        }
        assert_eq!(VirtualGpu::default().to_string(), "9.0");
        for text in ["", "9", "90", "9.1", "9.0 ", "sm_90"] {
            assert_eq!(text.parse::<VirtualGpu>(), Err(NoSuchGpu));
        }
        assert!(NoSuchGpu.to_string().contains("12.1"));
    }
}
