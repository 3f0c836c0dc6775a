//! The stack of functions that may call themselves: what is known of it, and the registers that are saved in it.
//!
//! Such a function is a part of the kernel, with registers of its own and blocks that all its calls jump to. Each call
//! in progress has a *frame* in the thread's local memory:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | number of the call, by which it returns to where it came from |
//! | 8 to 15 | frame of the caller |
//! | 16 and on | parameters and results that are no scalars, and variables |
//! | behind these | the function's registers, saved while it waits for a call that may be of itself |
//!
//! Two registers point to the frame of the function that runs and behind it.

use std::ops::Range;

use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::{Address, AddressBase, AluOp, Comparison, Inst, Op, Operand, Ordering};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast;
use crate::lower::control_flow::DraftId;
use crate::lower::layout::Segment;
use crate::lower::scope::Symbol;

/// Bytes for all frames of a thread. GPUs give 1024 by default. A call that finds no room ends the kernel.
pub(crate) const STACK_BYTES: u32 = 8 << 10;
/// Most bytes of a frame's header and arguments. There is room for them behind the last frame: a caller writes them
/// before the function looks for room.
pub(crate) const MAX_ARGUMENT_BYTES: u32 = 1 << 10;
/// Bytes of a frame before all else.
pub(crate) const HEADER_BYTES: u32 = 16;
/// Alignment of frames.
pub(crate) const FRAME_ALIGN: u32 = 16;
/// Bytes of a saved register.
const SLOT_BYTES: u32 = 8;

/// What a kernel knows of its own.
#[derive(Default)]
pub(crate) struct CallStack<'m, 'a> {
    /// Once there is one.
    pub(crate) base: Option<Base>,
    pub(crate) functions: Vec<Instance<'m, 'a>>,
    /// Calls, in the order of their numbers.
    pub(crate) sites: Vec<Site>,
    /// The function whose body is being lowered.
    pub(crate) current: Option<usize>,
}

/// Where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    /// Offset in the local frame.
    pub(crate) at: u32,
    /// Register that points to the frame of the function that runs.
    pub(crate) frame: RegId,
    /// Register that points behind it.
    pub(crate) top: RegId,
}

/// A function that may call itself.
pub(crate) struct Instance<'m, 'a> {
    pub(crate) function: &'m ast::Function<'a>,
    pub(crate) entry: DraftId,
    /// Where `ret` goes.
    pub(crate) returns: DraftId,
    /// Where it is found out which call returns, by a register.
    pub(crate) dispatch: (DraftId, RegId),
    /// What its results' and parameters' names stand for.
    pub(crate) bindings: Vec<(&'a str, Symbol)>,
    /// Its frame without saved registers.
    pub(crate) frame: Segment,
    /// Registers that its body has made.
    pub(crate) registers: Range<usize>,
}

/// A call.
pub(crate) struct Site {
    /// The function that it stands in, if that may call itself.
    pub(crate) caller: Option<usize>,
    pub(crate) callee: usize,
    /// A block before the arguments are passed.
    pub(crate) before: DraftId,
    /// The block that jumps to the function.
    pub(crate) jumps: DraftId,
    /// Where it goes on.
    pub(crate) resume: DraftId,
    pub(crate) span: Span,
}

impl Base {
    /// A place in the frame of the function that runs.
    pub(crate) const fn in_frame(self, offset: u32) -> Address {
        at(self.frame, offset)
    }

    /// A place in the frame of a function that is about to be called, or has just returned.
    pub(crate) const fn in_next_frame(self, offset: u32) -> Address {
        at(self.top, offset)
    }

    /// The instruction that makes room for a frame of `size_bytes`.
    pub(crate) fn make_room(self, size_bytes: u32) -> Op {
        Op::Alu {
            op: AluOp::Add,
            ty: Type::U64,
            mods: hetckpt_ir::inst::Modifiers::default(),
            dst: self.top,
            srcs: vec![Operand::Reg(self.top), Operand::Imm(size_bytes.into())],
        }
    }
}

const fn at(register: RegId, offset: u32) -> Address {
    Address {
        base: AddressBase::Reg(register),
        offset: offset as i64,
    }
}

impl CallStack<'_, '_> {
    /// Has functions save the registers that they need behind a call, and gives their frames their sizes. `place` says
    /// which block of `kernel` a drafted one has become, if it can be reached.
    pub(crate) fn save_registers(&self, kernel: &mut Kernel, place: &[Option<BbId>]) {
        let Some(base) = self.base else { return };
        let liveness = Liveness::new(&self.each_function_by_itself(kernel, place));
        let mut saved_bytes = vec![0; self.functions.len()];
        for site in &self.sites {
            let (Some(caller), Some(before), Some(resume)) =
                (site.caller, place[site.before.index()], place[site.resume.index()])
            else {
                continue;
            };
            let live: Vec<RegId> = liveness
                .live_in(resume)
                .iter()
                .filter(|&reg| self.is_of(caller, reg))
                .collect();
            let first = self.functions[caller].frame.size_bytes().next_multiple_of(SLOT_BYTES);
            let (mut saves, mut restores) = (Vec::new(), Vec::new());
            for (reg, slot) in live.iter().zip((first..).step_by(SLOT_BYTES as usize)) {
                let (save, restore) = both_ways(kernel, *reg, base.in_frame(slot));
                saves.extend(save);
                restores.extend(restore);
            }
            let inst = |op| Inst {
                op,
                guard: None,
                span: site.span,
            };
            kernel.blocks[before.index()].insts.extend(saves.into_iter().map(inst));
            kernel.blocks[resume.index()]
                .insts
                .splice(0..0, restores.into_iter().map(inst));
            let bytes = SLOT_BYTES * u32::try_from(live.len()).unwrap_or(u32::MAX / SLOT_BYTES);
            saved_bytes[caller] = bytes.max(saved_bytes[caller]);
        }
        for (function, saved) in self.functions.iter().zip(saved_bytes) {
            let Some(entry) = place[function.entry.index()] else {
                continue;
            };
            let size = function
                .frame
                .size_bytes()
                .next_multiple_of(SLOT_BYTES)
                .saturating_add(saved);
            let room = base.make_room(size.next_multiple_of(FRAME_ALIGN));
            let insts = &mut kernel.blocks[entry.index()].insts;
            if let Some(inst) = insts.iter_mut().find(|inst| inst.op == base.make_room(0)) {
                inst.op = room;
            }
        }
    }

    /// The kernel as each function sees it: calls go on behind themselves, and functions return to nobody. What a
    /// function needs behind two calls is not needed by what the first one calls.
    fn each_function_by_itself(&self, kernel: &Kernel, place: &[Option<BbId>]) -> Kernel {
        let mut apart = kernel.clone();
        for site in &self.sites {
            if let (Some(jumps), Some(resume)) = (place[site.jumps.index()], place[site.resume.index()]) {
                apart.blocks[jumps.index()].terminator = Terminator::Jump(resume);
            }
        }
        for dispatch in self.functions.iter().filter_map(|f| place[f.dispatch.0.index()]) {
            apart.blocks[dispatch.index()].terminator = Terminator::Exit;
        }
        apart
    }

    /// True if a call by `caller` may change a register under it: its own, but for results.
    fn is_of(&self, caller: usize, reg: RegId) -> bool {
        let function = &self.functions[caller];
        let is_among = |bindings: &[(&str, Symbol)]| {
            let mut symbols = bindings.iter().map(|(_, symbol)| symbol);
            symbols.any(|symbol| matches!(symbol, Symbol::CallScalar(held, _) if *held == reg))
        };
        let is_pointer = self.base.is_some_and(|base| reg == base.frame || reg == base.top);
        let is_own = function.registers.contains(&reg.index()) || is_among(&function.bindings);
        let mut results = self.functions.iter().map(|f| &f.bindings[..f.function.results.len()]);
        is_own && !is_pointer && !results.any(is_among)
    }
}

/// Instructions that save a register, and that restore it.
fn both_ways(kernel: &mut Kernel, reg: RegId, addr: Address) -> (Vec<Op>, Vec<Op>) {
    let (width, mut held) = (kernel.registers[reg.index()], reg);
    let (mut saves, mut restores) = (Vec::new(), Vec::new());
    let ty = match width {
        Width::Pred | Width::W32 => Type::B32,
        Width::W16 => Type::B16,
        Width::W64 => Type::B64,
    };
    if width == Width::Pred {
        held = RegId::from_index(kernel.registers.len());
        kernel.registers.push(Width::W32);
        saves.push(Op::Selp {
            ty,
            dst: held,
            a: Operand::Imm(1),
            b: Operand::Imm(0),
            pred: reg,
        });
    }
    saves.push(Op::Store {
        space: Space::Local,
        ty,
        ordering: Ordering::Weak,
        addr: addr.clone(),
        srcs: vec![Operand::Reg(held)],
    });
    restores.push(Op::Load {
        space: Space::Local,
        ty,
        ordering: Ordering::Weak,
        dsts: vec![Some(held)],
        addr,
    });
    if width == Width::Pred {
        restores.push(Op::Setp {
            cmp: Comparison::Ne,
            ty,
            ftz: false,
            dst: reg,
            dst_not: None,
            a: Operand::Reg(held),
            b: Operand::Imm(0),
            combine: None,
        });
    }
    (saves, restores)
}
