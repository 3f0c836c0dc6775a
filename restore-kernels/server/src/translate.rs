//! The kernels of a PTX text at a stage of translation, for people who look at them.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl;
use hetckpt_codegen::ptx::{self, PtxOptions};
use hetckpt_codegen::spirv::{Compiler, disassemble};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::Module;
use hetckpt_ir::text::print;
use hetckpt_probes::options::Options;
use hetckpt_ring::question::{RejectedKernel, Stage, Translated, TranslatedKernel, Translation};

use crate::error::ServerError;
use crate::placeholder_addresses::addresses;

/// Shared memory's first address as generated PTX sees it on the architectures of today; a device is asked at run time.
const USUAL_SHARED_BASE: u32 = 1024;

/// The kernels of a PTX text whose names have `name` in them, at `stage`.
///
/// # Errors
/// [`ServerError::NotPtx`].
pub fn translate(text: &str, stage: Stage, name: &str) -> Result<Translation, ServerError> {
    let module = hetckpt_ptx::lower_module(text).map_err(ServerError::NotPtx)?;
    let kernels = module.kernels.iter().filter(|kernel| kernel.name.contains(name));
    let kernels = kernels.map(|kernel| TranslatedKernel {
        name: kernel.name.clone(),
        result: at_stage(stage, &module, kernel).unwrap_or_else(|refusal| refusal),
    });
    let rejected = module.rejected.iter().filter(|kernel| kernel.name.contains(name));
    let rejected = rejected.map(|kernel| RejectedKernel {
        name: kernel.name.clone(),
        reasons: kernel.reasons.clone(),
    });
    Ok(Translation {
        kernels: kernels.collect(),
        rejected: rejected.collect(),
    })
}

/// The text, or why there is none.
fn at_stage(stage: Stage, module: &Module, kernel: &Kernel) -> Result<Translated, Translated> {
    let refused = |why: &dyn ToString| Translated::Refused(why.to_string());
    let unsupported = |why: &dyn ToString| Translated::Unsupported(why.to_string());
    let probed = |kernel: &Kernel| hetckpt_probes::probe(kernel, &Options::default()).map_err(|e| refused(&e));
    let program = || {
        let mut bound = kernel.clone();
        hetckpt_ir::module::bind_globals(&mut bound, &addresses(module))
            .map_err(|global| refused(&format!("nothing defines `{}`", global.name)))?;
        Ok(Program::from_start(probed(&bound)?))
    };
    let opencl_c = || {
        let program = program()?;
        let layout = ThreadStateLayout::new(&program.kernel);
        opencl::generate(&program, &layout, &opencl::OpenClOptions::default()).map_err(|e| unsupported(&e))
    };
    let text = match stage {
        Stage::Ir => print::kernel(kernel),
        Stage::Probed => print::kernel(&probed(kernel)?),
        Stage::Ptx => {
            let program = program()?;
            let options = PtxOptions {
                shared_base: USUAL_SHARED_BASE,
                ..PtxOptions::default()
            };
            let layout = ThreadStateLayout::new(&program.kernel);
            ptx::generate(&program, &layout, &options)
                .map_err(|e| refused(&e))?
                .text
        }
        Stage::Llvm => {
            let hetir = print::kernel(&program()?.kernel);
            hetckpt_devices::cpu::llvm_ir(&hetir).map_err(|e| refused(&e))?
        }
        Stage::OpenCl => opencl_c()?.text,
        Stage::Spirv => {
            let generated = opencl_c()?;
            Compiler::find()
                .and_then(|compiler| disassemble(&compiler.binary(&generated)?))
                .map_err(|e| unsupported(&e))?
        }
    };
    Ok(Translated::Text(text))
}
