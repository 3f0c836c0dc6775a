//! Barriers and warp-level operations of a program, for the CPU device.

use hetckpt_abi::cpu_tables::{
    BarrierTable, Column, CpuTables, Reduction, ReductionOp, Source, StepTable, WarpOpcode, WarpTable,
};
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::basic_block::{BarrierReductionOp, Terminator};
use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::{Op, Operand, ReduxOp, WarpOp, WarpProbe};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use crate::error::CodegenError;

/// The tables of the program whose region functions start at `regions`.
///
/// # Errors
/// [`CodegenError::NotProbed`], [`CodegenError::NotSaved`].
pub fn build(kernel: &Kernel, layout: &ThreadStateLayout, regions: &[u32]) -> Result<CpuTables, CodegenError> {
    let columns = Columns { kernel, layout };
    let mut tables = CpuTables {
        bytes_per_thread: layout.bytes_per_thread,
        regions: regions.to_vec(),
        ..CpuTables::default()
    };
    for (id, block) in kernel.iter_blocks() {
        if let Some(barrier) = columns.barrier(id, &block.terminator)? {
            // A loop cloned by resegmentation repeats its barriers under the same resume points.
            if tables.barriers.iter().all(|b| b.arrive != barrier.arrive) {
                tables.barriers.push(barrier);
            }
        }
        for inst in &block.insts {
            if let Some(step) = step(id, &inst.op)? {
                if tables.steps.iter().all(|s| s.arrive != step.arrive) {
                    tables.steps.push(step);
                }
            } else if let Some(op) = columns.warp_op(id, &inst.op)?
                && tables.warp_ops.iter().all(|o| o.arrive != op.arrive)
            {
                tables.warp_ops.push(op);
            }
        }
    }
    Ok(tables)
}

struct Columns<'a> {
    kernel: &'a Kernel,
    layout: &'a ThreadStateLayout,
}

impl Columns<'_> {
    fn column(&self, reg: RegId) -> Option<Column> {
        self.layout.column(reg).map(|offset| Column {
            offset,
            width_bytes: self.kernel.width(reg).size_bytes(),
        })
    }

    fn saved(&self, reg: RegId, point: ResumePointId) -> Result<Column, CodegenError> {
        self.column(reg).ok_or_else(|| CodegenError::NotSaved {
            what: reg.to_string(),
            point,
        })
    }

    fn source(&self, operand: Operand, point: ResumePointId) -> Result<Source, CodegenError> {
        Ok(match operand {
            Operand::Reg(reg) => Source::Column(self.saved(reg, point)?),
            Operand::Imm(bits) => Source::Imm(bits),
        })
    }

    fn barrier(&self, block: BbId, terminator: &Terminator) -> Result<Option<BarrierTable>, CodegenError> {
        let Terminator::Barrier {
            id,
            count,
            reduction,
            probe,
            ..
        } = terminator
        else {
            return Ok(None);
        };
        let probe = probe.ok_or(CodegenError::NotProbed { block })?;
        let reduction = match reduction {
            None => None,
            Some(r) => Some(Reduction {
                op: match r.op {
                    BarrierReductionOp::And => ReductionOp::And,
                    BarrierReductionOp::Or => ReductionOp::Or,
                    BarrierReductionOp::Popc => ReductionOp::Popc,
                },
                source: self.saved(r.src.pred, probe.arrive)?,
                negated: r.src.negated,
                result: self.column(r.dst),
            }),
        };
        Ok(Some(BarrierTable {
            arrive: probe.arrive.0,
            leave: probe.leave.0,
            id: self.source(*id, probe.arrive)?,
            count: count.map(|c| self.source(c, probe.arrive)).transpose()?,
            reduction,
        }))
    }

    fn warp_op(&self, block: BbId, op: &Op) -> Result<Option<WarpTable>, CodegenError> {
        let Op::Warp {
            op,
            dst,
            dst_pred,
            srcs,
            mask,
            probe,
        } = op
        else {
            return Ok(None);
        };
        let WarpProbe { arrive, leave, .. } = probe.ok_or(CodegenError::NotProbed { block })?;
        let value_bytes = match op {
            WarpOp::MatchAny(ty) | WarpOp::MatchAll(ty) => ty.size_bytes(),
            _ => Width::W32.size_bytes(),
        };
        Ok(Some(WarpTable {
            arrive: arrive.0,
            leave: leave.0,
            op: opcode(*op),
            value_bytes,
            result: dst.and_then(|r| self.column(r)),
            result_pred: dst_pred.and_then(|r| self.column(r)),
            sources: srcs.iter().map(|s| self.source(*s, arrive)).collect::<Result<_, _>>()?,
            mask: self.source(*mask, arrive)?,
        }))
    }
}

fn step(block: BbId, op: &Op) -> Result<Option<StepTable>, CodegenError> {
    let Op::Warp {
        op: WarpOp::Step,
        probe,
        ..
    } = op
    else {
        return Ok(None);
    };
    let WarpProbe { arrive, leave, .. } = probe.ok_or(CodegenError::NotProbed { block })?;
    Ok(Some(StepTable {
        arrive: arrive.0,
        leave: leave.0,
    }))
}

fn opcode(op: WarpOp) -> WarpOpcode {
    match op {
        WarpOp::ShflUp => WarpOpcode::ShflUp,
        WarpOp::ShflDown => WarpOpcode::ShflDown,
        WarpOp::ShflBfly => WarpOpcode::ShflBfly,
        WarpOp::ShflIdx => WarpOpcode::ShflIdx,
        WarpOp::VoteAll => WarpOpcode::VoteAll,
        WarpOp::VoteAny => WarpOpcode::VoteAny,
        WarpOp::VoteUni => WarpOpcode::VoteUni,
        WarpOp::VoteBallot => WarpOpcode::VoteBallot,
        WarpOp::MatchAny(_) => WarpOpcode::MatchAny,
        WarpOp::MatchAll(_) => WarpOpcode::MatchAll,
        WarpOp::Redux(op, ty) => redux(op, ty),
        WarpOp::ActiveMask => WarpOpcode::ActiveMask,
        // A step has a table of its own.
        WarpOp::Sync | WarpOp::Step => WarpOpcode::Sync,
    }
}

fn redux(op: ReduxOp, ty: Type) -> WarpOpcode {
    match (op, ty.is_signed()) {
        (ReduxOp::Add, _) => WarpOpcode::ReduxAdd,
        (ReduxOp::Min, false) => WarpOpcode::ReduxMinUnsigned,
        (ReduxOp::Min, true) => WarpOpcode::ReduxMinSigned,
        (ReduxOp::Max, false) => WarpOpcode::ReduxMaxUnsigned,
        (ReduxOp::Max, true) => WarpOpcode::ReduxMaxSigned,
        (ReduxOp::And, _) => WarpOpcode::ReduxAnd,
        (ReduxOp::Or, _) => WarpOpcode::ReduxOr,
        (ReduxOp::Xor, _) => WarpOpcode::ReduxXor,
    }
}
