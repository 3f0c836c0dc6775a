//! Parses the text form; [`super::print`] is the inverse. Never panics on hostile text and allocates no more than a
//! small multiple of the text's length.

pub mod error;
mod header;
mod inst;
mod line;
mod lines;
mod scope;
mod terminator;

use crate::kernel::Kernel;
use crate::module::{Module, RejectedKernel};
use crate::text::limits::MAX_LIST;
pub use error::ParseError;
use line::Line;
use lines::Lines;

/// Parses one kernel.
///
/// # Errors
/// The first line that is not hetIR, and what was expected there.
pub fn kernel(text: &str) -> Result<Kernel, ParseError> {
    let mut lines = Lines::new(text)?;
    let mut line = lines.next_line("a kernel")?;
    line.keyword("kernel")?;
    let kernel = header::kernel(line, &mut lines)?;
    lines.end()?;
    Ok(kernel)
}

/// Parses a module.
///
/// # Errors
/// The first line that is not hetIR, and what was expected there.
pub fn module(text: &str) -> Result<Module, ParseError> {
    let mut lines = Lines::new(text)?;
    let mut line = lines.next_line("module")?;
    line.keyword("module")?;
    line.end()?;
    let mut module = Module::default();
    while let Some(mut line) = lines.next() {
        if line.accept_word("global") {
            module.globals.push(header::global(&mut line)?);
        } else if line.accept_word("reloc") {
            let relocation = header::relocation(&mut line)?;
            match module.globals.last_mut() {
                Some(global) => global.relocations.push(relocation),
                None => return Err(line.expected("a global before its relocations")),
            }
        } else if line.accept_word("kernel") {
            module.kernels.push(header::kernel(line, &mut lines)?);
        } else if line.accept_word("rejected") {
            module.rejected.push(rejected(&mut line)?);
        } else {
            return Err(line.expected("global, reloc, kernel or rejected"));
        }
    }
    Ok(module)
}

fn rejected(line: &mut Line<'_>) -> Result<RejectedKernel, ParseError> {
    let name = line.string("the kernel's name")?;
    let mut reasons = Vec::new();
    while !line.is_empty() {
        if reasons.len() == MAX_LIST {
            return Err(line.limit("reasons", MAX_LIST));
        }
        reasons.push(line.string("a reason")?);
    }
    Ok(RejectedKernel { name, reasons })
}
