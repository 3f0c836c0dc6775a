//! PTX front end: text → tokens → AST → hetIR. First stage of the pipeline that knows instructions; it rewrites
//! nothing: optimising, probing and choosing targets are others' work.
//!
//! A module is lowered kernel by kernel. A kernel that uses what hetIR cannot express lands in
//! [`hetckpt_ir::module::Module::rejected`] with its reasons; the others are not affected.

mod error;
mod token;
mod ast;
mod parse;
mod lower;
mod device_functions;
mod device_heap;
mod images;
mod link;

pub use error::{Error, Reason, SyntaxError};

/// Largest PTX text that is accepted.
pub const MAX_TEXT_BYTES: usize = 256 << 20;

/// Lowers a PTX text (PTX ISA 9.0; a NUL at its end is ignored).
///
/// # Errors
/// The text breaks PTX's grammar outside of function bodies, and it cannot be told what is declared there. What is
/// wrong with a kernel, or with a variable or function, rejects that kernel only, or those that use it.
pub fn lower_module(text: &str) -> Result<hetckpt_ir::module::Module, Error> {
    lower_beside(text, &[])
}

/// Lowers texts that are linked with one another: what one of them only declares, others define.
///
/// # Errors
/// As [`lower_module`], of the first that has one.
pub fn lower_linked(texts: &[&str]) -> Result<Vec<hetckpt_ir::module::Module>, Error> {
    let one = |at: usize| lower_beside(texts[at], &[&texts[..at], &texts[at + 1..]].concat());
    (0..texts.len()).map(one).collect()
}

fn lower_beside(text: &str, others: &[&str]) -> Result<hetckpt_ir::module::Module, Error> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::TooLarge { size_bytes: text.len() });
    }
    let with_heap = lower_supplied(text, others, true)?;
    let has_heap = with_heap
        .globals
        .iter()
        .any(|global| global.name == hetckpt_abi::device_heap::NAME);
    if with_heap.rejected.is_empty() || !has_heap {
        return Ok(with_heap);
    }
    // A GPU runs the kernels that are not modelled as they are, with the driver's heap: then all have that.
    lower_supplied(text, others, false)
}

fn lower_supplied(text: &str, others: &[&str], has_heap: bool) -> Result<hetckpt_ir::module::Module, Error> {
    let (printing, heap);
    let mut module = parse::parse_module(text);
    if !module.errors.is_empty() {
        return Err(Error::Syntax { errors: module.errors });
    }
    if link::lacks_functions(&module) {
        others
            .iter()
            .for_each(|other| link::take_functions(&mut module, parse::parse_module(other)));
    }
    heap = device_heap::supply(&module).filter(|_| has_heap).unwrap_or_default();
    printing = device_functions::supply(&module);
    let printing = printing.as_ref();
    let printing_text = printing.map_or("", |supplied| supplied.text.as_str());
    for supplied in [heap.as_str(), printing_text, images::supply(&module)] {
        let parsed = parse::parse_module(supplied);
        module.variables.extend(parsed.variables);
        module.functions.extend(parsed.functions);
        module.broken.extend(parsed.broken);
    }
    let printf_bytes = printing.map_or(0, |supplied| supplied.printf_bytes);
    lower::lower(&module, printf_bytes)
}
