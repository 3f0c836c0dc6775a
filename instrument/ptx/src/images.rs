//! What texture and surface instructions do on devices without: functions in PTX, inlined like any other function's.
//! They find an image by its object, the address of a description in device memory
//! ([`hetckpt_abi::software_image`] has its layout). nvcc has made them from `sampler.cu`.

use crate::ast::{Instruction, Module, Statement};

/// How their names begin.
pub(crate) const PREFIX: &str = "__hetckpt_img_";

/// The functions.
const SAMPLER: &str = include_str!("images/sampler.ptx");

/// What an access beyond a surface does, as the functions are told.
#[derive(Clone, Copy)]
pub(crate) enum BeyondSurface {
    /// Loads zeros, stores nothing.
    Zero,
    /// Means what is nearest.
    Clamp,
    /// Ends the kernel.
    Trap,
}

/// True for a function that is supplied here.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// True for an instruction that needs one of them.
pub(crate) fn is_needed_by(inst: &Instruction<'_>) -> bool {
    matches!(inst.opcode, "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq")
}

/// The functions, if `module` has an instruction that needs one of them.
pub(crate) fn supply(module: &Module<'_>) -> &'static str {
    let statements = module.functions.iter().filter_map(|f| f.body.as_deref()).flatten();
    let mut needs = statements.map(|statement| matches!(statement, Statement::Instruction(inst) if is_needed_by(inst)));
    if needs.any(|needs| needs) { SAMPLER } else { "" }
}
