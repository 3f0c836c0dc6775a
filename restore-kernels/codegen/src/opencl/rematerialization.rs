//! Registers that are computed anew: after the threads of a block have met, and where they go on.
//!
//! Compilers for processors run a block as loops over its threads, from barrier to barrier, and keep what each thread
//! needs later in arrays. Addresses that depend on the thread's index alone, like its place in shared memory, they move
//! before all barriers, one by one, and fetch each from an array again: then no access looks contiguous to them, and
//! nothing is vectorised. So where many loads follow a meeting, what follows from the index and the launch in a few
//! instructions is computed again, from an index to which a word of local memory is added that is always zero, which
//! compilers cannot know.

use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AddressBase, AluOp, Inst, Op, SpecialReg};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

/// Loads from shared memory between two meetings from which on it pays.
const MIN_LOADS: u32 = 8;

/// The most instructions for one register.
const MAX_INSTS: u32 = 8;

/// What a register follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// More than the launch and the thread's index.
    Other,
    /// The launch.
    Launch,
    /// The launch and the thread's index, in so many instructions.
    Thread(u32),
}

/// Registers of a kernel that can be computed anew.
#[derive(Debug, Default)]
pub(super) struct Rematerialization {
    /// The register, its instruction and whether it follows from the thread's index; operands first.
    insts: Vec<(RegId, Inst, bool)>,
}

impl Rematerialization {
    /// Finds them.
    pub fn of(kernel: &Kernel) -> Self {
        let mut num_defs = vec![0u32; kernel.registers.len()];
        let insts = || kernel.insts();
        insts().for_each(|inst| inst.for_each_def(|reg| num_defs[reg.index()] += 1));
        for block in &kernel.blocks {
            if let Some(reg) = block.terminator.def() {
                num_defs[reg.index()] += 2;
            }
        }
        let mut origins = vec![Origin::Other; kernel.registers.len()];
        let mut found = Self::default();
        // Blocks stand mostly in an order in which operands come first.
        for inst in insts() {
            let Some(reg) = single_def(inst) else { continue };
            if num_defs[reg.index()] != 1 || inst.guard.is_some() || origins[reg.index()] != Origin::Other {
                continue;
            }
            let origin = origin(inst, &origins);
            origins[reg.index()] = origin;
            if origin != Origin::Other {
                let is_of_thread = matches!(origin, Origin::Thread(_));
                found.insts.push((reg, inst.clone(), is_of_thread));
            }
        }
        found
    }

    /// Instructions that compute addresses anew for what stands between a meeting and the next; none where it does not
    /// pay: with a store among the accesses compilers must take the word of local memory for another in each thread.
    pub fn before(&self, insts: &[Inst]) -> Vec<Inst> {
        let (mut wanted, mut num_loads) = (RegSet::default(), 0);
        for inst in insts {
            match &inst.op {
                Op::Load {
                    space: Space::Shared,
                    addr,
                    ..
                } => {
                    if let AddressBase::Reg(reg) = addr.base {
                        wanted.insert(reg);
                        num_loads += 1;
                    }
                }
                Op::Store { .. } | Op::Atom { .. } => return Vec::new(),
                Op::Warp { .. } => break,
                _ => {}
            }
        }
        if num_loads < MIN_LOADS {
            return Vec::new();
        }
        self.chosen(wanted, |is_of_thread| is_of_thread)
    }

    /// True if a register can be computed anew.
    pub fn computes(&self, reg: RegId) -> bool {
        self.insts.iter().any(|(computed, ..)| *computed == reg)
    }

    /// Instructions that compute registers from the launch and the thread's index alone.
    pub fn all_for(&self, wanted: RegSet) -> Vec<Inst> {
        self.chosen(wanted, |_| true)
    }

    fn chosen(&self, mut wanted: RegSet, is_taken: impl Fn(bool) -> bool) -> Vec<Inst> {
        let mut chosen = Vec::new();
        for (reg, inst, is_of_thread) in self.insts.iter().rev() {
            if wanted.contains(*reg) && is_taken(*is_of_thread) {
                inst.for_each_use(|operand| _ = wanted.insert(operand));
                chosen.push(inst.clone());
            }
        }
        chosen.reverse();
        chosen
    }
}

fn single_def(inst: &Inst) -> Option<RegId> {
    let (mut first, mut count) = (None, 0);
    inst.for_each_def(|reg| {
        first = first.or(Some(reg));
        count += 1;
    });
    first.filter(|_| count == 1)
}

fn origin(inst: &Inst, origins: &[Origin]) -> Origin {
    let own = match &inst.op {
        Op::ReadSpecial { special, .. } => match special {
            SpecialReg::Tid(_) => return Origin::Thread(1),
            SpecialReg::Ntid(_) | SpecialReg::Ctaid(_) | SpecialReg::Nctaid(_) => Origin::Launch,
            _ => Origin::Other,
        },
        Op::Load {
            space: Space::Param, ..
        }
        | Op::Mov { .. }
        | Op::AddrOf { .. }
        | Op::Selp { .. }
        | Op::Setp { .. } => Origin::Launch,
        Op::Alu { op, ty, .. } if !ty.is_float() && !matches!(op, AluOp::Div | AluOp::Rem) => Origin::Launch,
        Op::Cvt { dst_ty, src_ty, .. } if !dst_ty.is_float() && !src_ty.is_float() => Origin::Launch,
        _ => Origin::Other,
    };
    let mut all = own;
    inst.for_each_use(|reg| {
        all = match (all, origins[reg.index()]) {
            (Origin::Other, _) | (_, Origin::Other) => Origin::Other,
            (Origin::Thread(a), Origin::Thread(b)) => Origin::Thread(a + b),
            (Origin::Thread(n), Origin::Launch) => Origin::Thread(n),
            (Origin::Launch, other) => other,
        };
    });
    match all {
        Origin::Thread(n) if n >= MAX_INSTS => Origin::Other,
        Origin::Thread(n) => Origin::Thread(n + 1),
        other => other,
    }
}
