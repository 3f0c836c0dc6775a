//! `hetckpt kernel`: a kernel at each stage of translation.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::spirv::{Compiler, disassemble};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::Module;
use hetckpt_ir::text::print;

use crate::cli::{Kernel as Options, Stage};
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::module_addresses::addresses;
use crate::output;

/// Shared memory's first address as generated PTX sees it on the architectures of today; a device is asked at run time.
const USUAL_SHARED_BASE: u32 = 1024;

/// Prints the kernels of a PTX file.
pub fn run(options: Options) -> anyhow::Result<ExitCode> {
    let name = options.file.display();
    let text = std::fs::read_to_string(&options.file)
        .map_err(|e| Failure::new("HK0805", format!("cannot read {name}")).note(e.to_string()))?;
    let module = hetckpt_ptx::lower_module(&text)
        .map_err(|e| Failure::new("HK0805", format!("{name} is not PTX that can be read")).note(e.to_string()))?;
    let wanted = |kernel: &str| options.name.as_ref().is_none_or(|name| kernel.contains(name.as_str()));
    let mut shown = 0;
    for kernel in module.kernels.iter().filter(|k| wanted(&k.name)) {
        output::lines(stage(options.stage, &module, kernel)?);
        shown += 1;
    }
    let rejected: Vec<_> = module.rejected.iter().filter(|k| wanted(&k.name)).collect();
    for kernel in &rejected {
        for reason in &kernel.reasons {
            output::note(format!("kernel {}: {reason}", kernel.name));
        }
    }
    match (shown, rejected.first()) {
        (0, Some(kernel)) => Err(
            Failure::new("HK0805", format!("kernel {} cannot be translated", kernel.name))
                .note(kernel.reasons.join("; "))
                .unsupported()
                .into(),
        ),
        (0, None) => Err(Failure::new("HK0805", format!("{name} has no such kernel")).into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn stage(stage: Stage, module: &Module, kernel: &Kernel) -> Result<String, Failure> {
    let refused =
        |why: String| Failure::new("HK0805", format!("kernel {} cannot be translated", kernel.name)).note(why);
    let bound = || {
        let mut bound = kernel.clone();
        hetckpt_ir::module::bind_globals(&mut bound, &addresses(module))
            .map_err(|global| refused(format!("nothing defines `{global}`")))?;
        Ok(bound)
    };
    let probed = |source: &Kernel| {
        hetckpt_probes::probe(source, &hetckpt_probes::options::Options::default()).map_err(|e| refused(e.to_string()))
    };
    match stage {
        Stage::Ir => Ok(print::kernel(kernel)),
        Stage::Probed => Ok(print::kernel(&probed(kernel)?)),
        Stage::Ptx => {
            let probed = probed(&bound()?)?;
            let layout = ThreadStateLayout::new(&probed);
            let options = hetckpt_codegen::ptx::PtxOptions {
                shared_base: USUAL_SHARED_BASE,
                ..Default::default()
            };
            hetckpt_codegen::ptx::generate(&Program::from_start(probed), &layout, &options)
                .map(|generated| generated.text)
                .map_err(|e| refused(e.to_string()))
        }
        Stage::Llvm => llvm(&print::kernel(&probed(&bound()?)?)),
        Stage::OpenCl | Stage::Spirv => {
            let probed = probed(&bound()?)?;
            let layout = ThreadStateLayout::new(&probed);
            let generated =
                hetckpt_codegen::opencl::generate(&Program::from_start(probed), &layout, &Default::default())
                    .map_err(|e| refused(e.to_string()).unsupported())?;
            if stage == Stage::OpenCl {
                return Ok(generated.text);
            }
            Compiler::find()
                .and_then(|compiler| disassemble(&compiler.binary(&generated)?))
                .map_err(|e| refused(e.to_string()).unsupported())
        }
    }
}

/// The CPU code generator is a shared object that only the device server loads, so the server is asked.
fn llvm(hetir: &str) -> Result<String, Failure> {
    let installation = Installation::find()?;
    let server = installation.require(installation.server.clone())?;
    let failed = |why: String| Failure::new("HK0805", "the CPU code generator refused the kernel").note(why);
    let mut child = Command::new(server)
        .arg("--emit-llvm")
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(hetir.as_bytes()).map_err(|e| failed(e.to_string()))?;
    }
    let result = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    match result.status.success() {
        true => Ok(String::from_utf8_lossy(&result.stdout).into_owned()),
        false => Err(failed(String::from_utf8_lossy(&result.stderr).trim().to_owned())),
    }
}
