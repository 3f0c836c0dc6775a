//! One kernel: its parameters and bounds, then its statements, with calls inlined.

use std::collections::HashMap;

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{RegId, Span};
use hetckpt_ir::inst::{Guard, Inst, Op};
use hetckpt_ir::kernel::{Kernel, LaunchBounds, LocalFrame, Param, SharedSegment, Variable};
use hetckpt_ir::types::{Space, Width};

use crate::ast::{self, DeclSpace, Statement};
use crate::device_functions;
use crate::error::Reason;
use crate::lower::control_flow::{DraftId, Drafts};
use crate::lower::layout::{Segment, size_and_align};
use crate::lower::scope::{Scope, Symbol, register_width};
use crate::lower::{ModuleNames, address_spaces, instruction, warp_constants};

/// Reasons given per kernel: enough to see what is missing, not one for each of a thousand instructions.
const MAX_REASONS: usize = 16;
/// Statements of a kernel once its calls are inlined.
const MAX_STATEMENTS: usize = 1 << 20;
/// Calls inside one another.
const MAX_CALL_DEPTH: usize = 16;
/// Shared memory grows in steps of this, so that dynamic shared memory is aligned as every device needs it.
const SEGMENT_ALIGN: u32 = 16;

/// Lowers one `.entry`, or says why not, one message per instruction.
pub(crate) fn lower_kernel(names: &ModuleNames<'_, '_>, entry: &ast::Function<'_>) -> Result<Kernel, Vec<String>> {
    let mut lowering = KernelLowering::new(names, entry);
    lowering.scopes.push(Scope::default());
    lowering.frames.push(Frame {
        name: entry.name,
        return_to: None,
    });
    let params = lowering.params();
    lowering.body(entry);
    lowering.finish(params)
}

/// A call being inlined.
struct Frame<'a> {
    name: &'a str,
    /// Where `ret` goes; `None` in the kernel itself.
    return_to: Option<DraftId>,
}

/// The kernel so far.
pub(crate) struct KernelLowering<'m, 'a> {
    pub(crate) names: &'m ModuleNames<'m, 'a>,
    entry: &'m ast::Function<'a>,
    pub(crate) registers: Vec<Width>,
    pub(crate) scopes: Vec<Scope<'a>>,
    pub(crate) drafts: Drafts,
    /// Guard of the instruction being lowered.
    pub(crate) guard: Option<Guard>,
    span: Span,
    reasons: Vec<String>,
    frames: Vec<Frame<'a>>,
    statements: usize,
    shared: Segment,
    shared_variables: Vec<Variable>,
    module_shared: HashMap<&'a str, Symbol>,
    local: Segment,
    local_variables: Vec<Variable>,
    /// The instruction being lowered holds an offset from the start of dynamic shared memory, which is not known yet.
    pub(crate) uses_dynamic_shared: bool,
    dynamic_shared: Vec<(DraftId, usize)>,
    dynamic_align: u32,
    /// The carry flag, once something uses it.
    carry_flag: Option<RegId>,
    /// Registers that hold the generic address of shared or local memory: results of `cvta.shared`, `cvta.local`.
    pub(crate) generic_origins: Vec<(RegId, Space)>,
    /// `vprintf` is called.
    prints: bool,
    /// Registers that hold what `cvta.to.shared`, `cvta.to.local` make of a generic address: result, source, space, line.
    pub(crate) generic_ends: Vec<address_spaces::End>,
}

impl<'m, 'a> KernelLowering<'m, 'a> {
    fn new(names: &'m ModuleNames<'m, 'a>, entry: &'m ast::Function<'a>) -> Self {
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
            generic_ends: Vec::new(),
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

    fn reject(&mut self, instruction: Option<&str>, reason: &Reason) {
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

    fn attempt(&mut self, line: u32, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.span = Span { line };
            self.reject(None, &reason);
        }
    }

    fn params(&mut self) -> Vec<Param> {
        let mut params = Vec::new();
        let mut buffer = Segment::default();
        let entry = self.entry;
        for param in &entry.params {
            let placed = size_and_align(param).and_then(|(size, align)| Ok((size, align, buffer.place(size, align)?)));
            let result = placed.and_then(|(size, align_bytes, offset)| {
                let size_bytes = u32::try_from(size).unwrap_or(u32::MAX);
                params.push(Param {
                    name: param.name.to_owned(),
                    offset,
                    size_bytes,
                    align_bytes,
                });
                match self.scopes.first_mut() {
                    Some(scope) => scope.declare_symbol(param.name, Symbol::Param(offset)),
                    None => Ok(()),
                }
            });
            self.attempt(param.line, result);
        }
        params
    }

    fn body(&mut self, function: &'m ast::Function<'a>) {
        for error in &function.errors {
            self.reject(None, &Reason::Syntax(error.clone()));
        }
        let statements = function.body.as_deref().unwrap_or_default();
        self.declare_labels(statements);
        for (index, statement) in statements.iter().enumerate() {
            self.statements += 1;
            if self.statements > MAX_STATEMENTS {
                let limit = MAX_STATEMENTS as u64;
                self.reject(
                    None,
                    &Reason::Limit {
                        what: "an inlined kernel",
                        found: limit + 1,
                        limit,
                    },
                );
                return;
            }
            self.statement(statement, statements.get(index + 1..).unwrap_or_default());
        }
    }

    fn statement(&mut self, statement: &'m Statement<'a>, rest: &'m [Statement<'a>]) {
        match statement {
            Statement::Open => {
                self.scopes.push(Scope::default());
                self.declare_labels(rest);
            }
            Statement::Close => {
                self.scopes.pop();
            }
            Statement::Label(name, _) => {
                if let Some(block) = self.scopes.last().and_then(|s| s.label(name)) {
                    self.drafts.start(block);
                }
            }
            Statement::Registers(registers) => {
                let result = self.declare_registers(registers);
                self.attempt(registers.line, result);
            }
            Statement::Variable(variable) => {
                let result = self.declare_variable(variable);
                self.attempt(variable.line, result);
            }
            Statement::Instruction(inst) => self.instruction(inst),
        }
    }

    fn instruction(&mut self, inst: &'m ast::Instruction<'a>) {
        // The lines of the functions that we supply would mean nothing to anybody.
        let is_supplied = self.frames.last().is_some_and(|f| device_functions::is_ours(f.name));
        if !is_supplied {
            self.span = Span { line: inst.line };
        }
        let span = self.span;
        let result = self.guard_of(inst).and_then(|guard| {
            self.guard = guard;
            instruction::lower(self, inst)
        });
        self.guard = None;
        self.uses_dynamic_shared = false;
        if let Err(reason) = result {
            self.span = span;
            self.reject(Some(&inst.name()), &reason);
        }
    }

    /// Declares the labels of the scope that `statements` starts in, so that branches can go forward.
    fn declare_labels(&mut self, statements: &'m [Statement<'a>]) {
        let mut depth = 0u32;
        for statement in statements {
            match statement {
                Statement::Open => depth += 1,
                Statement::Close if depth == 0 => return,
                Statement::Close => depth -= 1,
                Statement::Label(name, line) if depth == 0 => {
                    let block = self.drafts.reserve();
                    let result = self.scopes.last_mut().map_or(Ok(()), |s| s.declare_label(name, block));
                    self.attempt(*line, result);
                }
                _ => {}
            }
        }
    }

    fn declare_registers(&mut self, registers: &ast::Registers<'a>) -> Result<(), Reason> {
        let width = register_width(registers.ty)?;
        let Some(scope) = self.scopes.last_mut() else {
            return Ok(());
        };
        for (name, count) in &registers.names {
            scope.declare_registers(name, *count, width)?;
        }
        Ok(())
    }

    fn declare_variable(&mut self, variable: &'m ast::Variable<'a>) -> Result<(), Reason> {
        let symbol = match variable.space {
            DeclSpace::Shared => self.place_shared(variable)?,
            DeclSpace::Local => Symbol::Local(self.place_local(variable)?),
            DeclSpace::Param if variable.dims.is_empty() && variable.vector == 1 => {
                let ty =
                    super::modifiers::type_named(variable.ty).ok_or_else(|| Reason::Type(variable.ty.to_owned()))?;
                Symbol::CallScalar(self.scratch(super::scope::width_of(ty)), ty)
            }
            DeclSpace::Param => Symbol::CallAggregate(self.place_local(variable)?),
            DeclSpace::Global | DeclSpace::Const => {
                return Err(Reason::Family("module variables inside a function"));
            }
        };
        self.scopes
            .last_mut()
            .map_or(Ok(()), |s| s.declare_symbol(variable.name, symbol))
    }

    fn place_shared(&mut self, variable: &ast::Variable<'a>) -> Result<Symbol, Reason> {
        let (size, align) = size_and_align(variable)?;
        if variable.dims.iter().any(Option::is_none) {
            self.dynamic_align = self.dynamic_align.max(align);
            return Ok(Symbol::DynamicShared);
        }
        let offset = self.shared.place(size, align)?;
        let size_bytes = u32::try_from(size).unwrap_or(u32::MAX);
        self.shared_variables.push(Variable {
            name: variable.name.to_owned(),
            offset,
            size_bytes,
        });
        Ok(Symbol::Shared(offset))
    }

    fn place_local(&mut self, variable: &ast::Variable<'a>) -> Result<u32, Reason> {
        let (size, align) = size_and_align(variable)?;
        let offset = self.local.place(size, align)?;
        let size_bytes = u32::try_from(size).unwrap_or(u32::MAX);
        self.local_variables.push(Variable {
            name: variable.name.to_owned(),
            offset,
            size_bytes,
        });
        Ok(offset)
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

    /// Inlines `callee` (PTX ISA, "call"): `bindings` are its results and parameters.
    pub(crate) fn inline(
        &mut self,
        callee: &'m ast::Function<'a>,
        bindings: Vec<(&'a str, Symbol)>,
    ) -> Result<(), Reason> {
        let refuse = |why| {
            Err(Reason::Call {
                name: callee.name.to_owned(),
                why,
            })
        };
        if callee.body.is_none() {
            return refuse("the function has no body in this module");
        }
        if self.frames.iter().any(|f| f.name == callee.name) {
            return refuse("recursion is not supported");
        }
        if self.frames.len() > MAX_CALL_DEPTH {
            return refuse("they are nested too deeply to be inlined");
        }
        let mut scope = Scope::default();
        for (name, symbol) in bindings {
            scope.declare_symbol(name, symbol)?;
        }
        self.prints |= callee.name == device_functions::VPRINTF;
        let not_taken = self.branch_on_guard();
        let return_to = self.drafts.reserve();
        let span = self.span;
        let callers = std::mem::replace(&mut self.scopes, vec![scope]);
        self.frames.push(Frame {
            name: callee.name,
            return_to: Some(return_to),
        });
        self.body(callee);
        self.frames.pop();
        self.scopes = callers;
        self.span = span;
        self.drafts.start(return_to);
        self.leave_guard(not_taken);
        Ok(())
    }

    fn bounds(&mut self) -> LaunchBounds {
        let mut bounds = LaunchBounds::default();
        let entry = self.entry;
        for (name, numbers, line) in &entry.directives {
            let number = |at: usize| numbers.get(at).map_or(1, |n| u32::try_from(*n).unwrap_or(u32::MAX));
            match *name {
                "maxntid" => bounds.max_ntid = Some([number(0), number(1), number(2)]),
                "reqntid" => bounds.req_ntid = Some([number(0), number(1), number(2)]),
                "minnctapersm" => bounds.min_cta_per_sm = Some(number(0)),
                "maxnreg" => bounds.max_registers = Some(number(0)),
                "maxnctapersm" | "noreturn" | "abi_preserve" | "abi_preserve_control" => {}
                other => {
                    self.span = Span { line: *line };
                    self.reject(None, &Reason::Modifier(other.to_owned()));
                }
            }
        }
        bounds
    }

    fn finish(mut self, params: Vec<Param>) -> Result<Kernel, Vec<String>> {
        let bounds = self.bounds();
        self.shared
            .round_up(SEGMENT_ALIGN.max(if self.dynamic_shared.is_empty() {
                0
            } else {
                self.dynamic_align
            }));
        if self.prints
            && let Err(reason) = self.local.place(self.names.printf_bytes.into(), 8)
        {
            // The arguments of the last variable may be fewer than are read.
            self.reject(None, &reason);
        }
        self.local.round_up(SEGMENT_ALIGN);
        self.bind_dynamic_shared();
        let end = Span { line: self.span.line };
        let drafts = std::mem::replace(&mut self.drafts, Drafts::new());
        let mut kernel = Kernel {
            name: self.entry.name.to_owned(),
            params,
            registers: std::mem::take(&mut self.registers),
            blocks: drafts.finish(end),
            shared: SharedSegment {
                static_bytes: self.shared.size_bytes(),
                variables: std::mem::take(&mut self.shared_variables),
            },
            local: LocalFrame {
                size_bytes: self.local.size_bytes(),
                variables: std::mem::take(&mut self.local_variables),
            },
            bounds,
            resume_points: Vec::new(),
        };
        if self.reasons.is_empty() {
            if let Err((line, reason)) = address_spaces::resolve(&mut kernel, &self.generic_origins, &self.generic_ends)
            {
                self.span = Span { line };
                self.reject(None, &reason);
            }
            warp_constants::fold(&mut kernel);
        }
        if !self.reasons.is_empty() {
            return Err(self.reasons);
        }
        // What no lowering checks, such as constant addresses outside of a variable's segment.
        match hetckpt_ir::validate::kernel(&kernel) {
            Ok(()) => Ok(kernel),
            Err(error) => Err(vec![error.to_string()]),
        }
    }

    /// Offsets of dynamic shared memory were counted from its start; now the static part is known.
    fn bind_dynamic_shared(&mut self) {
        let start = i64::from(self.shared.size_bytes());
        for position in std::mem::take(&mut self.dynamic_shared) {
            if let Some(Inst { op, .. }) = self.drafts.inst_mut(position)
                && let Op::AddrOf { addr, .. } | Op::Load { addr, .. } | Op::Store { addr, .. } | Op::Atom { addr, .. } =
                    op
            {
                addr.offset = addr.offset.wrapping_add(start);
            }
        }
    }
}

/// A new register of `width` in `registers`.
pub(crate) fn new_register(registers: &mut Vec<Width>, width: Width) -> RegId {
    let id = RegId(u32::try_from(registers.len()).unwrap_or(u32::MAX));
    registers.push(width);
    id
}
