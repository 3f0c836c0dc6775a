//! Splits an affine loop into chunks of iterations with a poll between them.
//!
//! ```text
//! setup:  chunk_end = iv is inside and |bound - iv| > CHUNK*|step| ? iv + CHUNK*step : bound      <- from outside
//! body:   … the loop as it was, but its latch compares with chunk_end …
//! exit:   the latch's own comparison with bound; it holds: poll, then setup; else: out
//! ```
//!
//! Why this is exact, wrap-around included. For an order (`<`, `<=`, `>`, `>=`) chunk_end lies between iv and bound or
//! is bound, so whenever the new comparison says "go on" the old one does too; where the new one says "stop" the old
//! one is asked. No assumption about the trip count, about the first iteration (which a rotated loop runs unasked) or
//! about overflow is needed. For `!=` the tested values are iv + k*step: below CHUNK steps none of them is bound, since
//! bound is more than CHUNK*|step| away in the step's direction, and none is chunk_end before the CHUNK-th, since
//! CHUNK*|step| < 2^width; from the CHUNK-th on the old comparison is asked.
//!
//! # Requires
//! A loop with one latch that ends in a branch on an unconditional `setp` of an induction variable and an invariant.
//! # Ensures
//! The same iterations; a poll at least every CHUNK of them, outside the inner loop; registers that the program reads
//! elsewhere have the values they had.
//! # Leaves alone
//! The loop's other exits and its body.
//! # Cost
//! About six instructions when the loop is entered and once a chunk; none per iteration.
//! # Source
//! ARCHITECTURE.md, "The way of a kernel"; strip-mining as in Wolfe, "High Performance Compilers for Parallel
//! Computing".

use hetckpt_ir::analysis::induction::{Induction, Step};
use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Guard, Inst, Modifiers, Op, Operand};
use hetckpt_ir::kernel::{Kernel, ResumePoint, ResumePointKind};
use hetckpt_ir::types::{Type, Width};

use crate::edges::{inserted_block, predecessors, redirect};
use crate::fuel::Fuel;
use crate::nest::{LoopId, Nest};

/// The test under which a loop goes on: iv ? bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    NotEqual,
}

/// A loop to be strip-mined, with everything decided.
#[derive(Clone, Debug)]
pub struct Plan {
    induction: Induction,
    relation: Relation,
    /// Type under which the comparison orders.
    ty: Type,
    bits: u32,
    /// Iterations in a chunk.
    pub chunk: u32,
    /// The latch's predicate is read elsewhere too, or what it compares changes before the latch ends.
    keeps_setp: bool,
}

/// How the loop can be strip-mined; `None` if it cannot.
pub fn plan(kernel: &Kernel, liveness: &Liveness, induction: Induction, chunk: u32) -> Option<Plan> {
    let latch = &kernel.blocks[induction.latch.index()];
    let Op::Setp { dst, dst_not, .. } = induction.setp.inst(kernel)?.op else {
        return None;
    };
    if induction.guard.pred != dst || induction.setp.block != induction.latch {
        return None;
    }
    let relation = relation(induction.cmp, induction.iv_is_right, !induction.continues_when)?;
    let bits = integer_bits(induction.cmp_ty)?;
    let chunk = match induction.step {
        Step::Constant(step) if goes_towards_bound(relation, step) => largest_chunk(chunk, step.unsigned_abs(), bits)?,
        Step::Constant(_) => return None,
        // A power of two, so that a chunk's length is a shift that can be checked for overflow.
        Step::Register { .. } if bits > 16 => 1 << chunk.clamp(1, 1 << 20).ilog2(),
        Step::Register { .. } => return None,
    };
    if [induction.iv, induction.tested]
        .iter()
        .any(|&reg| kernel.width(reg) != width(bits))
    {
        return None;
    }
    let after = &latch.insts[induction.setp.index + 1..];
    let live_out = liveness.live_out(induction.latch);
    let is_read_elsewhere = |reg: RegId| live_out.contains(reg) || after.iter().any(|i| uses(i, reg));
    let keeps_setp = is_read_elsewhere(dst)
        || dst_not.is_some_and(is_read_elsewhere)
        || after.iter().any(|i| defines(i, induction.tested));
    if after.iter().any(|i| defines(i, dst)) {
        return None;
    }
    let ty = ordered_as(induction.cmp_ty, induction.cmp, bits);
    Some(Plan {
        induction,
        relation,
        ty,
        bits,
        chunk,
        keeps_setp,
    })
}

/// Strip-mines the loop. With `fuel`, entering a chunk burns what the chunk will execute, `work` an iteration.
pub fn run(kernel: &mut Kernel, nest: &mut Nest, id: LoopId, plan: &Plan, fuel: Option<Fuel>, work: u32) {
    let header = nest.header(id);
    let chunk_end = kernel.add_register(width(plan.bits));
    let setup_insts = setup(kernel, plan, chunk_end, fuel, work);
    let setup = kernel.add_block(inserted_block(setup_insts, Terminator::Jump(header)));
    let entering: Vec<BbId> = predecessors(kernel, header)
        .into_iter()
        .filter(|&p| p != setup && !nest.contains(id, p))
        .collect();
    for pred in entering {
        redirect(kernel, pred, header, setup);
    }
    let after_poll = match fuel {
        Some(fuel) => kernel.add_block(inserted_block(vec![fuel.fill()], Terminator::Jump(setup))),
        None => setup,
    };
    let resume_point = kernel.add_resume_point(ResumePoint {
        kind: ResumePointKind::Loop,
        block: after_poll,
    });
    let poll = kernel.add_block(inserted_block(
        vec![],
        Terminator::Poll {
            resume_point,
            next: after_poll,
        },
    ));
    let exit = leave_inner_loop(kernel, plan, header, chunk_end, poll);
    for block in [setup, after_poll, poll, exit] {
        nest.set_home(block, Some(id));
    }
}

/// Makes the latch compare with `chunk_end`; on the way out a new block asks the old question and goes to `poll` if the
/// loop goes on.
fn leave_inner_loop(kernel: &mut Kernel, plan: &Plan, header: BbId, chunk_end: RegId, poll: BbId) -> BbId {
    let Induction { latch, iv_is_right, .. } = plan.induction;
    let setp = plan.induction.setp.index;
    let in_chunk = kernel.add_register(Width::Pred);
    let original = kernel.blocks[latch.index()].insts[setp].clone();
    let mut inner = original.clone();
    if let Op::Setp { dst, dst_not, a, b, .. } = &mut inner.op {
        *dst = in_chunk;
        *dst_not = None;
        *if iv_is_right { a } else { b } = Operand::Reg(chunk_end);
    }
    let mut exit = inserted_block(vec![], kernel.blocks[latch.index()].terminator.clone());
    let insts = &mut kernel.blocks[latch.index()].insts;
    if plan.keeps_setp {
        insts.insert(setp + 1, inner);
    } else {
        insts[setp] = inner;
        exit.insts.push(original);
    }
    exit.span = kernel.blocks[latch.index()].span;
    exit.terminator
        .map_successors(|target| if target == header { poll } else { target });
    let exit = kernel.add_block(exit);
    if let Terminator::Branch {
        guard,
        taken,
        not_taken,
    } = &mut kernel.blocks[latch.index()].terminator
    {
        *guard = Guard {
            pred: in_chunk,
            negated: guard.negated,
        };
        *if *taken == header { not_taken } else { taken } = exit;
    }
    exit
}

/// The instructions that compute `chunk_end` (and burn the chunk's fuel).
fn setup(kernel: &mut Kernel, plan: &Plan, chunk_end: RegId, fuel: Option<Fuel>, work: u32) -> Vec<Op> {
    let (word, bound, iv) = (
        unsigned_of(plan.bits),
        plan.induction.bound,
        Operand::Reg(plan.induction.iv),
    );
    let [distance, far_end] = [(); 2].map(|()| kernel.add_register(width(plan.bits)));
    let is_far = kernel.add_register(Width::Pred);
    let mut insts = Vec::new();
    let length = length(kernel, plan, &mut insts);
    let (from, to) = if length.is_up { (bound, iv) } else { (iv, bound) };
    insts.push(alu(AluOp::Sub, word, distance, vec![from, to]));
    let is_inside = ordering(plan.relation).map(|cmp| {
        let is_inside = kernel.add_register(Width::Pred);
        insts.push(setp(cmp, plan.ty, is_inside, iv, bound, None));
        is_inside
    });
    let mut combine = is_inside.map(|p| (BoolOp::And, p, false));
    if let Some((shifted_back, amount)) = length.check {
        let is_exact = kernel.add_register(Width::Pred);
        insts.push(setp(Comparison::Eq, word, is_exact, shifted_back, amount, combine));
        combine = Some((BoolOp::And, is_exact, false));
    }
    insts.push(setp(
        Comparison::Gt,
        word,
        is_far,
        Operand::Reg(distance),
        length.value,
        combine,
    ));
    let advance = if length.is_up { AluOp::Add } else { AluOp::Sub };
    insts.push(alu(advance, word, far_end, vec![iv, length.value]));
    insts.push(selp(word, chunk_end, Operand::Reg(far_end), bound, is_far));
    if let Some(fuel) = fuel {
        insts.push(selp(word, distance, length.value, Operand::Reg(distance), is_far));
        if let Some(is_inside) = is_inside {
            insts.push(selp(word, distance, Operand::Reg(distance), Operand::Imm(0), is_inside));
        }
        burn(kernel, fuel, plan, &length, distance, work, &mut insts);
    }
    insts
}

/// What the induction variable moves in a chunk.
struct Length {
    /// How far, without sign.
    value: Operand,
    /// True if the variable is thought to grow.
    is_up: bool,
    /// The step, without sign.
    step: Operand,
    /// Two operands that are equal only if `value` did not overflow.
    check: Option<(Operand, Operand)>,
}

fn length(kernel: &mut Kernel, plan: &Plan, insts: &mut Vec<Op>) -> Length {
    let (reg, is_subtracted) = match plan.induction.step {
        Step::Constant(step) => {
            let value = Operand::Imm(u64::from(plan.chunk) * step.unsigned_abs());
            return Length {
                value,
                is_up: step > 0,
                step: Operand::Imm(step.unsigned_abs()),
                check: None,
            };
        }
        Step::Register { reg, is_subtracted } => (reg, is_subtracted),
    };
    let word = unsigned_of(plan.bits);
    let is_up = match plan.relation {
        Relation::Less | Relation::LessEqual => true,
        Relation::Greater | Relation::GreaterEqual => false,
        Relation::NotEqual => !is_subtracted,
    };
    let mut new = || kernel.add_register(width(plan.bits));
    let step = if is_up == is_subtracted {
        let negated = new();
        insts.push(alu(AluOp::Sub, word, negated, vec![Operand::Imm(0), Operand::Reg(reg)]));
        negated
    } else {
        reg
    };
    let [value, back] = [new(), new()];
    let shift = Operand::Imm(u64::from(plan.chunk.ilog2()));
    insts.push(alu(
        AluOp::Shl,
        untyped(plan.bits),
        value,
        vec![Operand::Reg(step), shift],
    ));
    insts.push(alu(AluOp::Shr, word, back, vec![Operand::Reg(value), shift]));
    let check = Some((Operand::Reg(back), Operand::Reg(step)));
    Length {
        value: Operand::Reg(value),
        is_up,
        step: Operand::Reg(step),
        check,
    }
}

/// Burns `work` for each iteration that takes the induction variable over `distance`. Dividing by the step is rounded
/// to a shift, and left out where the step is not known: too much may be burnt, never too little.
fn burn(
    kernel: &mut Kernel,
    fuel: Fuel,
    plan: &Plan,
    length: &Length,
    distance: RegId,
    work: u32,
    insts: &mut Vec<Op>,
) {
    let word = unsigned_of(plan.bits);
    match length.step {
        Operand::Imm(step) if step > 1 => {
            let shift = Operand::Imm(u64::from(step.ilog2()));
            insts.push(alu(AluOp::Shr, word, distance, vec![Operand::Reg(distance), shift]));
        }
        Operand::Imm(_) => {}
        Operand::Reg(_) => {
            let most = Operand::Imm(u64::from(plan.chunk));
            insts.push(alu(AluOp::Min, word, distance, vec![Operand::Reg(distance), most]));
        }
    }
    let amount = if plan.bits == 32 {
        distance
    } else {
        let amount = kernel.add_register(Width::W32);
        let (mods, src) = (Modifiers::default(), Operand::Reg(distance));
        insts.push(Op::Cvt {
            dst_ty: Type::U32,
            src_ty: word,
            mods,
            dst: amount,
            src,
        });
        amount
    };
    insts.push(alu(
        AluOp::Mul,
        Type::U32,
        amount,
        vec![Operand::Reg(amount), fuel.amount(work)],
    ));
    insts.push(fuel.burn(Operand::Reg(amount)));
}

/// The relation of iv to bound under which the loop goes on.
fn relation(cmp: Comparison, is_iv_second: bool, is_negated: bool) -> Option<Relation> {
    let first_to_second = match cmp {
        Comparison::Lt | Comparison::Lo => Relation::Less,
        Comparison::Le | Comparison::Ls => Relation::LessEqual,
        Comparison::Gt | Comparison::Hi => Relation::Greater,
        Comparison::Ge | Comparison::Hs => Relation::GreaterEqual,
        Comparison::Ne if !is_negated => return Some(Relation::NotEqual),
        Comparison::Eq if is_negated => return Some(Relation::NotEqual),
        _ => return None,
    };
    let relation = match (first_to_second, is_iv_second) {
        (Relation::Less, true) => Relation::Greater,
        (Relation::LessEqual, true) => Relation::GreaterEqual,
        (Relation::Greater, true) => Relation::Less,
        (Relation::GreaterEqual, true) => Relation::LessEqual,
        (same, _) => same,
    };
    Some(match (relation, is_negated) {
        (Relation::Less, true) => Relation::GreaterEqual,
        (Relation::LessEqual, true) => Relation::Greater,
        (Relation::Greater, true) => Relation::LessEqual,
        (Relation::GreaterEqual, true) => Relation::Less,
        (same, _) => same,
    })
}

/// The comparison for an order; `None` for `!=`, which the distance settles.
fn ordering(relation: Relation) -> Option<Comparison> {
    match relation {
        Relation::Less => Some(Comparison::Lt),
        Relation::LessEqual => Some(Comparison::Le),
        Relation::Greater => Some(Comparison::Gt),
        Relation::GreaterEqual => Some(Comparison::Ge),
        Relation::NotEqual => None,
    }
}

/// At most `chunk`, such that a chunk's length is less than half the range of a register.
fn largest_chunk(chunk: u32, step: u64, bits: u32) -> Option<u32> {
    let half = 1u64 << (bits.min(32) - 1);
    let most = half.checked_sub(1)?.checked_div(step)?;
    let chunk = u64::from(chunk.max(1)).min(most);
    u32::try_from(chunk).ok().filter(|&c| c > 0)
}

fn integer_bits(ty: Type) -> Option<u32> {
    match ty {
        Type::U16 | Type::S16 | Type::B16 => Some(16),
        Type::U32 | Type::S32 | Type::B32 => Some(32),
        Type::U64 | Type::S64 | Type::B64 => Some(64),
        _ => None,
    }
}

fn width(bits: u32) -> Width {
    match bits {
        16 => Width::W16,
        32 => Width::W32,
        _ => Width::W64,
    }
}

fn unsigned_of(bits: u32) -> Type {
    match bits {
        16 => Type::U16,
        32 => Type::U32,
        _ => Type::U64,
    }
}

fn untyped(bits: u32) -> Type {
    match bits {
        16 => Type::B16,
        32 => Type::B32,
        _ => Type::B64,
    }
}

/// The type compared: `lo` and its like compare without sign whatever the type says.
fn ordered_as(ty: Type, cmp: Comparison, bits: u32) -> Type {
    match cmp {
        Comparison::Lo | Comparison::Ls | Comparison::Hi | Comparison::Hs => unsigned_of(bits),
        _ => ty,
    }
}

fn goes_towards_bound(relation: Relation, step: i64) -> bool {
    match relation {
        Relation::Less | Relation::LessEqual => step > 0,
        Relation::Greater | Relation::GreaterEqual => step < 0,
        Relation::NotEqual => step != 0,
    }
}

fn alu(op: AluOp, ty: Type, dst: RegId, srcs: Vec<Operand>) -> Op {
    Op::Alu {
        op,
        ty,
        mods: Modifiers::default(),
        dst,
        srcs,
    }
}

fn selp(ty: Type, dst: RegId, a: Operand, b: Operand, pred: RegId) -> Op {
    Op::Selp { ty, dst, a, b, pred }
}

fn setp(cmp: Comparison, ty: Type, dst: RegId, a: Operand, b: Operand, combine: Option<(BoolOp, RegId, bool)>) -> Op {
    Op::Setp {
        cmp,
        ty,
        ftz: false,
        dst,
        dst_not: None,
        a,
        b,
        combine,
    }
}

fn uses(inst: &Inst, reg: RegId) -> bool {
    let mut found = false;
    inst.for_each_use(|r| found |= r == reg);
    found
}

fn defines(inst: &Inst, reg: RegId) -> bool {
    let mut found = false;
    inst.for_each_def(|r| found |= r == reg);
    found
}
