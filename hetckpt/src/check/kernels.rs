//! Can an OpenCL device run the program's kernels?
//!
//! Other devices run all that there is PTX for. What a kernel needs of an OpenCL device shows when OpenCL C is generated for it, as the device
//! server does (`restore-kernels/server/src/generate.rs`): for one that is stopped, from where its threads stand.

use std::collections::{BTreeMap, BTreeSet};

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{self, OpenClOptions};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};
use hetckpt_state::kernel_run::KernelRun;
use hetckpt_state::process::ProcessState;
use hetckpt_state::queue::Work;
use serde_json::Value;

use crate::finding::{self, Finding};
use crate::module_addresses::addresses;

const CHECK: &str = "device-kernels";
/// Where a kernel starts that has not been started.
const ENTRY: u32 = Kernel::ENTRY_POINT.0;

/// What kernels lack, by their names.
type Names = BTreeMap<String, String>;

/// What an OpenCL device has not got of all that kernels may need, in the words of the device server.
pub fn lacks(device: &Value) -> BTreeSet<&str> {
    let lacks = device["opencl"]["lacks"].as_array();
    lacks.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a device lacks for the kernels of the processes that were looked at.
#[derive(Debug, Default)]
pub struct Lacking {
    /// Kernels that are stopped.
    stopped: Names,
    /// Kernels that the program may launch.
    others: Names,
}

impl Lacking {
    /// Looks at the kernels of a process that are stopped.
    pub fn look_at_stopped(&mut self, state: &ProcessState, lacks: &BTreeSet<&str>) {
        for run in state
            .streams
            .iter()
            .flat_map(|stream| &stream.work)
            .filter_map(|item| run_of(&item.work))
        {
            let kernel = usize::try_from(run.probed_kernel)
                .ok()
                .and_then(|at| state.probed_kernels.get(at));
            let Some(probed) = kernel else { continue };
            // One that cannot be read is for the restore to refuse, which says why.
            let Ok(kernel) = hetckpt_ir::text::parse::kernel(&probed.text) else {
                continue;
            };
            if let Some(what) = missing(&from_where_it_stands(kernel, run), true, lacks) {
                self.stopped.insert(probed.name.clone(), what);
            }
        }
    }

    /// Looks at all kernels that a process may launch.
    pub fn look_at_others(&mut self, state: &ProcessState, lacks: &BTreeSet<&str>) {
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
                    self.others.insert(name, what);
                }
            }
        }
    }

    /// A problem for stopped kernels that cannot go on, a remark for others.
    pub fn findings(self) -> impl Iterator<Item = Finding> {
        let stopped = (!self.stopped.is_empty()).then(|| Finding {
            code: Some("HK0504".to_owned()),
            ..Finding::problem(
                CHECK,
                format!(
                    "kernels that are stopped cannot go on with it: {}",
                    listed(&self.stopped)
                ),
                "name another device (--device); `hetckpt devices` tells what each lacks",
            )
        });
        let others = (!self.others.is_empty()).then(|| {
            Finding::warning(
                CHECK,
                format!(
                    "the device cannot run kernels that the program may launch: {}",
                    listed(&self.others)
                ),
                "their launches give error 218 (invalid PTX) there; name another device (--device) if they matter",
            )
        });
        stopped.into_iter().chain(others)
    }
}

fn run_of(work: &Work) -> Option<&KernelRun> {
    match work {
        Work::Resume { run, .. } => Some(run),
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

fn listed(lacking: &Names) -> String {
    finding::listed(lacking.iter().map(|(name, what)| format!("{name} ({what})")))
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

    #[test]
    fn what_a_device_lacks_is_what_the_server_says() {
        let device = serde_json::json!({ "opencl": { "lacks": ["cl_khr_fp64"] } });
        assert_eq!(lacks(&device), BTreeSet::from(["cl_khr_fp64"]));
        assert!(lacks(&serde_json::json!({ "kind": "cpu" })).is_empty());
    }
}
