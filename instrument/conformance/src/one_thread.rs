//! A tiny evaluator of integer kernels for one thread, which records what the thread stores: enough to compare loops
//! before and after probing, and to stop at polls with nothing kept but the live registers.

use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::{AddressBase, AluOp, BoolOp, Comparison, Inst, Op, Operand, WarpOp};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type};

/// A value stored, with its address.
pub type Event = (u64, u64);

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exit,
    /// As many events as were asked for, or too many steps.
    CutOff,
    /// Stopped at a poll.
    Stopped(State),
}

/// What is left of a thread that stopped: registers that are not live hold garbage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub point: ResumePointId,
    pub registers: Vec<u64>,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Run {
    pub trace: Vec<Event>,
    pub end: End,
    /// Polls passed, the entry's not counted.
    pub polls: usize,
    /// Most instructions between two polls.
    pub longest_gap: usize,
}

/// When to stop and go on with a register file that holds nothing but what is live there.
#[derive(Clone, Copy, Debug)]
pub enum Stops {
    Never,
    /// At every poll, or at each n-th.
    Every(usize),
    /// At the n-th poll, for good.
    At(usize),
}

/// Runs `kernel` with 64-bit parameters at offsets 0, 8, 16, …
pub fn run(kernel: &Kernel, params: &[u64], max_events: usize, stops: Stops) -> Run {
    let registers = vec![0x5a5a_5a5a_5a5a_5a5a_u64; kernel.registers.len()];
    run_from(kernel, params, max_events, stops, Kernel::ENTRY, registers)
}

/// Runs `kernel` from the start of a basic block.
pub fn run_from(
    kernel: &Kernel,
    params: &[u64],
    max_events: usize,
    stops: Stops,
    start: BbId,
    mut regs: Vec<u64>,
) -> Run {
    let liveness = Liveness::new(kernel);
    let mut out = Run {
        trace: Vec::new(),
        end: End::CutOff,
        polls: 0,
        longest_gap: 0,
    };
    let (mut at, mut gap) = (start, 0);
    for _ in 0..30_000 {
        let block = &kernel.blocks[at.index()];
        for inst in &block.insts {
            step(kernel, &mut regs, inst, params, &mut out.trace);
            if out.trace.len() >= max_events {
                return out;
            }
        }
        gap += block.insts.len() + 1;
        out.longest_gap = out.longest_gap.max(gap);
        at = match &block.terminator {
            Terminator::Jump(next) => *next,
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } => {
                if (regs[guard.pred.index()] & 1 != 0) != guard.negated {
                    *taken
                } else {
                    *not_taken
                }
            }
            Terminator::Exit => {
                out.end = End::Exit;
                return out;
            }
            Terminator::Poll { resume_point, next } => {
                let point = kernel.resume_points[resume_point.index()];
                if *resume_point == Kernel::ENTRY_POINT {
                    *next
                } else {
                    out.polls += 1;
                    gap = 0;
                    if matches!(stops, Stops::Every(n) if out.polls.is_multiple_of(n)) {
                        forget_dead(&mut regs, &liveness, point.block);
                    }
                    if matches!(stops, Stops::At(n) if out.polls == n) {
                        forget_dead(&mut regs, &liveness, point.block);
                        out.end = End::Stopped(State {
                            point: *resume_point,
                            registers: regs,
                        });
                        return out;
                    }
                    *next
                }
            }
            other => panic!("not evaluated: {other:?}"),
        };
    }
    out
}

fn forget_dead(regs: &mut [u64], liveness: &Liveness, at: BbId) {
    for (i, reg) in (0..).map(RegId).zip(regs) {
        if !liveness.live_in(at).contains(i) {
            *reg = 0xdead_dead_dead_dead;
        }
    }
}

fn bits(ty: Type) -> u32 {
    8 * ty.size_bytes()
}

fn truncate(value: u64, ty: Type) -> u64 {
    value & (u64::MAX >> (64 - bits(ty)))
}

fn signed(value: u64, ty: Type) -> i64 {
    let shift = 64 - bits(ty);
    (value << shift).cast_signed() >> shift
}

fn step(kernel: &Kernel, regs: &mut [u64], inst: &Inst, params: &[u64], trace: &mut Vec<Event>) {
    if let Some(guard) = inst.guard
        && (regs[guard.pred.index()] & 1 != 0) == guard.negated
    {
        return;
    }
    let get = |o: &Operand| match o {
        Operand::Reg(r) => regs[r.index()],
        Operand::Imm(v) => *v,
    };
    let (dst, value) = match &inst.op {
        Op::Mov { ty, dst, src } => (*dst, truncate(get(src), *ty)),
        Op::Alu { op, ty, dst, srcs, .. } => {
            let v: Vec<u64> = srcs.iter().map(|s| truncate(get(s), *ty)).collect();
            (*dst, truncate(alu(*op, *ty, &v), *ty))
        }
        Op::Setp {
            cmp,
            ty,
            dst,
            dst_not,
            a,
            b,
            combine,
            ..
        } => {
            let holds = compare(*cmp, *ty, truncate(get(a), *ty), truncate(get(b), *ty));
            let combined = |value: bool| match combine {
                None => value,
                Some((op, p, negated)) => {
                    let p = (regs[p.index()] & 1 != 0) != *negated;
                    match op {
                        BoolOp::And => value && p,
                        BoolOp::Or => value || p,
                        BoolOp::Xor => value != p,
                    }
                }
            };
            let (value, opposite) = (combined(holds), combined(!holds));
            if let Some(not) = dst_not {
                regs[not.index()] = u64::from(opposite);
            }
            (*dst, u64::from(value))
        }
        Op::Selp { ty, dst, a, b, pred } => (
            *dst,
            truncate(if regs[pred.index()] & 1 != 0 { get(a) } else { get(b) }, *ty),
        ),
        Op::Cvt {
            dst_ty,
            src_ty,
            dst,
            src,
            ..
        } => (*dst, truncate(truncate(get(src), *src_ty), *dst_ty)),
        Op::Load {
            space: Space::Param,
            ty,
            dsts,
            addr,
            ..
        } => {
            assert_eq!(addr.base, AddressBase::Absolute);
            let index = usize::try_from(addr.offset / 8).unwrap();
            (dsts[0].unwrap(), truncate(params[index], *ty))
        }
        Op::Store { ty, addr, srcs, .. } => {
            trace.push((addr.offset.cast_unsigned(), truncate(get(&srcs[0]), *ty)));
            return;
        }
        // Nobody is there to wait for.
        Op::Warp { op: WarpOp::Step, .. } => return,
        other => panic!("not evaluated: {other:?}"),
    };
    assert!(
        value <= u64::MAX >> (64 - 8 * kernel.width(dst).size_bytes()),
        "{dst} overflows its width"
    );
    regs[dst.index()] = value;
}

fn alu(op: AluOp, ty: Type, v: &[u64]) -> u64 {
    match op {
        AluOp::Add => v[0].wrapping_add(v[1]),
        AluOp::Sub => v[0].wrapping_sub(v[1]),
        AluOp::Mul => v[0].wrapping_mul(v[1]),
        AluOp::And => v[0] & v[1],
        AluOp::Xor => v[0] ^ v[1],
        AluOp::Min => v[0].min(v[1]),
        AluOp::Shl => v[0].checked_shl(u32::try_from(v[1]).unwrap()).unwrap_or(0),
        AluOp::Shr if !ty.is_signed() => v[0].checked_shr(u32::try_from(v[1]).unwrap()).unwrap_or(0),
        _ => panic!("not evaluated: {op:?}"),
    }
}

fn compare(cmp: Comparison, ty: Type, a: u64, b: u64) -> bool {
    let ord = if ty.is_signed() {
        signed(a, ty).cmp(&signed(b, ty))
    } else {
        a.cmp(&b)
    };
    match cmp {
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
        Comparison::Lt => ord.is_lt(),
        Comparison::Le => ord.is_le(),
        Comparison::Gt => ord.is_gt(),
        Comparison::Ge => ord.is_ge(),
        Comparison::Lo => a < b,
        Comparison::Ls => a <= b,
        Comparison::Hi => a > b,
        Comparison::Hs => a >= b,
        _ => panic!("not evaluated: {cmp:?}"),
    }
}
