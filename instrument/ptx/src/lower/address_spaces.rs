//! Which state space each generic address means.
//!
//! hetIR has no generic addresses of shared and local memory: offsets of one segment must not be mistaken for another's
//! on any device. So the front end finds out what each generic access reaches. An address comes from shared or local
//! memory, or from a kernel's parameters, only through `cvta.shared`, `cvta.local`, `cvta.param`; it is followed
//! through moves, additions (LLVM writes some as `or`) and selections, register by register (nvcc's registers are
//! nearly in SSA form, so the order of writes hardly matters). Everything else is global. An address of shared or local
//! memory that is stored, compared with a global one or computed with otherwise has left the kernel's sight; then all
//! are told apart when the kernel runs ([`super::generic_windows`]).

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AddressBase, AluOp, Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use crate::error::Reason;

/// A `cvta.to.shared` or `cvta.to.local`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Register that holds the result, and nothing else.
    pub(crate) result: RegId,
    /// The generic address.
    pub(crate) source: RegId,
    /// The space.
    pub(crate) space: Space,
    /// The address may be null instead; what is read there then counts for nothing.
    pub(crate) may_be_null: bool,
    /// Line of the PTX text.
    pub(crate) line: u32,
}

/// An `isspacep`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Predicate that holds the answer; one comparison of two constants writes it, of equal ones where the answer is
    /// yes.
    pub(crate) answer: RegId,
    /// The generic address.
    pub(crate) source: RegId,
    /// The space that is asked for: global, shared or local.
    pub(crate) space: Space,
    /// Line of the PTX text.
    pub(crate) line: u32,
}

/// Where generic addresses are made of others, made others, and asked for their space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversions<'a> {
    /// Registers that hold generic addresses of a space, and nothing else.
    pub(crate) origins: &'a [(RegId, Space)],
    /// Conversions back.
    pub(crate) ends: &'a [End],
    /// Questions.
    pub(crate) questions: &'a [Question],
}

pub(super) const SHARED: u8 = 1;
const LOCAL: u8 = 2;
const OTHER: u8 = 4;
const PARAM: u8 = 8;
pub(super) const SEGMENTS: u8 = SHARED | LOCAL | PARAM;

/// The kind of a segment's addresses.
const fn kind(segment: Space) -> u8 {
    match segment {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
        Space::Global | Space::Generic => OTHER,
    }
}

pub(super) const MIXED: Reason = Reason::GenericAddress(
    "the access names another state space than the generic address may belong to; this is not supported",
);
const UNKNOWN: Reason = Reason::GenericAddress("it is not known that the generic address points to this state space");

/// Gives every access in `kernel` a definite space, or says where that fails; then some may have one already.
pub(crate) fn resolve(kernel: &mut Kernel, conversions: &Conversions<'_>) -> Result<(), (u32, Reason)> {
    let spaces = Spaces::new(kernel, conversions);
    let Conversions {
        origins,
        ends,
        questions,
    } = *conversions;
    for question in questions {
        let space = match spaces.of(question.source) {
            SHARED => Space::Shared,
            LOCAL => Space::Local,
            // The window of parameters lies in that of global memory (PTX ISA, "Generic Addressing").
            found if found & SEGMENTS == 0 || found == PARAM => Space::Global,
            _ => return Err((question.line, MIXED)),
        };
        answer(kernel, question.answer, space == question.space);
    }
    for end in ends {
        match spaces.of(end.source) {
            found if found == kind(end.space) => {}
            found if found & SEGMENTS == 0 && end.may_be_null => {}
            found if found & SEGMENTS == 0 => return Err((end.line, UNKNOWN)),
            _ => return Err((end.line, MIXED)),
        }
    }
    for block in &mut kernel.blocks {
        for inst in &mut block.insts {
            let line = inst.span.line;
            if !origins.is_empty() {
                spaces.check_uses(inst).map_err(|reason| (line, reason))?;
            }
            let is_load = matches!(inst.op, Op::Load { .. });
            let (Op::Load { space, addr, .. } | Op::Store { space, addr, .. } | Op::Atom { space, addr, .. }) =
                &mut inst.op
            else {
                continue;
            };
            let found = match addr.base {
                AddressBase::Reg(reg) => spaces.of(reg),
                _ => OTHER,
            };
            let actual = match found {
                SHARED => Space::Shared,
                LOCAL => Space::Local,
                PARAM if is_load => Space::Param,
                _ if found & SEGMENTS == 0 => Space::Global,
                _ => return Err((line, MIXED)),
            };
            if *space == Space::Generic || (*space == Space::Global && actual == Space::Param) {
                *space = actual;
            } else if found & SEGMENTS != 0 {
                // `ld.global` through an address of another space.
                return Err((line, MIXED));
            }
        }
    }
    Ok(())
}

fn answer(kernel: &mut Kernel, answer: RegId, is_yes: bool) {
    for inst in kernel.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::Setp { dst, b, .. } = &mut inst.op
            && *dst == answer
        {
            *b = Operand::Imm(u64::from(!is_yes));
        }
    }
}

/// The instructions of a kernel, and which of them read each register.
struct Flows<'k> {
    insts: Vec<&'k Inst>,
    readers: Vec<Vec<usize>>,
}

impl<'k> Flows<'k> {
    fn new(kernel: &'k Kernel) -> Self {
        let insts: Vec<_> = kernel.insts().collect();
        let mut readers = vec![Vec::new(); kernel.registers.len()];
        for (index, inst) in insts.iter().enumerate() {
            inst.for_each_use(|reg| readers[reg.index()].push(index));
        }
        Self { insts, readers }
    }
}

/// What each register may hold, flow-insensitively.
pub(super) struct Spaces {
    of: Vec<u8>,
}

impl Spaces {
    pub(super) fn new(kernel: &Kernel, conversions: &Conversions<'_>) -> Self {
        let Conversions { origins, ends, .. } = *conversions;
        let mut spaces = Self {
            of: vec![0; kernel.registers.len()],
        };
        if origins.is_empty() {
            return spaces;
        }
        for (reg, space) in origins {
            spaces.of[reg.index()] = kind(*space);
        }
        let mut fixed = vec![false; kernel.registers.len()];
        let bounds = origins.iter().map(|(reg, _)| *reg).chain(ends.iter().map(|e| e.result));
        bounds.for_each(|reg| fixed[reg.index()] = true);
        // First where the segments' addresses flow, then what else flows into the same registers: an addition of an
        // index to an address must not count the index as an address.
        let flows = Flows::new(kernel);
        spaces.propagate(&flows, &fixed, SEGMENTS);
        spaces.propagate(&flows, &fixed, SEGMENTS | OTHER);
        spaces
    }

    /// Lets the kinds in `mask` flow until nothing changes.
    fn propagate(&mut self, flows: &Flows<'_>, fixed: &[bool], mask: u8) {
        let mut work: Vec<usize> = (0..flows.insts.len()).collect();
        while let Some(index) = work.pop() {
            let inst = flows.insts[index];
            let kinds = self.result(&inst.op) & mask;
            inst.for_each_def(|reg| {
                let slot = &mut self.of[reg.index()];
                if !fixed[reg.index()] && *slot | kinds != *slot {
                    *slot |= kinds;
                    work.extend(&flows.readers[reg.index()]);
                }
            });
        }
    }

    pub(super) fn of(&self, reg: RegId) -> u8 {
        self.of[reg.index()]
    }

    fn operand(&self, operand: &Operand) -> u8 {
        match operand {
            Operand::Reg(reg) => self.of(*reg),
            Operand::Imm(_) => OTHER,
        }
    }

    fn result(&self, op: &Op) -> u8 {
        match op {
            Op::Mov { src, .. } => self.operand(src),
            Op::Selp { a, b, .. } => self.operand(a) | self.operand(b),
            Op::Alu {
                op: AluOp::Add | AluOp::Or | AluOp::Sub,
                srcs,
                ..
            } => {
                let addresses = srcs.iter().map(|s| self.operand(s)).filter(|s| s & SEGMENTS != 0);
                match addresses.fold(0, |a, b| a | b) {
                    0 => OTHER,
                    found => found,
                }
            }
            _ => OTHER,
        }
    }

    /// An address of a segment may only be moved, offset, selected and used as an address.
    fn check_uses(&self, inst: &Inst) -> Result<(), Reason> {
        let mut escapes = false;
        let mut note = |operand: &Operand| escapes |= self.operand(operand) & SEGMENTS != 0;
        match &inst.op {
            Op::Mov { .. } | Op::Selp { .. } | Op::Load { .. } => {}
            // LLVM writes `or` for an offset below the alignment, which offsets of a segment have as generic addresses
            // do.
            Op::Alu {
                op: AluOp::Add | AluOp::Or,
                ..
            } => {}
            Op::Alu {
                op: AluOp::Sub, srcs, ..
            } => srcs.iter().skip(1).for_each(note),
            Op::Store { srcs, .. } | Op::Atom { srcs, .. } => srcs.iter().for_each(note),
            Op::Setp { a, b, .. } => {
                let (a, b) = (self.operand(a), self.operand(b));
                escapes = (a | b) & SEGMENTS != 0 && (a != b || a.count_ones() != 1);
            }
            op => op.for_each_use(|reg| note(&Operand::Reg(reg))),
        }
        if escapes { Err(MIXED) } else { Ok(()) }
    }
}
