//! Prints hetIR as text; [`super::parse`] is the inverse. Deterministic: equal kernels give equal text.

use std::fmt::Write;

use super::names::TextName;
use super::print_inst;
use super::print_operand::{GuardText, OperandText, quote};
use crate::basic_block::{BasicBlock, Terminator};
use crate::entity::{BbId, RegId, ResumePointId, Span};
use crate::kernel::{Kernel, Variable};
use crate::module::{Global, Module};

/// The text of a kernel.
#[must_use]
pub fn kernel(kernel: &Kernel) -> String {
    let mut out = String::new();
    print_kernel(&mut out, kernel);
    out
}

/// The text of a module: its variables, its kernels, then the kernels that were rejected.
#[must_use]
pub fn module(module: &Module) -> String {
    let mut out = String::from("module\n");
    for global in &module.globals {
        print_global(&mut out, global);
    }
    for kernel in &module.kernels {
        print_kernel(&mut out, kernel);
    }
    for rejected in &module.rejected {
        let _ = write!(out, "rejected {}", quote(&rejected.name));
        for reason in &rejected.reasons {
            let _ = write!(out, " {}", quote(reason));
        }
        out.push('\n');
    }
    out
}

// Writing to a `String` cannot fail, so the results of `write!` are dropped throughout.
fn print_kernel(out: &mut String, kernel: &Kernel) {
    let _ = writeln!(out, "kernel {} {{", quote(&kernel.name));
    for p in &kernel.params {
        let _ = writeln!(
            out,
            "  param {} at {} size {} align {}",
            quote(&p.name),
            p.offset,
            p.size_bytes,
            p.align_bytes
        );
    }
    print_segment(out, "shared", kernel.shared.static_bytes, &kernel.shared.variables);
    print_segment(out, "local", kernel.local.size_bytes, &kernel.local.variables);
    if let Some([x, y, z]) = kernel.bounds.max_ntid {
        let _ = writeln!(out, "  max_ntid {x} {y} {z}");
    }
    if let Some([x, y, z]) = kernel.bounds.req_ntid {
        let _ = writeln!(out, "  req_ntid {x} {y} {z}");
    }
    if let Some(n) = kernel.bounds.min_cta_per_sm {
        let _ = writeln!(out, "  min_cta_per_sm {n}");
    }
    if let Some(n) = kernel.bounds.max_registers {
        let _ = writeln!(out, "  max_registers {n}");
    }
    if kernel.multiplies_matrices {
        out.push_str("  multiplies_matrices\n");
    }
    if kernel.reads_images {
        out.push_str("  reads_images\n");
    }
    if kernel.holds_functions {
        out.push_str("  holds_functions\n");
    }
    if kernel.has_call_stack {
        out.push_str("  has_call_stack\n");
    }
    print_registers(out, kernel);
    for (id, point) in (0..).map(ResumePointId).zip(&kernel.resume_points) {
        let _ = writeln!(out, "  resume {id} {} {}", point.kind.text_name(), point.block);
    }
    for (id, block) in kernel.iter_blocks() {
        print_block(out, id, block);
    }
    out.push_str("}\n");
}

fn print_segment(out: &mut String, name: &str, size_bytes: u32, variables: &[Variable]) {
    if size_bytes != 0 {
        let _ = writeln!(out, "  {name} {size_bytes}");
    }
    for v in variables {
        let _ = writeln!(
            out,
            "  {name}_var {} at {} size {}",
            quote(&v.name),
            v.offset,
            v.size_bytes
        );
    }
}

/// Runs of registers of the same width, so that the usual kernel needs few lines.
fn print_registers(out: &mut String, kernel: &Kernel) {
    let mut next = 0;
    for run in kernel.registers.chunk_by(|a, b| a == b) {
        let first = next;
        next += run.len();
        let _ = match run.len() {
            1 => writeln!(out, "  reg {} {}", RegId::from_index(first), run[0].text_name()),
            _ => writeln!(
                out,
                "  reg {}..{} {}",
                RegId::from_index(first),
                RegId::from_index(next - 1),
                run[0].text_name()
            ),
        };
    }
}

fn print_block(out: &mut String, id: BbId, block: &BasicBlock) {
    let _ = writeln!(out, "{id}:");
    for inst in &block.insts {
        out.push_str("  ");
        print_inst::print(out, inst);
        print_span(out, inst.span);
    }
    out.push_str("  ");
    print_terminator(out, &block.terminator);
    print_span(out, block.span);
}

fn print_span(out: &mut String, span: Span) {
    if span.line != 0 {
        let _ = write!(out, " !{}", span.line);
    }
    out.push('\n');
}

fn print_terminator(out: &mut String, terminator: &Terminator) {
    let _ = match terminator {
        Terminator::Jump(next) => write!(out, "jump {next}"),
        Terminator::Branch {
            guard,
            taken,
            not_taken,
        } => {
            write!(out, "br {}, {taken}, {not_taken}", GuardText(*guard))
        }
        Terminator::Exit => write!(out, "exit"),
        Terminator::Trap => write!(out, "trap"),
        Terminator::Barrier {
            id,
            count,
            reduction,
            probe,
            next,
        } => {
            let _ = write!(out, "barrier {}", OperandText(*id));
            if let Some(count) = count {
                let _ = write!(out, " count {}", OperandText(*count));
            }
            if let Some(r) = reduction {
                let _ = write!(out, " red {} {}, {}", r.op.text_name(), r.dst, GuardText(r.src));
            }
            if let Some(p) = probe {
                let _ = write!(out, " arrive {} leave {}", p.arrive, p.leave);
            }
            write!(out, " next {next}")
        }
        Terminator::Poll { resume_point, next } => write!(out, "poll {resume_point}, {next}"),
    };
}

fn print_global(out: &mut String, global: &Global) {
    let _ = write!(out, "global {}", quote(&global.name));
    if global.is_constant {
        out.push_str(" const");
    }
    if global.is_extern {
        out.push_str(" extern");
    }
    if global.is_managed {
        out.push_str(" managed");
    }
    let _ = write!(out, " size {} align {}", global.size_bytes, global.align_bytes);
    if !global.init.is_empty() {
        out.push_str(" init \"");
        for byte in &global.init {
            let _ = write!(out, "{byte:02x}");
        }
        out.push('"');
    }
    out.push('\n');
    for (offset, name, addend) in &global.relocations {
        let _ = writeln!(out, "  reloc {offset} {} {addend}", quote(name));
    }
}
