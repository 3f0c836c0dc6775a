//! Everything of a kernel but its instructions; module variables.

use super::error::ParseError;
use super::line::Line;
use super::lines::Lines;
use super::scope::Scope;
use super::{inst, terminator};
use crate::basic_block::BasicBlock;
use crate::entity::{BbId, RegId, ResumePointId, Span};
use crate::inst::Inst;
use crate::kernel::{Kernel, LaunchBounds, LocalFrame, Param, ResumePoint, SharedSegment, Variable};
use crate::module::Global;
use crate::text::limits::{MAX_BLOCKS, MAX_REGISTERS, MAX_RESUME_POINTS};
use crate::types::Width;

/// A kernel whose keyword has been read from `line`.
pub(super) fn kernel(mut line: Line<'_>, lines: &mut Lines<'_>) -> Result<Kernel, ParseError> {
    let mut kernel = Kernel {
        name: line.string("the kernel's name")?,
        params: vec![],
        registers: vec![],
        blocks: vec![],
        shared: SharedSegment::default(),
        local: LocalFrame::default(),
        bounds: LaunchBounds::default(),
        multiplies_matrices: false,
        reads_images: false,
        holds_functions: false,
        has_call_stack: false,
        resume_points: vec![],
    };
    line.punctuation("{")?;
    line.end()?;
    let mut scope = Scope::default();
    let mut line = lines.next_line("a declaration or bb0:")?;
    while declaration(&mut line, &mut kernel, &mut scope)? {
        line.end()?;
        line = lines.next_line("a declaration or bb0:")?;
    }
    scope.declare(kernel.registers.len(), kernel.resume_points.len());
    while !line.accept("}") {
        let expected = BbId::from_index(kernel.blocks.len());
        if kernel.blocks.len() == MAX_BLOCKS {
            return Err(line.limit("basic blocks", MAX_BLOCKS));
        }
        if BbId(line.id("bb", "a declaration, bbN: or }")?) != expected {
            return Err(ParseError::OutOfOrder {
                line: line.number(),
                expected: expected.to_string(),
            });
        }
        line.punctuation(":")?;
        line.end()?;
        kernel.blocks.push(block(lines, &mut scope)?);
        line = lines.next_line("bbN: or }")?;
    }
    line.end()?;
    scope.check_blocks(kernel.blocks.len())?;
    Ok(kernel)
}

fn block(lines: &mut Lines<'_>, scope: &mut Scope) -> Result<BasicBlock, ParseError> {
    let mut insts = Vec::new();
    loop {
        let mut line = lines.next_line("an instruction or a terminator")?;
        if let Some(terminator) = terminator::terminator(&mut line, scope)? {
            let span = span(&mut line)?;
            return Ok(BasicBlock {
                insts,
                terminator,
                span,
            });
        }
        let guard = inst::guard(&mut line, scope)?;
        let op = inst::op(&mut line, scope)?;
        insts.push(Inst {
            op,
            guard,
            span: span(&mut line)?,
        });
    }
}

/// `!12`, and then the line's end.
fn span(line: &mut Line<'_>) -> Result<Span, ParseError> {
    let span = if line.accept("!") {
        Span {
            line: line.u32("a line of the PTX text")?,
        }
    } else {
        Span::default()
    };
    line.end()?;
    Ok(span)
}

/// One declaration; false if the line is none.
fn declaration(line: &mut Line<'_>, kernel: &mut Kernel, scope: &mut Scope) -> Result<bool, ParseError> {
    if line.accept_word("param") {
        let (name, offset, size_bytes) = variable(line)?;
        line.keyword("align")?;
        let align_bytes = line.u32("the alignment")?;
        kernel.params.push(Param {
            name,
            offset,
            size_bytes,
            align_bytes,
        });
    } else if line.accept_word("shared") {
        kernel.shared.static_bytes = line.u32("the size of static shared memory")?;
    } else if line.accept_word("shared_var") {
        let (name, offset, size_bytes) = variable(line)?;
        kernel.shared.variables.push(Variable {
            name,
            offset,
            size_bytes,
        });
    } else if line.accept_word("local") {
        kernel.local.size_bytes = line.u32("the size of the local frame")?;
    } else if line.accept_word("local_var") {
        let (name, offset, size_bytes) = variable(line)?;
        kernel.local.variables.push(Variable {
            name,
            offset,
            size_bytes,
        });
    } else if line.accept_word("max_ntid") {
        kernel.bounds.max_ntid = Some(dimensions(line)?);
    } else if line.accept_word("req_ntid") {
        kernel.bounds.req_ntid = Some(dimensions(line)?);
    } else if line.accept_word("min_cta_per_sm") {
        kernel.bounds.min_cta_per_sm = Some(line.u32("a number of blocks")?);
    } else if line.accept_word("max_registers") {
        kernel.bounds.max_registers = Some(line.u32("a number of registers")?);
    } else if line.accept_word("multiplies_matrices") {
        kernel.multiplies_matrices = true;
    } else if line.accept_word("reads_images") {
        kernel.reads_images = true;
    } else if line.accept_word("holds_functions") {
        kernel.holds_functions = true;
    } else if line.accept_word("has_call_stack") {
        kernel.has_call_stack = true;
    } else if line.accept_word("reg") {
        registers(line, &mut kernel.registers)?;
    } else if line.accept_word("resume") {
        resume_point(line, kernel, scope)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn variable(line: &mut Line<'_>) -> Result<(String, u32, u32), ParseError> {
    let name = line.string("a name")?;
    line.keyword("at")?;
    let offset = line.u32("the offset")?;
    line.keyword("size")?;
    Ok((name, offset, line.u32("the size")?))
}

fn dimensions(line: &mut Line<'_>) -> Result<[u32; 3], ParseError> {
    Ok([line.u32("x")?, line.u32("y")?, line.u32("z")?])
}

fn registers(line: &mut Line<'_>, widths: &mut Vec<Width>) -> Result<(), ParseError> {
    let next = RegId::from_index(widths.len());
    let first = line.id("%r", "a register")?;
    let last = if line.accept("..") {
        line.id("%r", "a register")?
    } else {
        first
    };
    if RegId(first) != next || last < first {
        return Err(ParseError::OutOfOrder {
            line: line.number(),
            expected: next.to_string(),
        });
    }
    if last as usize >= MAX_REGISTERS {
        return Err(line.limit("registers", MAX_REGISTERS));
    }
    let width = line.name("a width: pred, w16, w32 or w64")?;
    widths.resize(last as usize + 1, width);
    Ok(())
}

fn resume_point(line: &mut Line<'_>, kernel: &mut Kernel, scope: &mut Scope) -> Result<(), ParseError> {
    let next = ResumePointId::from_index(kernel.resume_points.len());
    if kernel.resume_points.len() == MAX_RESUME_POINTS {
        return Err(line.limit("resume points", MAX_RESUME_POINTS));
    }
    if ResumePointId(line.id("rp", "a resume point")?) != next {
        return Err(ParseError::OutOfOrder {
            line: line.number(),
            expected: next.to_string(),
        });
    }
    let kind = line.name("a kind of resume point")?;
    let block = scope.block(line)?;
    kernel.resume_points.push(ResumePoint { kind, block });
    Ok(())
}

/// A module variable whose keyword has been read.
pub(super) fn global(line: &mut Line<'_>) -> Result<Global, ParseError> {
    let name = line.string("the variable's name")?;
    let is_constant = line.accept_word("const");
    let is_extern = line.accept_word("extern");
    let is_managed = line.accept_word("managed");
    line.keyword("size")?;
    let size_bytes = line.u64("the size")?;
    line.keyword("align")?;
    let align_bytes = line.u32("the alignment")?;
    let init = if line.accept_word("init") { bytes(line)? } else { vec![] };
    line.end()?;
    Ok(Global {
        name,
        is_constant,
        is_extern,
        is_managed,
        size_bytes,
        align_bytes,
        init,
        relocations: vec![],
    })
}

fn bytes(line: &mut Line<'_>) -> Result<Vec<u8>, ParseError> {
    let text = line.hex_string()?;
    let digit = |b: u8| char::from(b).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    pairs
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| line.expected("pairs of hexadecimal digits"))
}

/// A relocation whose keyword has been read.
pub(super) fn relocation(line: &mut Line<'_>) -> Result<(u64, String, i64), ParseError> {
    let offset = line.u64("the offset")?;
    let name = line.string("the variable's name")?;
    let addend = line.i64("the addend")?;
    line.end()?;
    Ok((offset, name, addend))
}
