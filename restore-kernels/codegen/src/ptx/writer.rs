//! The text being written, and the registers it uses beside the kernel's own.

use std::fmt::Write as _;

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId, Span};
use hetckpt_ir::inst::{Guard, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use super::barrier_plan::BarrierPlan;
use super::entry_tests::entry_tests;
use super::facts::{Facts, NO_SPAN};
use super::poll_plan::PollPlan;
use super::{Error, PtxOptions, names};

/// Code out of line at the end of a basic block.
pub(super) enum Look {
    /// A barrier looks at the request; the block stops at the resume point.
    AtBarrier(BbId, ResumePointId),
    /// The request has been seen at a loop probe; the warp stops at the resume point if all of its lanes are there.
    WithWholeWarp(BbId, ResumePointId),
}

/// Where threads come from that meet at the one barrier of [`super::barriers_and_warps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meet {
    /// A barrier of the program: they stop at its resume point, or go on.
    At(ResumePointId),
    /// The code of threads that have saved themselves.
    ToStop,
}

/// Writes one kernel's body.
pub(super) struct Writer<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub layout: &'a ThreadStateLayout,
    pub options: &'a PtxOptions,
    pub facts: Facts,
    /// How probes ask.
    pub polls: PollPlan,
    /// How barriers ask.
    pub barriers: BarrierPlan,
    /// Where the entry probe tests.
    pub entry_tests: Vec<Option<usize>>,
    /// Code out of line that is still to be written.
    pub looks: Vec<Look>,
    /// Where threads come from that meet at the one barrier of [`super::barriers_and_warps`].
    pub meets: Vec<Meet>,
    /// What is written is for launches that are not asked to stop.
    pub is_unasked: bool,
    /// The basic block written next.
    pub next: Option<BbId>,
    /// Resume points at which some emitted probe can stop.
    pub stops: Vec<ResumePointId>,
    /// Position in the source of what is being written.
    pub span: Span,
    body: String,
    scratch: [u32; 4],
}

impl<'a> Writer<'a> {
    pub fn new(program: &'a Program, layout: &'a ThreadStateLayout, options: &'a PtxOptions, facts: Facts) -> Self {
        let kernel = &program.kernel;
        let polls = PollPlan::new(kernel, &facts, options.in_step);
        Self {
            program,
            kernel,
            layout,
            options,
            facts,
            barriers: BarrierPlan::new(kernel, &polls),
            entry_tests: entry_tests(program, facts.has_warp_op || polls.asks_for_lanes()),
            polls,
            looks: Vec::new(),
            meets: Vec::new(),
            is_unasked: false,
            next: None,
            stops: Vec::new(),
            span: NO_SPAN,
            body: String::new(),
            scratch: [0; 4],
        }
    }

    /// One instruction.
    pub fn line(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.body, "\t{text};");
    }

    /// A label.
    pub fn label(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.body, "{text}:");
    }

    /// A scratch register, `%k…` with the width's letters.
    pub fn scratch(&mut self, width: Width) -> String {
        let (slot, letters) = scratch_class(width);
        let n = self.scratch[slot];
        self.scratch[slot] += 1;
        format!("{letters}{n}")
    }

    /// Name of a kernel's register.
    pub fn reg(&self, reg: RegId) -> String {
        names::register(self.kernel, reg)
    }

    /// A source operand read as `ty`; constants that have no literal go through a scratch register.
    pub fn operand(&mut self, ty: Type, operand: Operand) -> String {
        match operand {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Imm(bits) => names::constant(ty, bits).unwrap_or_else(|| self.constant_in_register(ty, bits)),
        }
    }

    fn constant_in_register(&mut self, ty: Type, bits: u64) -> String {
        if ty == Type::Pred {
            let pred = self.scratch(Width::Pred);
            self.line(format_args!("setp.ne.u32 {pred}, {}, 0", bits & 1));
            return pred;
        }
        let (width, size) = if ty.size_bytes() == 2 {
            (Width::W16, "b16")
        } else {
            (Width::W32, "b32")
        };
        let reg = self.scratch(width);
        self.line(format_args!("mov.{size} {reg}, 0x{bits:X}"));
        reg
    }

    /// `@%p1 ` or nothing.
    pub fn guard(&self, guard: Option<Guard>) -> String {
        guard.map_or_else(String::new, |g| {
            format!("@{}{} ", if g.negated { "!" } else { "" }, self.reg(g.pred))
        })
    }

    pub fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            kernel: self.kernel.name.clone(),
            span: self.span,
            what,
        }
    }

    /// The body and the declarations that it needs.
    pub fn finish(self) -> (String, String) {
        let mut declarations = String::new();
        let mut widths = self.kernel.registers.clone();
        widths.sort_unstable();
        widths.dedup();
        for width in widths {
            let _ = writeln!(
                declarations,
                "\t.reg .{} \t{}<{}>;",
                names::width_type(width),
                names::prefix(width),
                self.kernel.registers.len()
            );
        }
        for width in [Width::Pred, Width::W16, Width::W32, Width::W64] {
            let (slot, letters) = scratch_class(width);
            if self.scratch[slot] > 0 {
                let _ = writeln!(
                    declarations,
                    "\t.reg .{} \t{letters}<{}>;",
                    names::width_type(width),
                    self.scratch[slot]
                );
            }
        }
        for (ty, name) in self.fixed_registers() {
            let _ = writeln!(declarations, "\t.reg .{ty} \t{name};");
        }
        if self.kernel.local.size_bytes > 0 {
            let _ = writeln!(
                declarations,
                "\t.local .align 16 .b8 \thetckpt_local[{}];",
                self.kernel.local.size_bytes
            );
        }
        declarations.push('\n');
        (self.body, declarations)
    }
}

const fn scratch_class(width: Width) -> (usize, &'static str) {
    match width {
        Width::Pred => (0, "%kp"),
        Width::W16 => (1, "%ks"),
        Width::W32 => (2, "%kr"),
        Width::W64 => (3, "%kd"),
    }
}
