//! From a probed kernel to something a device can load.

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{self, OpenClOptions};
use hetckpt_codegen::ptx::{self, PtxOptions, generate};
use hetckpt_devices::device::{Code, LoadRequest};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_resegment::continuation::{self, Peel, continuation};

use crate::start_points::StartPoints;

/// Which code a device takes.
#[derive(Clone, Copy, Debug)]
pub enum Generator {
    /// hetIR, compiled by the CPU device.
    Cpu,
    /// PTX.
    Ptx(PtxOptions),
    /// OpenCL C.
    OpenCl(OpenClOptions),
}

/// Where threads of a program start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start<'a> {
    /// The whole grid at the kernel's entry.
    Whole,
    /// Listed blocks at these resume points, ascending.
    Listed(&'a StartPoints),
}

/// Why there is no code for a kernel.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// Its resume points are not those asked for (the state's fault, or a bug in us).
    #[error(transparent)]
    Continuation(#[from] continuation::Error),
    /// It cannot be written as PTX.
    #[error(transparent)]
    Ptx(#[from] ptx::Error),
    /// Lanes that were stopped apart would go on apart.
    #[error(
        "it counts on a warp's lanes running in step, and the CPU or an OpenCL device has stopped them apart; a GPU would \
         let them go on apart, so go on with it on a CPU or an OpenCL device"
    )]
    PartedWarps,
    /// It cannot be written as OpenCL C.
    #[error(transparent)]
    OpenCl(#[from] opencl::Error),
}

impl Generator {
    /// True if its code stops threads that are in step so that they stay in step ([`crate::start_points`]).
    #[must_use]
    pub fn keeps_in_step(self) -> bool {
        matches!(self, Self::Ptx(_))
    }

    /// True if its code stops at barriers of any number and for any part of a block.
    #[must_use]
    pub fn stops_at_partial_barriers(self) -> bool {
        matches!(self, Self::Cpu)
    }

    /// True if what it generates for listed blocks starts them at any resume point.
    fn starts_anywhere(self, kernel: &Kernel) -> bool {
        matches!(self, Self::OpenCl(_)) && opencl::stops(kernel) == Stops::Blocks
    }

    /// True if what is generated for blocks that start at `built` does for those that start at `wanted`. Elsewhere than
    /// in OpenCL C fewer points, and threads in step, make better code.
    #[must_use]
    pub fn serves(self, kernel: &Kernel, built: &StartPoints, wanted: &StartPoints) -> bool {
        let has_all = || wanted.points.iter().all(|point| built.points.contains(point));
        matches!(self, Self::OpenCl(_)) && (self.starts_anywhere(kernel) || has_all())
    }

    /// What a device is asked to load so that `kernel` starts as `start` says.
    ///
    /// # Errors
    /// [`RequestError`]: the kernel has no code for this target, or the resume points are not its own.
    pub fn request(
        self,
        kernel: &Kernel,
        layout: &ThreadStateLayout,
        start: Start<'_>,
    ) -> Result<LoadRequest, RequestError> {
        let (has_barrier, has_warp_op) = (kernel.has_barrier(), kernel.has_warp_op());
        if let (Self::Ptx(_), Start::Listed(StartPoints { parts_warps: true, .. })) = (self, start) {
            return Err(RequestError::PartedWarps);
        }
        let block_list = matches!(start, Start::Listed(_));
        let starts_anywhere = block_list && self.starts_anywhere(kernel);
        let program = match start {
            Start::Whole => Program::from_start(kernel.clone()),
            Start::Listed(_) if starts_anywhere => Program::from_start(kernel.clone()),
            Start::Listed(start) => {
                let points: Vec<ResumePointId> = start.points.iter().map(|&p| ResumePointId(p)).collect();
                // Jumping into loops is fine for LLVM and where all lanes must meet at the same instruction; else the
                // driver's compiler likes reducible control flow better.
                let peel = match self {
                    Self::Ptx(_) if !has_barrier && !has_warp_op => Peel::Loops,
                    // OpenCL C has a copy of the code for each resume point anyway.
                    Self::Ptx(_) | Self::Cpu | Self::OpenCl(_) => Peel::None,
                };
                continuation(kernel, &points, peel)?
            }
        };
        let entries: Vec<(u32, u32)> = if starts_anywhere {
            let points = (0u32..).zip(&kernel.resume_points);
            points.map(|(point, at)| (point, at.block.0)).collect()
        } else {
            program
                .entries
                .iter()
                .map(|&(point, block)| (point.0, block.0))
                .collect()
        };
        let code = match self {
            Self::Cpu => Code::HetIr {
                text: hetckpt_ir::text::print::kernel(&program.kernel),
                entries: entries.clone(),
            },
            Self::Ptx(options) => {
                let in_step = match start {
                    Start::Whole => true,
                    Start::Listed(start) => start.in_step,
                };
                let options = PtxOptions {
                    block_list,
                    in_step,
                    ..options
                };
                Code::Ptx(generate(&program, layout, &options)?.text)
            }
            Self::OpenCl(options) => {
                let options = OpenClOptions { block_list, ..options };
                Code::OpenClC(opencl::generate(&program, layout, &options)?)
            }
        };
        Ok(LoadRequest {
            name: kernel.name.clone(),
            code,
            entries: entries.iter().map(|&(point, _)| point).collect(),
            layout: layout.clone(),
            param_bytes: kernel.param_bytes(),
            params: kernel.params.iter().map(|p| (p.offset, p.size_bytes)).collect(),
            static_shared_bytes: kernel.shared.static_bytes,
            local_bytes: kernel.local.size_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn code_for_more_points_serves_fewer_where_there_is_a_copy_for_each() {
        let text = "kernel \"k\" {\nbb0:\n  exit\n}\n";
        let kernel = hetckpt_ir::text::parse::kernel(text).unwrap();
        let points = |points: &[u32]| StartPoints {
            points: points.to_vec(),
            in_step: true,
            parts_warps: false,
        };
        let opencl = Generator::OpenCl(OpenClOptions::default());
        assert!(opencl.serves(&kernel, &points(&[0, 1, 4]), &points(&[0, 4])));
        assert!(!opencl.serves(&kernel, &points(&[0, 1]), &points(&[1, 4])));
        assert!(!Generator::Cpu.serves(&kernel, &points(&[0, 1]), &points(&[1])));
    }

    #[test]
    fn code_with_barriers_serves_all_points() {
        let text = "kernel \"k\" {\nbb0:\n  barrier 0 next bb1\nbb1:\n  exit\n}\n";
        let kernel = hetckpt_ir::text::parse::kernel(text).unwrap();
        let points = |point| StartPoints {
            points: vec![point],
            in_step: false,
            parts_warps: false,
        };
        let opencl = Generator::OpenCl(OpenClOptions::default());
        assert!(opencl.serves(&kernel, &points(1), &points(2)));
    }
}
