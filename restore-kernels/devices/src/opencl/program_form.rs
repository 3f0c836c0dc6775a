//! In what form the device is given programs: OpenCL C, which nearly all take, or SPIR-V made of it.

use hetckpt_abi::opencl_program::{OpenClProgram, Requirements, Stops};

use super::OpenClOptions;
use super::capabilities::OpenClCapabilities;
use super::handles::{Context, Program};
use crate::error::DeviceError;

/// Why a compiler makes no SPIR-V.
pub type IlError = Box<dyn std::error::Error + Send + Sync>;

/// Makes SPIR-V of a program's text.
pub type IlCompiler = fn(&OpenClProgram) -> Result<Vec<u8>, IlError>;

/// How `CL_DEVICE_IL_VERSION` names it.
const SPIRV: &str = "SPIR-V";

/// What programs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProgramForm {
    /// OpenCL C.
    Source,
    /// What this compiler makes of it.
    Il(IlCompiler),
}

impl ProgramForm {
    /// OpenCL C where the device compiles that. Where it does neither, it is OpenCL C that it refuses.
    pub fn of(capabilities: &OpenClCapabilities, options: &OpenClOptions) -> Self {
        let takes_spirv = capabilities.il_version.as_ref().is_some_and(|v| v.contains(SPIRV));
        match options.il_compiler {
            Some(compiler) if takes_spirv && (options.prefer_il || !capabilities.has_compiler) => Self::Il(compiler),
            _ => Self::Source,
        }
    }

    /// The program, not built yet.
    pub fn create(self, context: &Context, program: &OpenClProgram) -> Result<Program, DeviceError> {
        match self {
            Self::Source => Ok(context.program_from_source(&program.text)?),
            Self::Il(compiler) => {
                let module = compiler(program).map_err(|error| DeviceError::Driver {
                    call: "making SPIR-V",
                    reason: error.to_string(),
                })?;
                Ok(context.program_from_il(&module)?)
            }
        }
    }

    /// Its name, for the cache.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "OpenCL C",
            Self::Il(_) => SPIRV,
        }
    }
}

/// A text of kernels that are launched without a description of what they take.
pub(super) fn helper_program(text: &str) -> OpenClProgram {
    OpenClProgram {
        text: text.to_owned(),
        entry: String::new(),
        arguments: Vec::new(),
        requires: Requirements::default(),
        stops: Stops::Threads,
        orders_for_device: false,
    }
}
