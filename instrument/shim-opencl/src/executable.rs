//! What a program is once it can be run: a module of the driver's and its kernels.

use std::ffi::CString;
use std::sync::Arc;

use crate::binary::Image;
use crate::compiler::{self, Compiled, Toolchain};
use crate::cuda::{self, CudaError, Driver, Function, Module};
use crate::metadata::{self, Declaration, Space};
use crate::ptx_text::{self, NDRANGE_BYTES};
use crate::status::Status;

/// What a build gives.
#[derive(Debug)]
pub struct Executable {
    module: Module,
    /// In the source's order.
    pub kernels: Vec<Arc<Code>>,
}

/// A kernel as built.
#[derive(Debug)]
pub struct Code {
    /// As declared.
    pub declaration: Declaration,
    /// Sizes of its arguments.
    pub argument_bytes: Vec<usize>,
    /// The driver's.
    pub function: Function,
    /// Most work-items of a group.
    pub max_group: usize,
    /// Local memory declared in it.
    pub local_bytes: u64,
    /// Private memory of a work-item.
    pub private_bytes: u64,
}

/// Why there is none: the status and the text for the log.
pub type Failure = (Status, String);

impl Drop for Executable {
    fn drop(&mut self) {
        if let Ok(driver) = cuda::driver() {
            // A lost device has lost it too.
            let _ = driver.unload(self.module);
        }
    }
}

/// Numbers of `CUfunction_attribute`.
mod attribute {
    pub const MAX_THREADS: i32 = 0;
    pub const SHARED_BYTES: i32 = 1;
    pub const LOCAL_BYTES: i32 = 3;
}

/// The compiler, or `status` and what is missing of it.
pub fn toolchain(status: Status) -> Result<&'static Toolchain, Failure> {
    compiler::toolchain().map_err(|reason| (status, format!("{reason}\n")))
}

/// What a device is given of what the compiler gives; `status` is that of a failure.
pub fn image(compiled: &Compiled, status: Status) -> Result<Image, Failure> {
    let kernels = metadata::read(&compiled.ir);
    match ptx_text::prepare(&compiled.ptx, &kernels) {
        Ok(ptx) => Ok(Image { ptx, kernels }),
        Err(errors) => {
            let lines: String = errors.iter().map(|error| format!("error: {error}\n")).collect();
            Err((status, format!("{}{lines}", compiled.log)))
        }
    }
}

impl Executable {
    /// Has the device load an image.
    ///
    /// # Errors
    /// `status`, and why the device does not take it.
    pub fn load(image: &Image, status: Status) -> Result<Self, Failure> {
        let driver = cuda::driver().map_err(|status| (status, String::new()))?;
        let text =
            CString::new(&*image.ptx).map_err(|_| (status, "error: the program has a NUL in it\n".to_owned()))?;
        let module = driver.load(&text).map_err(|(e, reason)| {
            let reason = format!("the device refuses it (CUDA error {}): {reason}\n", e.0);
            (status, reason)
        })?;
        // From here on the module is unloaded when this goes.
        let mut executable = Self {
            module,
            kernels: Vec::new(),
        };
        for declaration in &image.kernels {
            let name = &declaration.name;
            let code = Code::find(driver, module, declaration).map_err(|e| {
                let reason = "cannot be built for the device; standard error says why";
                (status, format!("kernel `{name}` {reason} (CUDA error {})\n", e.0))
            })?;
            executable.kernels.push(Arc::new(code));
        }
        Ok(executable)
    }
}

impl Code {
    fn find(driver: &Driver, module: Module, declaration: &Declaration) -> cuda::CudaResult<Self> {
        let function = driver.function(module, &declaration.name)?;
        Ok(Self {
            argument_bytes: argument_bytes(&driver.param_bytes(function)?, declaration)?,
            function,
            max_group: driver.function_attribute(function, attribute::MAX_THREADS)? as usize,
            local_bytes: u64::from(driver.function_attribute(function, attribute::SHARED_BYTES)?),
            private_bytes: u64::from(driver.function_attribute(function, attribute::LOCAL_BYTES)?),
            declaration: declaration.clone(),
        })
    }
}

/// Sizes of a kernel's own arguments, if all parameters are what a launch will give them.
fn argument_bytes(param_bytes: &[usize], declaration: &Declaration) -> cuda::CudaResult<Vec<usize>> {
    let (ndrange, own) = param_bytes.split_last().ok_or(CudaError::INVALID_IMAGE)?;
    let mut arguments = declaration.arguments.iter().zip(own);
    let has_addresses =
        arguments.all(|(argument, &bytes)| argument.space == Space::Private || bytes == size_of::<u64>());
    if *ndrange == NDRANGE_BYTES && own.len() == declaration.arguments.len() && has_addresses {
        Ok(own.to_vec())
    } else {
        Err(CudaError::INVALID_IMAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Argument;

    #[test]
    fn parameters_are_what_a_launch_gives() {
        let declared = |spaces: &[Space]| Declaration {
            arguments: spaces
                .iter()
                .map(|&space| Argument {
                    space,
                    type_name: String::new(),
                    name: String::new(),
                    qualifiers: 0,
                })
                .collect(),
            ..Declaration::default()
        };
        let three = declared(&[Space::Global, Space::Private, Space::Local]);
        assert_eq!(argument_bytes(&[8, 16, 8, NDRANGE_BYTES], &three), Ok(vec![8, 16, 8]));
        assert_eq!(argument_bytes(&[NDRANGE_BYTES], &declared(&[])), Ok(Vec::new()));
        for wrong in [
            &[][..],
            &[8, 16, 8],
            &[8, 16, NDRANGE_BYTES],
            &[8, 16, 8, 8],
            &[8, 16, 16, NDRANGE_BYTES],
            &[4, 16, 8, NDRANGE_BYTES],
            &[8, 16, 8, 8, NDRANGE_BYTES],
        ] {
            assert_eq!(
                argument_bytes(wrong, &three),
                Err(CudaError::INVALID_IMAGE),
                "{wrong:?}"
            );
        }
    }
}
