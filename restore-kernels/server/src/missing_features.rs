//! What a process's kernels lack on an OpenCL device. Other devices run all that there is PTX for.
//!
//! What a kernel needs of an OpenCL device shows when OpenCL C is generated for it: for one that is stopped, from where
//! its threads stand ([`crate::generate`] does the same).

use std::collections::BTreeSet;

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{self, OpenClOptions};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};
use hetckpt_ring::question::Lacking;
use hetckpt_state::kernel_run::KernelRun;
use hetckpt_state::process::ProcessState;
use hetckpt_state::queue::Work;

use crate::placeholder_addresses::addresses;

/// Where a kernel starts that has not been started.
const ENTRY: u32 = Kernel::ENTRY_POINT.0;

/// What the kernels of a process that are stopped, and with `others` all that it may launch, lack on a device that has
/// not got the features `lacks`.
#[must_use]
pub fn lacking(state: &ProcessState, lacks: &BTreeSet<&str>, others: bool) -> Lacking {
    let mut lacking = Lacking::default();
    look_at_stopped(state, lacks, &mut lacking);
    if others {
        look_at_others(state, lacks, &mut lacking);
    }
    lacking
}

fn look_at_stopped(state: &ProcessState, lacks: &BTreeSet<&str>, lacking: &mut Lacking) {
    let work = state.streams.iter().flat_map(|stream| &stream.work);
    for run in work.filter_map(|item| run_of(&item.work)) {
        let kernel = usize::try_from(run.probed_kernel)
            .ok()
            .and_then(|at| state.probed_kernels.get(at));
        let Some(probed) = kernel else { continue };
        // One that cannot be read is for the restore to refuse, which says why.
        let Ok(kernel) = hetckpt_ir::text::parse::kernel(&probed.text) else {
            continue;
        };
        if let Some(what) = missing(&from_where_it_stands(kernel, run), true, lacks) {
            lacking.stopped.insert(probed.name.clone(), what);
        }
    }
}

fn look_at_others(state: &ProcessState, lacks: &BTreeSet<&str>, lacking: &mut Lacking) {
    for text in state.modules.iter().flat_map(|module| &module.ptx) {
        let Ok(module) = hetckpt_ptx::lower_module(text) else {
            continue;
        };
        let addresses = addresses(&module);
        for mut kernel in module.kernels {
            let name = kernel.name.clone();
            if hetckpt_ir::module::bind_globals(&mut kernel, &addresses).is_err() {
                continue;
            }
            let Ok(probed) = hetckpt_probes::probe(&kernel, &Options::default()) else {
                continue;
            };
            if let Some(what) = missing(&Program::from_start(probed), false, lacks) {
                lacking.others.insert(name, what);
            }
        }
    }
}

fn run_of(work: &Work) -> Option<&KernelRun> {
    match work {
        Work::Resume(run) => Some(run),
        Work::Command { .. } | Work::AwaitHostFunction(_) => None,
    }
}

/// What the server has generated for the unfinished blocks of `run`.
fn from_where_it_stands(kernel: Kernel, run: &KernelRun) -> Program {
    let groups = run.stopped.iter().flat_map(|block| &block.groups);
    let mut points: BTreeSet<u32> = groups.map(|group| group.resume_point).collect();
    if run.num_not_started() > 0 {
        points.insert(ENTRY);
    }
    let points: Vec<ResumePointId> = points.into_iter().map(ResumePointId).collect();
    match opencl::stops(&kernel) {
        Stops::Blocks => Program::from_start(kernel),
        Stops::Threads => {
            continuation(&kernel, &points, Peel::None).unwrap_or_else(|_| Program::from_start(kernel.clone()))
        }
    }
}

/// What of `lacks` the program needs, in words.
fn missing(program: &Program, block_list: bool, lacks: &BTreeSet<&str>) -> Option<String> {
    let layout = ThreadStateLayout::new(&program.kernel);
    let options = OpenClOptions {
        block_list,
        ..OpenClOptions::default()
    };
    match opencl::generate(program, &layout, &options) {
        Err(error) => Some(error.to_string()),
        Ok(generated) => {
            let needed = generated.requires.names().into_iter();
            let missing: Vec<&str> = needed.filter(|name| lacks.contains(name)).collect();
            (!missing.is_empty()).then(|| format!("it lacks {}", missing.join(", ")))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const DOUBLES: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry doubles(.param .u64 out)
{
.reg .b64 %rd<2>;
.reg .f64 %fd<2>;
ld.param.u64 %rd1, [out];
ld.global.f64 %fd1, [%rd1];
add.rn.f64 %fd1, %fd1, 0d3FF0000000000000;
st.global.f64 [%rd1], %fd1;
ret;
}

";

    #[test]
    fn a_kernel_needs_what_it_is_computed_with() {
        let module = hetckpt_ptx::lower_module(DOUBLES).unwrap();
        let probed = hetckpt_probes::probe(&module.kernels[0], &Options::default()).unwrap();
        let program = Program::from_start(probed);
        let all = missing(
            &program,
            false,
            &BTreeSet::from(["cl_khr_fp64", "subnormal numbers of type float"]),
        );
        assert_eq!(all.as_deref(), Some("it lacks cl_khr_fp64"));
        assert_eq!(
            missing(&program, false, &BTreeSet::from(["cl_khr_int64_base_atomics"])),
            None
        );
    }
}
