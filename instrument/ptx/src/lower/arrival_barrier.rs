//! Barriers that some threads arrive at without waiting (PTX ISA, "bar.arrive", "barrier.arrive").
//!
//! A barrier of hetIR is a place where threads wait, which nobody passes. So barriers that somebody arrives at are
//! words in shared memory, one for each number, which a kernel that has such barriers clears as it begins:
//!
//! | bits | what |
//! |---|---|
//! | 0 to 15 | how many threads have arrived in this phase |
//! | 16 to 31 | number of the phase |
//!
//! Who arrives adds itself; who completes the phase begins the next one, in which nobody is there yet. Who waits tests
//! the phase again and again, and lets others go first.
//!
//! Which number an arrival means may be known only as it runs. Then all barriers for a number of threads are such
//! words; those for the whole block stay hetIR's. Who comes to one of hetIR's by a number that was not known traps.

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::{
    Address, AddressBase, AluOp, AtomOp, Axis, Comparison, Guard, Modifiers, Op, Operand, Ordering, Scope, SpecialReg,
};
use hetckpt_ir::types::{Space, Type, Width};

use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::halves::compare;
use crate::lower::lowering::KernelLowering;
use crate::lower::memory_barrier::{fence, give_way};

/// First bit of the phase.
const PHASE_BIT: u32 = 16;
const COUNT_MASK: u64 = (1 << PHASE_BIT) - 1;
const PHASE_MASK: u64 = 0xFFFF_FFFF ^ COUNT_MASK;
/// A block's barriers.
const NUM_BARRIERS: u32 = 16;
const WORD_BYTES: u32 = 4;
const LANES: u64 = 32;

/// Makes room for the words, and clears them before any thread can arrive.
pub(super) fn begin(k: &mut KernelLowering<'_, '_>) -> Result<(), Reason> {
    if !k.barriers.has_arrivals() {
        return Ok(());
    }
    k.barrier_words = k.place_unnamed_shared(NUM_BARRIERS * WORD_BYTES)?;
    let thread = k.thread_number();
    let first = compare(k, (Comparison::Eq, Type::U32), thread, Operand::Imm(0), None);
    k.guard = Some(Guard {
        pred: first,
        negated: false,
    });
    for number in 0..NUM_BARRIERS {
        let addr = Address {
            base: AddressBase::Absolute,
            offset: (k.barrier_words + number * WORD_BYTES).into(),
        };
        k.emit(Op::Store {
            space: Space::Shared,
            ty: Type::B32,
            ordering: Ordering::Relaxed,
            addr,
            srcs: vec![Operand::Imm(0)],
        });
    }
    k.guard = None;
    let next = k.drafts.reserve();
    k.terminate(Terminator::Barrier {
        id: Operand::Imm(0),
        count: None,
        reduction: None,
        probe: None,
        next,
    });
    k.drafts.start(next);
    Ok(())
}

/// A thread's arrival.
pub(super) struct Arrival {
    /// Where the barrier is.
    addr: Address,
    /// What was there before.
    before: Operand,
    /// How many threads complete a phase.
    count: Operand,
}

/// The thread arrives at the barrier with this number, which completes once `count` have: all of the block if that is
/// `None`.
pub(super) fn arrive(k: &mut KernelLowering<'_, '_>, number: Operand, count: Option<Operand>) -> Arrival {
    let addr = address(k, number);
    let threads = threads_of_block(k);
    // A warp counts as 32, though the block's last one may have fewer: its last thread stands for those, too.
    let last = word(k, AluOp::Sub, threads, Operand::Imm(1));
    let thread = k.thread_number();
    let is_last = compare(k, (Comparison::Eq, Type::U32), thread, last, None);
    let less = word(k, AluOp::Sub, Operand::Imm(0), threads);
    let lacking = word(k, AluOp::And, less, Operand::Imm(LANES - 1));
    let with_lacking = word(k, AluOp::Add, lacking, Operand::Imm(1));
    let added = k.scratch(Width::W32);
    k.emit(Op::Selp {
        ty: Type::B32,
        dst: added,
        a: with_lacking,
        b: Operand::Imm(1),
        pred: is_last,
    });
    let count = count.unwrap_or_else(|| word(k, AluOp::Add, threads, lacking));

    fence(k);
    let before = add(k, &addr, Operand::Reg(added));
    let now = word(k, AluOp::Add, before, Operand::Reg(added));
    let arrived = word(k, AluOp::And, now, Operand::Imm(COUNT_MASK));
    let completes = compare(k, (Comparison::Eq, Type::U32), arrived, count, None);
    // What the others did before they arrived is done once the next phase is seen.
    fence(k);
    let to_next_phase = word(k, AluOp::Sub, Operand::Imm(1 << PHASE_BIT), count);
    k.guard = Some(Guard {
        pred: completes,
        negated: false,
    });
    add(k, &addr, to_next_phase);
    k.guard = None;
    Arrival { addr, before, count }
}

impl Arrival {
    /// The phase that it belongs to: the one after what was there before, if that was complete and its last thread had
    /// not begun the next one yet.
    fn phase(&self, k: &mut KernelLowering<'_, '_>) -> Operand {
        let arrived = word(k, AluOp::And, self.before, Operand::Imm(COUNT_MASK));
        let is_complete = compare(k, (Comparison::Hs, Type::U32), arrived, self.count, None);
        let next = word(k, AluOp::Add, self.before, Operand::Imm(1 << PHASE_BIT));
        let dst = k.scratch(Width::W32);
        k.emit(Op::Selp {
            ty: Type::B32,
            dst,
            a: next,
            b: self.before,
            pred: is_complete,
        });
        word(k, AluOp::And, Operand::Reg(dst), Operand::Imm(PHASE_MASK))
    }
}

/// As [`arrive`], and waits until the phase is complete.
pub(super) fn wait(k: &mut KernelLowering<'_, '_>, number: Operand, count: Option<Operand>) {
    let arrival = arrive(k, number, count);
    let phase = arrival.phase(k);
    let [test, again, done] = [(); 3].map(|()| k.drafts.reserve());
    k.terminate(Terminator::Jump(test));
    k.drafts.start(test);
    let found = k.scratch(Width::W32);
    k.emit(Op::Load {
        space: Space::Shared,
        ty: Type::B32,
        ordering: Ordering::Relaxed,
        dsts: vec![Some(found)],
        addr: arrival.addr,
    });
    let now = word(k, AluOp::And, Operand::Reg(found), Operand::Imm(PHASE_MASK));
    // Numbers begin anew after the last one; what was there may be of the phase before, too.
    let ahead = word(k, AluOp::Sub, now, phase);
    let is_over = compare(k, (Comparison::Gt, Type::S32), ahead, Operand::Imm(0), None);
    k.terminate(Terminator::Branch {
        guard: Guard {
            pred: is_over,
            negated: false,
        },
        taken: done,
        not_taken: again,
    });
    k.drafts.start(again);
    give_way(k);
    k.terminate(Terminator::Jump(test));
    k.drafts.start(done);
    fence(k);
}

/// Where the barrier with this number is. If it is not known before and turns out to be one of hetIR's, the kernel
/// traps.
fn address(k: &mut KernelLowering<'_, '_>, number: Operand) -> Address {
    let words = i64::from(k.barrier_words);
    let number = match number {
        Operand::Imm(number) => {
            let offset = words + i64::from(WORD_BYTES) * (number & 15).cast_signed();
            return Address {
                base: AddressBase::Absolute,
                offset,
            };
        }
        Operand::Reg(_) => word(k, AluOp::And, number, Operand::Imm(u64::from(NUM_BARRIERS) - 1)),
    };
    let of_ir = k.barriers.of_ir();
    if of_ir != 0 {
        let shifted = word(k, AluOp::Shr, Operand::Imm(of_ir), number);
        let bit = word(k, AluOp::And, shifted, Operand::Imm(1));
        let is_of_ir = compare(k, (Comparison::Ne, Type::U32), bit, Operand::Imm(0), None);
        let [traps, goes_on] = [(); 2].map(|()| k.drafts.reserve());
        k.terminate(Terminator::Branch {
            guard: Guard {
                pred: is_of_ir,
                negated: false,
            },
            taken: traps,
            not_taken: goes_on,
        });
        k.drafts.start(traps);
        k.terminate(Terminator::Trap);
        k.drafts.start(goes_on);
    }
    let from = k.scratch(Width::W32);
    k.emit(Op::Alu {
        op: AluOp::Shl,
        ty: Type::B32,
        mods: Modifiers::default(),
        dst: from,
        srcs: vec![number, Operand::Imm(WORD_BYTES.trailing_zeros().into())],
    });
    Address {
        base: AddressBase::Reg(from),
        offset: words,
    }
}

fn threads_of_block(k: &mut KernelLowering<'_, '_>) -> Operand {
    let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| k.special(SpecialReg::Ntid(axis)));
    let area = word(k, AluOp::Mul, x, y);
    word(k, AluOp::Mul, area, z)
}

fn word(k: &mut KernelLowering<'_, '_>, op: AluOp, a: Operand, b: Operand) -> Operand {
    let ty = if op == AluOp::And { Type::B32 } else { Type::U32 };
    scratch(k, op, ty, Width::W32, vec![a, b])
}

/// Adds atomically; gives what was there before.
fn add(k: &mut KernelLowering<'_, '_>, addr: &Address, summand: Operand) -> Operand {
    let before = k.scratch(Width::W32);
    k.emit(Op::Atom {
        op: AtomOp::Add,
        space: Space::Shared,
        ty: Type::U32,
        ordering: Ordering::Relaxed,
        scope: Scope::Cta,
        dst: Some(before),
        addr: addr.clone(),
        srcs: vec![summand],
    });
    Operand::Reg(before)
}
