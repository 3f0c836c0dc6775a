//! The state of a kernel's lowering, which the instruction families share. It knows none of them.

use std::collections::HashMap;

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{RegId, Span};
use hetckpt_ir::grid_workspace;
use hetckpt_ir::inst::{Guard, Inst, Op};
use hetckpt_ir::kernel::Variable;
use hetckpt_ir::types::{Space, Width};

use crate::ast;
use crate::device_functions;
use crate::error::Reason;
use crate::lower::address_spaces;
use crate::lower::barrier_numbers::BarrierNumbers;
use crate::lower::call_stack::CallStack;
use crate::lower::control_flow::{DraftId, Drafts};
use crate::lower::layout::{Placed, Segment, size_and_align};
use crate::lower::names::ModuleNames;
use crate::lower::scope::{Scope, Symbol};

/// Reasons given per kernel: enough to see what is missing, not one for each of a thousand instructions.
const MAX_REASONS: usize = 16;
/// Shared memory grows in steps of this, so that dynamic shared memory is aligned as every device needs it.
pub(super) const SEGMENT_ALIGN: u32 = 16;

/// A call being inlined.
pub(super) struct Frame<'a> {
    pub(super) name: &'a str,
    /// Where `ret` goes; `None` in the kernel itself.
    pub(super) return_to: Option<DraftId>,
}

/// One kernel, half lowered: what each instruction family reads and adds to.
pub(crate) struct KernelLowering<'m, 'a> {
    pub(crate) names: &'m ModuleNames<'m, 'a>,
    pub(super) entry: &'m ast::Function<'a>,
    pub(crate) registers: Vec<Width>,
    pub(crate) scopes: Vec<Scope<'a>>,
    pub(crate) drafts: Drafts,
    /// Guard of the instruction being lowered.
    pub(crate) guard: Option<Guard>,
    pub(super) span: Span,
    pub(super) reasons: Vec<String>,
    pub(super) frames: Vec<Frame<'a>>,
    pub(super) statements: usize,
    pub(super) shared: Segment,
    pub(super) shared_variables: Vec<Variable>,
    pub(super) module_shared: HashMap<&'a str, Symbol>,
    pub(super) local: Segment,
    pub(super) local_variables: Vec<Variable>,
    /// The instruction being lowered holds an offset from the start of dynamic shared memory, which is not known yet.
    pub(crate) uses_dynamic_shared: bool,
    pub(super) dynamic_shared: Vec<(DraftId, usize)>,
    pub(super) dynamic_align: u32,
    /// The carry flag, once something uses it.
    pub(super) carry_flag: Option<RegId>,
    /// Registers that hold the generic address of shared or local memory: results of `cvta.shared`, `cvta.local`.
    pub(crate) generic_origins: Vec<(RegId, Space)>,
    /// `vprintf` is called.
    pub(super) prints: bool,
    /// Size of the parameter buffer.
    pub(super) params: Segment,
    /// Offsets in shared memory of words for each thread ([`Self::place_unnamed_shared`]).
    pub(crate) shelves: Vec<u32>,
    /// Barriers that it and its functions name.
    pub(super) barriers: BarrierNumbers,
    /// Offset in shared memory of those that threads arrive at without waiting.
    pub(super) barrier_words: u32,
    /// It does what tensor cores do.
    pub(crate) multiplies_matrices: bool,
    /// It takes the address of a function, or calls one by it.
    pub(super) holds_functions: bool,
    /// It does what texture units do.
    pub(super) reads_images: bool,
    /// How often each name stands in the functions that have been looked at.
    pub(super) mentions: HashMap<&'a str, HashMap<&'a str, usize>>,
    /// The parameter for a grid's workspace is read.
    pub(super) reads_grid_workspace: bool,
    /// Functions that may call themselves.
    pub(super) call_stack: CallStack<'m, 'a>,
    /// Registers that hold what `cvta.to.shared`, `cvta.to.local` make of a generic address: result, source, space,
    /// line.
    pub(crate) generic_ends: Vec<address_spaces::End>,
    /// Where it is asked which space a generic address means.
    pub(crate) generic_questions: Vec<address_spaces::Question>,
}

impl<'m, 'a> KernelLowering<'m, 'a> {
    /// An entry of which nothing has been lowered.
    pub(super) fn new(names: &'m ModuleNames<'m, 'a>, entry: &'m ast::Function<'a>) -> Self {
        Self {
            names,
            entry,
            registers: Vec::new(),
            scopes: Vec::new(),
            drafts: Drafts::new(),
            guard: None,
            span: Span { line: entry.line },
            reasons: Vec::new(),
            frames: Vec::new(),
            statements: 0,
            shared: Segment::default(),
            shared_variables: Vec::new(),
            module_shared: HashMap::new(),
            local: Segment::default(),
            local_variables: Vec::new(),
            uses_dynamic_shared: false,
            dynamic_shared: Vec::new(),
            dynamic_align: SEGMENT_ALIGN,
            carry_flag: None,
            generic_origins: Vec::new(),
            prints: false,
            params: Segment::default(),
            shelves: Vec::new(),
            barriers: names
                .barriers
                .and(BarrierNumbers::of(entry.body.as_deref().unwrap_or_default())),
            barrier_words: 0,
            multiplies_matrices: false,
            holds_functions: false,
            reads_images: false,
            mentions: HashMap::new(),
            reads_grid_workspace: false,
            call_stack: CallStack::default(),
            generic_ends: Vec::new(),
            generic_questions: Vec::new(),
        }
    }

    /// A new register that no name stands for.
    pub(crate) fn scratch(&mut self, width: Width) -> RegId {
        new_register(&mut self.registers, width)
    }

    /// The register that stands for the condition code's carry flag.
    pub(crate) fn carry_flag(&mut self) -> RegId {
        let registers = &mut self.registers;
        *self
            .carry_flag
            .get_or_insert_with(|| new_register(registers, Width::Pred))
    }

    /// Offset of the parameter for a grid's workspace, which the kernel has from now on.
    pub(crate) fn grid_workspace(&mut self) -> u32 {
        self.reads_grid_workspace = true;
        self.params.size_bytes().next_multiple_of(grid_workspace::PARAM_BYTES)
    }

    /// The position of what is being lowered.
    pub(crate) const fn span(&self) -> Span {
        self.span
    }

    /// Appends an instruction under the guard of the one being lowered.
    pub(crate) fn emit(&mut self, op: Op) {
        let guard = self.guard;
        self.push(op, guard);
    }

    /// Appends an instruction without a guard: for results that only this lowering reads. Executing it where the guard
    /// does not hold changes nothing, and an unguarded write ends the register's live range.
    pub(crate) fn emit_unguarded(&mut self, op: Op) {
        self.push(op, None);
    }

    fn push(&mut self, op: Op, guard: Option<Guard>) {
        if std::mem::take(&mut self.uses_dynamic_shared) {
            let position = self.drafts.position();
            self.dynamic_shared.push(position);
        }
        self.drafts.push(Inst {
            op,
            guard,
            span: self.span,
        });
    }

    /// Ends the basic block.
    pub(crate) fn terminate(&mut self, terminator: Terminator) {
        self.drafts.terminate(terminator, self.span);
    }

    /// If the instruction is guarded: the code up to the result of this is reached only where the guard holds, and is
    /// not guarded itself. The result is to be given to [`Self::leave_guard`].
    pub(crate) fn branch_on_guard(&mut self) -> Option<DraftId> {
        let guard = self.guard.take()?;
        let (taken, not_taken) = (self.drafts.reserve(), self.drafts.reserve());
        self.terminate(Terminator::Branch {
            guard,
            taken,
            not_taken,
        });
        self.drafts.start(taken);
        Some(not_taken)
    }

    /// See [`Self::branch_on_guard`].
    pub(crate) fn leave_guard(&mut self, not_taken: Option<DraftId>) {
        if let Some(block) = not_taken {
            self.drafts.start(block);
        }
    }

    /// True within `vprintf`, which gets a null address where there are no arguments.
    pub(crate) fn is_in_vprintf(&self) -> bool {
        self.frames.last().is_some_and(|f| f.name == device_functions::VPRINTF)
    }

    /// What `ret` does here.
    pub(crate) fn return_terminator(&self) -> Terminator {
        match self.frames.last().and_then(|f| f.return_to) {
            Some(block) => Terminator::Jump(block),
            None => Terminator::Exit,
        }
    }

    /// Notes why the kernel cannot be lowered: because of the instruction of that name, if there is one.
    pub(super) fn reject(&mut self, instruction: Option<&str>, reason: &Reason) {
        if self.reasons.len() == MAX_REASONS {
            self.reasons.push("and more of the kind".to_owned());
        }
        if self.reasons.len() > MAX_REASONS {
            return;
        }
        let kernel = self.entry.name;
        let line = self.span.line;
        self.reasons.push(match (instruction, reason) {
            (_, Reason::Syntax(error)) => format!("kernel `{kernel}`, {error}"),
            (Some(name), _) => format!("kernel `{kernel}`, line {line}, `{name}`: {reason}"),
            (None, _) => format!("kernel `{kernel}`, line {line}: {reason}"),
        });
    }

    /// Lays out a variable of shared memory.
    pub(super) fn place_shared(&mut self, variable: &ast::Variable<'a>) -> Result<Symbol, Reason> {
        let (size, align) = size_and_align(variable)?;
        if variable.dims.iter().any(Option::is_none) {
            self.dynamic_align = self.dynamic_align.max(align);
            return Ok(Symbol::DynamicShared);
        }
        let Placed { offset, size_bytes } = self.shared.place(size, align)?;
        self.shared_variables.push(Variable {
            name: variable.name.to_owned(),
            offset,
            size_bytes,
        });
        Ok(Symbol::Shared(offset))
    }

    /// Room in shared memory that no variable has; its offset.
    pub(crate) fn place_unnamed_shared(&mut self, size_bytes: u32) -> Result<u32, Reason> {
        Ok(self.shared.place(size_bytes.into(), SEGMENT_ALIGN)?.offset)
    }

    /// Most threads of a block, if that is said.
    pub(crate) fn most_threads(&self) -> Option<u32> {
        let mut bounds = self.entry.directives.iter();
        let found = bounds.find(|(name, ..)| matches!(*name, "maxntid" | "reqntid"));
        let product = found?.1.iter().fold(1u64, |all, &axis| all.saturating_mul(axis));
        u32::try_from(product).ok()
    }

    /// Lays out a variable of local memory, or an aggregate that is passed to or from a function (`is_passed`).
    pub(super) fn place_local(&mut self, variable: &ast::Variable<'a>, is_passed: bool) -> Result<Symbol, Reason> {
        let (size, align) = size_and_align(variable)?;
        if let Some(current) = self.call_stack.current {
            let Placed { offset, .. } = self.call_stack.functions[current].frame.place(size, align)?;
            return Ok(match is_passed {
                true => Symbol::FrameAggregate(offset),
                false => Symbol::Frame(offset),
            });
        }
        let Placed { offset, size_bytes } = self.local.place(size, align)?;
        self.local_variables.push(Variable {
            name: variable.name.to_owned(),
            offset,
            size_bytes,
        });
        Ok(match is_passed {
            true => Symbol::CallAggregate(offset),
            false => Symbol::Local(offset),
        })
    }

    /// A module-level `.shared` variable, laid out in this kernel at its first use: kernels that do not use it do not
    /// pay for it.
    pub(crate) fn module_shared(&mut self, variable: &ast::Variable<'a>) -> Result<Symbol, Reason> {
        if let Some(symbol) = self.module_shared.get(variable.name) {
            return Ok(*symbol);
        }
        let symbol = self.place_shared(variable)?;
        self.module_shared.insert(variable.name, symbol);
        Ok(symbol)
    }
}

/// A new register of `width` in `registers`.
pub(crate) fn new_register(registers: &mut Vec<Width>, width: Width) -> RegId {
    let id = RegId::from_index(registers.len());
    registers.push(width);
    id
}
