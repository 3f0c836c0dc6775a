//! The text being written: lines, labels, operands.

use std::collections::BTreeSet;

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId, Span};
use hetckpt_ir::inst::{Guard, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::thread_state::ThreadStateLayout;

use super::divergent_branches::{DivergentBranches, Mask};
use super::landing::Landing;
use super::rematerialization::Rematerialization;
use super::structure::{Cut, Route, Structure};
use super::{Error, OpenClOptions, names};

/// Nesting from which on a branch jumps over what is not taken instead of enclosing it.
pub(super) const DEEPEST_NESTING: usize = 40;

enum Line {
    Label(Target),
    Text { depth: usize, text: String },
}

/// A basic block as part of a region, named by the resume point that the region starts at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    region: Option<ResumePointId>,
    block: BbId,
}

/// Writes one kernel's body.
pub(super) struct Writer<'a> {
    pub kernel: &'a Kernel,
    pub layout: &'a ThreadStateLayout,
    pub options: &'a OpenClOptions,
    /// How threads stop.
    pub stops: Stops,
    /// They come together wherever they wait.
    pub together: bool,
    /// Votes are written for sub-groups too. Never where threads go in rounds, nor where they come together after that.
    pub votes_in_sub_groups: bool,
    /// How they do.
    pub divergence: Option<DivergentBranches>,
    /// Where threads that go in rounds come together.
    pub landings: Vec<Landing>,
    /// Conditions under which threads are where they walk.
    pub masks: Vec<Mask>,
    /// What is computed anew after meetings.
    pub rematerialization: Rematerialization,
    /// It is being written.
    pub is_renewing: bool,
    /// Set if control flow has no form in which threads walk together.
    pub has_no_form: bool,
    /// Where the blocks of the region being written go.
    pub structure: Structure,
    /// The region being written, if there are several.
    pub region: Option<ResumePointId>,
    /// Registers are named by where they lie between regions.
    pub between_regions: bool,
    /// Registers that the region being written has changed or may have.
    pub changed: RegSet,
    /// Position in the source of what is being written.
    pub span: Span,
    /// Nesting, in steps of indentation.
    pub depth: usize,
    commented: u32,
    lines: Vec<Line>,
    targets: BTreeSet<Target>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: &'a Kernel, layout: &'a ThreadStateLayout, options: &'a OpenClOptions, stops: Stops) -> Self {
        Self {
            kernel,
            layout,
            options,
            stops,
            together: false,
            votes_in_sub_groups: false,
            divergence: None,
            landings: Vec::new(),
            masks: Vec::new(),
            rematerialization: Rematerialization::default(),
            is_renewing: false,
            has_no_form: false,
            structure: Structure::new(kernel, Kernel::ENTRY, Cut::Nowhere),
            region: None,
            between_regions: false,
            changed: RegSet::default(),
            span: Span::default(),
            depth: 1,
            commented: 0,
            lines: Vec::new(),
            targets: BTreeSet::new(),
        }
    }

    /// One line; the first of a source line says which.
    pub fn line(&mut self, text: impl std::fmt::Display) {
        let line = self.span.line;
        let text = if line != 0 && line != self.commented {
            self.commented = line;
            format!("{text} // line {line}")
        } else {
            text.to_string()
        };
        let depth = self.depth;
        self.lines.push(Line::Text { depth, text });
    }

    /// A line without a source.
    pub fn plain_line(&mut self, text: impl std::fmt::Display) {
        let depth = self.depth;
        let text = text.to_string();
        self.lines.push(Line::Text { depth, text });
    }

    /// A line that opens a nested statement.
    pub fn open(&mut self, text: impl std::fmt::Display) {
        self.line(format_args!("{text} {{"));
        self.depth += 1;
    }

    /// The end of a nested statement.
    pub fn close(&mut self) {
        self.depth -= 1;
        self.plain_line("}");
    }

    /// A block of lines of its own, for names that only it uses.
    pub fn scope(&mut self, lines: &[String]) {
        self.line("{");
        self.depth += 1;
        for line in lines {
            self.plain_line(line);
        }
        self.close();
    }

    /// The label of a basic block; left out if nothing goes there.
    pub fn label(&mut self, id: BbId) {
        let target = self.target(id);
        self.lines.push(Line::Label(target));
    }

    fn target(&self, block: BbId) -> Target {
        Target {
            region: self.region,
            block,
        }
    }

    /// The statement for a way that is not written here; nothing for going on.
    pub fn way(&mut self, route: Route) -> Option<String> {
        match route {
            Route::Next | Route::Here(_) => None,
            Route::Continue(to) => Some(self.after_fence(to, "continue;".to_owned())),
            Route::Break => Some("break;".to_owned()),
            Route::Goto(to) => {
                self.targets.insert(self.target(to));
                let way = format!("goto {};", names::label(self.region, to));
                Some(self.after_fence(to, way))
            }
        }
    }

    /// A way to the header of a loop, behind a barrier if the loop wants one.
    fn after_fence(&self, to: BbId, way: String) -> String {
        if self.is_fenced(to) {
            format!("{{ block_barrier(); {way} }}")
        } else {
            way
        }
    }

    /// True if a loop has a barrier at its end.
    pub fn is_fenced(&self, header: BbId) -> bool {
        self.divergence.as_ref().is_some_and(|d| d.meets_on_some_ways(header))
    }

    /// Number of lines so far.
    pub fn num_lines(&self) -> usize {
        self.lines.len()
    }

    /// Puts what was written from line `start` on under a condition.
    pub fn guard_lines(&mut self, start: usize, condition: &str) {
        let guarded = self.lines.split_off(start);
        let depth = self.depth;
        let mut statements = guarded.iter();
        if let (Some(Line::Text { text, .. }), None) = (statements.next(), statements.next()) {
            let text = format!("if ({condition}) {text}");
            self.lines.push(Line::Text { depth, text });
            return;
        }
        let text = format!("if ({condition}) {{");
        self.lines.push(Line::Text { depth, text });
        self.lines.extend(guarded.into_iter().map(|line| match line {
            Line::Text { depth, text } => Line::Text { depth: depth + 1, text },
            label @ Line::Label(_) => label,
        }));
        self.plain_line("}");
    }

    /// The text.
    pub fn body(&self) -> String {
        let mut body = String::new();
        for line in &self.lines {
            match line {
                Line::Label(target) if self.targets.contains(target) => {
                    body.push_str(&names::label(target.region, target.block));
                    body.push_str(":;\n");
                }
                Line::Label(_) => {}
                Line::Text { depth, text } => {
                    body.push_str(&"    ".repeat((*depth).min(DEEPEST_NESTING + 4)));
                    body.push_str(text);
                    body.push('\n');
                }
            }
        }
        body
    }

    /// Name of a register.
    pub fn reg(&self, reg: RegId) -> String {
        if self.between_regions {
            self.kept(reg).unwrap_or_default()
        } else {
            names::register(self.kernel, reg)
        }
    }

    /// The condition of a guard.
    pub fn condition(&self, guard: Guard) -> String {
        format!("{}{}", if guard.negated { "!" } else { "" }, self.reg(guard.pred))
    }

    /// `dst = value`; the value may be wider.
    pub fn assign(&mut self, dst: RegId, value: impl std::fmt::Display) {
        let text = self.assignment(dst, value);
        self.line(text);
    }

    /// The statement of [`Self::assign`]; none for a register that nothing reads after this region.
    pub fn assignment(&self, dst: RegId, value: impl std::fmt::Display) -> String {
        let name = self.reg(dst);
        if name.is_empty() {
            return name;
        }
        match self.kernel.width(dst) {
            Width::W16 => format!("{name} = (ushort)({value});"),
            _ => format!("{name} = {value};"),
        }
    }

    /// An operand's bits: an unsigned number of the type's size, a `bool` for predicates.
    pub fn bits(&self, ty: Type, operand: Operand) -> String {
        let size = ty.size_bytes();
        match operand {
            Operand::Imm(bits) if ty == Type::Pred => (bits & 1 == 1).to_string(),
            Operand::Imm(bits) => names::bits_constant(size, bits),
            Operand::Reg(reg) => {
                let width = self.kernel.width(reg);
                let name = self.reg(reg);
                if ty == Type::Pred || width.size_bytes() == size {
                    name
                } else {
                    format!("({}){name}", names::unsigned(size))
                }
            }
        }
    }

    /// An operand of an integer type as a C number: 8 and 16 bits as 32, with the type's sign.
    pub fn number(&self, ty: Type, operand: Operand) -> String {
        let size = ty.size_bytes();
        match (operand, ty.is_signed(), size) {
            (Operand::Imm(bits), true, _) => names::signed_constant(size, bits),
            (Operand::Imm(bits), false, 1 | 2) => names::bits_constant(4, bits & if size == 1 { 0xff } else { 0xffff }),
            (_, true, 1 | 2) => {
                let bits = self.bits(ty, operand);
                format!("(int)as_{}({bits})", names::signed(size))
            }
            (_, true, _) => format!("as_{}({})", names::signed(size), self.bits(ty, operand)),
            (_, false, 1 | 2) => format!("(uint){}", self.bits(ty, operand)),
            (_, false, _) => self.bits(ty, operand),
        }
    }

    pub fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            kernel: self.kernel.name.clone(),
            span: self.span,
            what,
        }
    }

    pub fn no_form(&self, what: impl Into<String>) -> Error {
        Error::NoForm {
            kernel: self.kernel.name.clone(),
            span: self.span,
            what: what.into(),
        }
    }
}
