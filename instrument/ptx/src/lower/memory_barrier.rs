//! Memory barrier objects (PTX ISA, "mbarrier"): 64 bits of shared memory that count who has arrived. Nobody may look
//! into them, so their layout is ours:
//!
//! | bits | what |
//! |---|---|
//! | 0 to 19 | who is yet to arrive in this phase |
//! | 20 to 39 | how many are to arrive in each of the next phases |
//! | 40 to 60 | bytes to be copied before the phase ends, and 2^20: less while more have come than are expected |
//! | 61 to 63 | number of the phase; programs may ask for the one before at most |
//!
//! Whoever arrives takes itself off by one atomic addition. Who finds nobody and nothing left begins the next phase by
//! another one: nobody else arrives in between, as more arrivals than were expected are undefined.
//!
//! To wait, programs test again and again. Before each test a thread passes a barrier for one thread ([`give_way`]),
//! so that those whom it waits for get on: devices that run a block's threads one after another go on with the next.

use hetckpt_ir::basic_block::{GIVE_WAY, Terminator};
use hetckpt_ir::inst::{Address, AluOp, AtomOp, Comparison, Modifiers, Op, Operand, Ordering, Scope};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::arithmetic::scratch;
use crate::lower::lowering::KernelLowering;
use crate::lower::memory::memory_target;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;

/// Bits of a count.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// First bit of the bytes to be copied.
const BYTES_BIT: u32 = 2 * COUNT_BITS;
/// What stands there for none.
const NO_BYTES: u64 = 1 << (BYTES_BIT + COUNT_BITS);
/// First bit of the phase.
const PHASE_BIT: u32 = BYTES_BIT + COUNT_BITS + 1;
/// Bits of the bytes to be copied.
const BYTES_MASK: u64 = (1 << PHASE_BIT) - (1 << BYTES_BIT);

/// PTX ISA, "mbarrier.init", "mbarrier.inval", "mbarrier.arrive", "mbarrier.arrive_drop", "mbarrier.test_wait",
/// "mbarrier.try_wait", "mbarrier.pending_count", "mbarrier.expect_tx", "mbarrier.complete_tx".
pub(super) fn mbarrier<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    const OPERATIONS: [&str; 9] = [
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "pending_count",
        "expect_tx",
        "complete_tx",
    ];
    let mut list = ModifierList::new(inst);
    let operation = OPERATIONS.into_iter().find(|name| list.take(name));
    let operation = operation.ok_or(Reason::Lacks("an operation on memory barrier objects"))?;
    // An arrival beside more bytes to be copied.
    let expects_bytes = list.take("expect_tx");
    // If it would complete the phase, that is undefined.
    list.take("noComplete");
    let by_parity = list.take("parity");
    for semantics in ["acquire", "release", "relaxed"] {
        list.take(semantics);
    }
    list.scope();
    let (space, _) = list.space();
    if list.ty()? != Type::B64 {
        return Err(Reason::Lacks("the type .b64"));
    }
    list.finish()?;
    let not_taken = k.branch_on_guard();
    match (operation, inst.operands.as_slice()) {
        ("init", [object, count]) => {
            let object = Object::new(k, object, space)?;
            init(k, object, count)?;
        }
        ("inval", [_]) => {}
        ("arrive" | "arrive_drop", [state, object, bytes]) if expects_bytes => {
            let object = Object::new(k, object, space)?;
            let more = bytes_of(k, bytes)?;
            arrive(k, &object, state, None, operation == "arrive_drop", Some(more))?;
        }
        ("arrive" | "arrive_drop", [state, object, count @ ..]) if count.len() <= 1 => {
            let object = Object::new(k, object, space)?;
            arrive(k, &object, state, count.first(), operation == "arrive_drop", None)?;
        }
        ("expect_tx", [object, bytes]) => {
            let object = Object::new(k, object, space)?;
            let more = bytes_of(k, bytes)?;
            change(k, &object, more);
        }
        ("complete_tx", [object, bytes]) => complete(k, object, space, bytes)?,
        // The fourth one of `try_wait` says how long it may wait.
        ("test_wait", [done, object, phase]) | ("try_wait", [done, object, phase] | [done, object, phase, _]) => {
            give_way(k);
            let object = Object::new(k, object, space)?;
            test(k, object, done, phase, by_parity)?;
        }
        ("pending_count", [count, state]) => pending_count(k, count, state)?,
        _ => {
            return Err(Reason::OperandCount {
                expected: "as many as the operation has",
                found: inst.operands.len(),
            });
        }
    }
    k.leave_guard(not_taken);
    Ok(())
}

/// PTX ISA, "cp.async.mbarrier.arrive": the thread's copies, which were done at once, arrive. Without `.noinc` they
/// were not expected: they take off what they have added.
pub(super) fn arrive_behind_copies<'a>(
    k: &mut KernelLowering<'_, 'a>,
    inst: &Instruction<'a>,
    mut list: ModifierList<'a>,
) -> Result<(), Reason> {
    if !list.take("arrive") {
        return Err(Reason::Lacks("arrive"));
    }
    let is_expected = list.take("noinc");
    let (space, _) = list.space();
    if list.ty()? != Type::B64 {
        return Err(Reason::Lacks("the type .b64"));
    }
    list.finish()?;
    let [object] = operands(inst, "1")?;
    if is_expected {
        let not_taken = k.branch_on_guard();
        let object = Object::new(k, object, space)?;
        arrive(k, &object, &ast::Operand::Name("_", None), None, false, None)?;
        k.leave_guard(not_taken);
    }
    Ok(())
}

/// A barrier for one thread: it goes on once the others have got as far as they can.
pub(super) fn give_way(k: &mut KernelLowering<'_, '_>) {
    let next = k.drafts.reserve();
    k.terminate(Terminator::Barrier {
        id: Operand::Imm(GIVE_WAY),
        count: Some(Operand::Imm(1)),
        reduction: None,
        probe: None,
        next,
    });
    k.drafts.start(next);
}

/// Where it is.
struct Object {
    space: Space,
    addr: Address,
}

impl Object {
    fn new<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>, space: Space) -> Result<Self, Reason> {
        let (space, addr) = memory_target(k, operand, space)?;
        match space {
            Space::Shared | Space::Generic => Ok(Self { space, addr }),
            _ => Err(Reason::Family("memory barrier objects outside of shared memory")),
        }
    }

    /// Adds to it atomically; gives what it was before.
    fn add(&self, k: &mut KernelLowering<'_, '_>, summand: Operand) -> Operand {
        let before = k.scratch(Width::W64);
        k.emit(Op::Atom {
            op: AtomOp::Add,
            space: self.space,
            ty: Type::U64,
            ordering: Ordering::Relaxed,
            scope: Scope::Cta,
            dst: Some(before),
            addr: self.addr.clone(),
            srcs: vec![summand],
        });
        Operand::Reg(before)
    }
}

pub(super) fn fence(k: &mut KernelLowering<'_, '_>) {
    k.emit(Op::Membar { scope: Scope::Cta });
}

fn alu(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, a: Operand, b: Operand) -> Operand {
    scratch(k, op, ty, Width::W64, vec![a, b])
}

/// A count as 64 bits.
fn count<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>) -> Result<Operand, Reason> {
    let narrow = k.value(operand, Type::U32)?;
    if let Operand::Imm(_) = narrow {
        return Ok(narrow);
    }
    let wide = k.scratch(Width::W64);
    k.emit(Op::Cvt {
        dst_ty: Type::U64,
        src_ty: Type::U32,
        mods: Modifiers::default(),
        dst: wide,
        src: narrow,
    });
    Ok(Operand::Reg(wide))
}

/// A count in both places.
fn twice(k: &mut KernelLowering<'_, '_>, count: Operand) -> Operand {
    let upper = alu(k, AluOp::Shl, Type::B64, count, Operand::Imm(COUNT_BITS.into()));
    alu(k, AluOp::Add, Type::U64, upper, count)
}

/// Bytes to be copied, where they stand.
fn bytes_of<'a>(k: &mut KernelLowering<'_, 'a>, operand: &ast::Operand<'a>) -> Result<Operand, Reason> {
    let bytes = count(k, operand)?;
    Ok(alu(k, AluOp::Shl, Type::B64, bytes, Operand::Imm(BYTES_BIT.into())))
}

/// So many bytes have been copied (PTX ISA, "mbarrier.complete_tx", and what ends asynchronous copies).
pub(super) fn complete<'a>(
    k: &mut KernelLowering<'_, 'a>,
    object: &ast::Operand<'a>,
    space: Space,
    bytes: &ast::Operand<'a>,
) -> Result<(), Reason> {
    let object = Object::new(k, object, space)?;
    let bytes = bytes_of(k, bytes)?;
    let less = alu(k, AluOp::Sub, Type::U64, Operand::Imm(0), bytes);
    change(k, &object, less);
    Ok(())
}

fn init<'a>(k: &mut KernelLowering<'_, 'a>, object: Object, expected: &ast::Operand<'a>) -> Result<(), Reason> {
    let expected = count(k, expected)?;
    let word = twice(k, expected);
    let word = alu(k, AluOp::Add, Type::U64, word, Operand::Imm(NO_BYTES));
    k.emit(Op::Store {
        space: object.space,
        ty: Type::B64,
        ordering: Ordering::Relaxed,
        addr: object.addr,
        srcs: vec![word],
    });
    Ok(())
}

fn arrive<'a>(
    k: &mut KernelLowering<'_, 'a>,
    object: &Object,
    state: &ast::Operand<'a>,
    arrivals: Option<&ast::Operand<'a>>,
    drops: bool,
    more_bytes: Option<Operand>,
) -> Result<(), Reason> {
    let arrivals = arrivals.map_or(Ok(Operand::Imm(1)), |arrivals| count(k, arrivals))?;
    let taken_off = if drops { twice(k, arrivals) } else { arrivals };
    let more_bytes = more_bytes.unwrap_or(Operand::Imm(0));
    let summand = alu(k, AluOp::Sub, Type::U64, more_bytes, taken_off);
    let before = change(k, object, summand);
    if !matches!(state, ast::Operand::Name("_", None)) {
        let dst = k.result(state, Width::W64)?;
        k.emit(Op::Mov {
            ty: Type::B64,
            dst,
            src: before,
        });
    }
    Ok(())
}

/// Adds `summand`, and begins the next phase if nobody and nothing is left then; gives what was there before.
fn change(k: &mut KernelLowering<'_, '_>, object: &Object, summand: Operand) -> Operand {
    fence(k);
    let before = object.add(k, summand);
    let now = alu(k, AluOp::Add, Type::U64, before, summand);
    let left = alu(k, AluOp::And, Type::B64, now, Operand::Imm(COUNT_MASK | BYTES_MASK));
    let is_last = k.scratch(Width::Pred);
    k.emit(Op::Setp {
        cmp: Comparison::Eq,
        ty: Type::U64,
        ftz: false,
        dst: is_last,
        dst_not: None,
        a: left,
        b: Operand::Imm(NO_BYTES),
        combine: None,
    });
    let upper = alu(k, AluOp::Shr, Type::U64, now, Operand::Imm(COUNT_BITS.into()));
    let expected = alu(k, AluOp::And, Type::B64, upper, Operand::Imm(COUNT_MASK));
    let to_next_phase = alu(k, AluOp::Add, Type::U64, expected, Operand::Imm(1 << PHASE_BIT));
    let step = k.scratch(Width::W64);
    k.emit(Op::Selp {
        ty: Type::B64,
        dst: step,
        a: to_next_phase,
        b: Operand::Imm(0),
        pred: is_last,
    });
    // What the others did before they arrived is done once the next phase is seen.
    fence(k);
    object.add(k, Operand::Reg(step));
    before
}

/// `phase` is a state that an arrival gave, or the phase's parity.
fn test<'a>(
    k: &mut KernelLowering<'_, 'a>,
    object: Object,
    done: &ast::Operand<'a>,
    phase: &ast::Operand<'a>,
    by_parity: bool,
) -> Result<(), Reason> {
    let (then, mask) = if by_parity {
        let parity = count(k, phase)?;
        let bit = Operand::Imm(PHASE_BIT.into());
        (alu(k, AluOp::Shl, Type::B64, parity, bit), 1 << PHASE_BIT)
    } else {
        (k.value(phase, Type::B64)?, u64::MAX << PHASE_BIT)
    };
    let word = k.scratch(Width::W64);
    k.emit(Op::Load {
        space: object.space,
        ty: Type::B64,
        ordering: Ordering::Relaxed,
        dsts: vec![Some(word)],
        addr: object.addr,
    });
    let changed = alu(k, AluOp::Xor, Type::B64, Operand::Reg(word), then);
    let other_phase = alu(k, AluOp::And, Type::B64, changed, Operand::Imm(mask));
    let dst = k.result(done, Width::Pred)?;
    k.emit(Op::Setp {
        cmp: Comparison::Ne,
        ty: Type::U64,
        ftz: false,
        dst,
        dst_not: None,
        a: other_phase,
        b: Operand::Imm(0),
        combine: None,
    });
    fence(k);
    Ok(())
}

fn pending_count<'a>(
    k: &mut KernelLowering<'_, 'a>,
    count: &ast::Operand<'a>,
    state: &ast::Operand<'a>,
) -> Result<(), Reason> {
    let state = k.value(state, Type::B64)?;
    let pending = alu(k, AluOp::And, Type::B64, state, Operand::Imm(COUNT_MASK));
    let dst = k.result(count, Width::W32)?;
    k.emit(Op::Cvt {
        dst_ty: Type::U32,
        src_ty: Type::U64,
        mods: Modifiers::default(),
        dst,
        src: pending,
    });
    Ok(())
}
