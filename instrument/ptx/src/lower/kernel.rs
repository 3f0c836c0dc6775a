//! One kernel: its parameters and bounds, then its statements, with calls inlined.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::Span;
use hetckpt_ir::grid_workspace;
use hetckpt_ir::inst::{Comparison, Guard, Inst, Op, Operand};
use hetckpt_ir::kernel::{Kernel, LaunchBounds, LocalFrame, Param, SharedSegment};
use hetckpt_ir::types::{Space, Type};

use crate::ast::{self, DeclSpace, Statement};
use crate::error::Reason;
use crate::lower::address_spaces::{self, Conversions, End};
use crate::lower::call::{self, Call, Callee};
use crate::lower::control_flow::Drafts;
use crate::lower::layout::{Placed, size_and_align};
use crate::lower::lowering::{Frame, KernelLowering, SEGMENT_ALIGN};
use crate::lower::modifiers::type_named;
use crate::lower::names::ModuleNames;
use crate::lower::scope::{Scope, Symbol, register_width, width_of};
use crate::lower::{arrival_barrier, generic_windows, halves, in_step, instruction, recursion, warp_constants};
use crate::{device_functions, device_heap, images};

/// Statements of a kernel once its calls are inlined.
const MAX_STATEMENTS: usize = 1 << 20;
/// Calls inside one another.
const MAX_CALL_DEPTH: usize = 16;

/// Lowers one `.entry`, or says why not, one message per instruction.
pub(crate) fn lower_kernel(names: &ModuleNames<'_, '_>, entry: &ast::Function<'_>) -> Result<Kernel, Vec<String>> {
    let mut lowering = KernelLowering::new(names, entry);
    lowering.scopes.push(Scope::default());
    lowering.frames.push(Frame {
        name: entry.name,
        return_to: None,
    });
    let params = lowering.params();
    let result = arrival_barrier::begin(&mut lowering);
    lowering.attempt(entry.line, result);
    lowering.body(entry);
    lowering.recursive_functions();
    lowering.finish(params)
}

impl<'m, 'a> KernelLowering<'m, 'a> {
    fn attempt(&mut self, line: u32, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.span = Span { line };
            self.reject(None, &reason);
        }
    }

    fn params(&mut self) -> Vec<Param> {
        let mut params = Vec::new();
        let entry = self.entry;
        for param in &entry.params {
            let placed = size_and_align(param).and_then(|(size, align)| Ok((self.params.place(size, align)?, align)));
            let result = placed.and_then(|(Placed { offset, size_bytes }, align_bytes)| {
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

    /// Lowers the functions on the call stack, of which one may call another for the first time.
    fn recursive_functions(&mut self) {
        let mut index = 0;
        while let Some(function) = self.call_stack.functions.get(index).map(|f| f.function) {
            let result = recursion::begin(self, index);
            self.attempt(function.line, result);
            self.body(function);
            let result = recursion::end(self, index);
            self.attempt(function.line, result);
            index += 1;
        }
        recursion::dispatch(self);
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
            // Declared with the labels.
            Statement::Targets(_) => {}
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
        let is_ours = |name| device_functions::is_ours(name) || device_heap::is_ours(name) || images::is_ours(name);
        let is_supplied = self.frames.last().is_some_and(|f| is_ours(f.name));
        if !is_supplied {
            self.span = Span { line: inst.line };
        }
        let span = self.span;
        let result = self.guard_of(inst).and_then(|guard| {
            self.guard = guard;
            self.lower(inst)
        });
        self.guard = None;
        self.uses_dynamic_shared = false;
        if let Err(reason) = result {
            self.span = span;
            self.reject(Some(&inst.name()), &reason);
        }
    }

    /// A call is statements again; every other instruction is its family's business.
    fn lower(&mut self, inst: &'m ast::Instruction<'a>) -> Result<(), Reason> {
        if inst.opcode == "call" {
            match call::resolve(self, inst)? {
                Callee::Named(call) => self.inline(call),
                Callee::ByAddress(address, calls) => self.inline_one_of(address, calls),
            }
        } else {
            instruction::lower(self, inst)
        }
    }

    /// Declares the labels of the scope that `statements` starts in, so that branches can go forward.
    fn declare_labels(&mut self, statements: &'m [Statement<'a>]) {
        let mut depth = 0u32;
        let mut last_label = None;
        for statement in statements {
            let before = last_label.take();
            match statement {
                Statement::Open => depth += 1,
                Statement::Close if depth == 0 => return,
                Statement::Close => depth -= 1,
                Statement::Label(name, line) if depth == 0 => {
                    let block = self.drafts.reserve();
                    let result = self.scopes.last_mut().map_or(Ok(()), |s| s.declare_label(name, block));
                    self.attempt(*line, result);
                    last_label = Some(*name);
                }
                Statement::Targets(labels) if depth == 0 => {
                    if let (Some(name), Some(scope)) = (before, self.scopes.last_mut()) {
                        scope.declare_targets(name, labels);
                    }
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
            DeclSpace::Local => self.place_local(variable, false)?,
            DeclSpace::Param if variable.dims.is_empty() && variable.vector == 1 => {
                let ty = type_named(variable.ty).ok_or_else(|| Reason::Type(variable.ty.to_owned()))?;
                Symbol::CallScalar(self.scratch(width_of(ty)), ty)
            }
            DeclSpace::Param => self.place_local(variable, true)?,
            DeclSpace::Global | DeclSpace::Const => {
                return Err(Reason::Family("module variables inside a function"));
            }
        };
        self.scopes
            .last_mut()
            .map_or(Ok(()), |s| s.declare_symbol(variable.name, symbol))
    }

    /// Inlines the functions that a call by `address` may mean, each behind a comparison. Another address, and one that
    /// would be recursion, ends the kernel.
    fn inline_one_of(&mut self, address: Operand, calls: Vec<(u64, Call<'m, 'a>)>) -> Result<(), Reason> {
        let not_taken = self.branch_on_guard();
        let done = self.drafts.reserve();
        for (known, call) in calls {
            if self.frames.iter().any(|frame| frame.name == call.callee.name) {
                continue;
            }
            let is_meant = halves::compare(self, (Comparison::Eq, Type::B64), address, Operand::Imm(known), None);
            let (taken, other) = (self.drafts.reserve(), self.drafts.reserve());
            let guard = Guard {
                pred: is_meant,
                negated: false,
            };
            self.terminate(Terminator::Branch {
                guard,
                taken,
                not_taken: other,
            });
            self.drafts.start(taken);
            self.inline(call)?;
            self.terminate(Terminator::Jump(done));
            self.drafts.start(other);
        }
        self.terminate(Terminator::Trap);
        self.drafts.start(done);
        self.leave_guard(not_taken);
        Ok(())
    }

    /// Inlines a function (PTX ISA, "call").
    pub(super) fn inline(&mut self, call: Call<'m, 'a>) -> Result<(), Reason> {
        let Call { callee, bindings } = call;
        let refuse = |why| {
            Err(Reason::Call {
                name: callee.name.to_owned(),
                why,
            })
        };
        if callee.body.is_none() {
            return refuse("the function has no body in this module");
        }
        if self.names.recursive.contains(callee.name) {
            return recursion::call(self, Call { callee, bindings });
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
            if let Err(reason) = bound(&mut bounds, name, numbers) {
                self.span = Span { line: *line };
                self.reject(None, &reason);
            }
        }
        bounds
    }

    fn finish(mut self, mut params: Vec<Param>) -> Result<Kernel, Vec<String>> {
        let bounds = self.bounds();
        if self.reads_grid_workspace {
            params.push(Param {
                name: grid_workspace::PARAM.to_owned(),
                offset: self.grid_workspace(),
                size_bytes: grid_workspace::PARAM_BYTES,
                align_bytes: grid_workspace::PARAM_BYTES,
            });
        }
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
        let (blocks, places) = drafts.finish(end);
        let mut kernel = Kernel {
            name: self.entry.name.to_owned(),
            params,
            registers: std::mem::take(&mut self.registers),
            blocks,
            shared: SharedSegment {
                static_bytes: self.shared.size_bytes(),
                variables: std::mem::take(&mut self.shared_variables),
            },
            local: LocalFrame {
                size_bytes: self.local.size_bytes(),
                variables: std::mem::take(&mut self.local_variables),
            },
            bounds,
            multiplies_matrices: self.multiplies_matrices,
            reads_images: self.reads_images,
            holds_functions: self.holds_functions,
            has_call_stack: self.call_stack.base.is_some(),
            resume_points: Vec::new(),
        };
        if self.reasons.is_empty() {
            let resolved = resolve_generic(
                &mut kernel,
                &Conversions {
                    origins: &self.generic_origins,
                    ends: &self.generic_ends,
                    questions: &self.generic_questions,
                },
            );
            if let Err((line, reason)) = resolved {
                self.span = Span { line };
                self.reject(None, &reason);
            }
            self.call_stack.save_registers(&mut kernel, &places);
            warp_constants::fold(&mut kernel);
            in_step::insert_steps(&mut kernel);
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

/// Gives every access of `kernel` a definite space, now or when it runs.
fn resolve_generic(kernel: &mut Kernel, conversions: &Conversions<'_>) -> Result<(), (u32, Reason)> {
    // Parameters have no window: their addresses are known, or the kernel is refused.
    let has_windows = |&(_, space): &(_, Space)| space != Space::Param;
    // Where there are no such addresses, whoever converts one back has asked before and does not come there.
    let is_asked_for = |end: &End| conversions.questions.iter().any(|question| question.space == end.space);
    let is_never_reached = !conversions.ends.is_empty() && conversions.ends.iter().all(is_asked_for);
    let is_needed = !conversions.origins.is_empty() || is_never_reached;
    let can_be_told_apart = is_needed && conversions.origins.iter().all(has_windows);
    let unresolved = can_be_told_apart.then(|| kernel.clone());
    let resolved = address_spaces::resolve(kernel, conversions);
    match (resolved, unresolved) {
        (Err(_), Some(unresolved)) => {
            *kernel = unresolved;
            generic_windows::apply(kernel, conversions)?;
            // For accesses that are never reached.
            let is_local = |inst: &Inst| {
                matches!(
                    inst.op,
                    Op::Load {
                        space: Space::Local,
                        ..
                    } | Op::Store {
                        space: Space::Local,
                        ..
                    } | Op::Atom {
                        space: Space::Local,
                        ..
                    }
                )
            };
            if kernel.insts().any(is_local) {
                kernel.local.size_bytes = kernel.local.size_bytes.max(SEGMENT_ALIGN);
            }
            Ok(())
        }
        (resolved, _) => resolved,
    }
}

/// Takes a directive into the bounds, if it is one of those.
fn bound(bounds: &mut LaunchBounds, directive: &str, numbers: &[u64]) -> Result<(), Reason> {
    let number = |at: usize| {
        numbers.get(at).map_or(Ok(1), |&found| {
            u32::try_from(found).map_err(|_| Reason::Limit {
                what: "a launch bound",
                found,
                limit: u32::MAX.into(),
            })
        })
    };
    match directive {
        "maxntid" => bounds.max_ntid = Some([number(0)?, number(1)?, number(2)?]),
        "reqntid" => bounds.req_ntid = Some([number(0)?, number(1)?, number(2)?]),
        "minnctapersm" => bounds.min_cta_per_sm = Some(number(0)?),
        "maxnreg" => bounds.max_registers = Some(number(0)?),
        "maxnctapersm" | "maxclusterrank" | "noreturn" | "abi_preserve" | "abi_preserve_control" => {}
        other => return Err(Reason::Modifier(other.to_owned())),
    }
    Ok(())
}
