//! A kernel: its parameters, memory, registers, basic blocks and resume points.

use crate::basic_block::{BasicBlock, Terminator};
use crate::entity::{BbId, RegId, ResumePointId, Span};
use crate::grid_workspace;
use crate::inst::{Inst, Op, Operand, WarpOp};
use crate::types::Width;

/// A `.entry` and all it needs, once globals are bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Mangled name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Width of each register, indexed by [`RegId`].
    pub registers: Vec<Width>,
    /// Basic blocks, indexed by [`BbId`]; `bb0` is the entry and has no predecessors.
    pub blocks: Vec<BasicBlock>,
    /// The block's shared segment.
    pub shared: SharedSegment,
    /// The thread's local frame.
    pub local: LocalFrame,
    /// Launch bounds.
    pub bounds: LaunchBounds,
    /// It does step by step what the tensor cores of NVIDIA's GPUs do at once.
    pub multiplies_matrices: bool,
    /// It does in software what the texture units of NVIDIA's GPUs do, with descriptions of images in device memory.
    pub reads_images: bool,
    /// It takes the address of a function, or calls one by it. These addresses are no code's.
    pub holds_functions: bool,
    /// It keeps a stack of its own for functions that may call themselves.
    pub has_call_stack: bool,
    /// Resume points, indexed by [`ResumePointId`]; empty before the probe pass, else `rp0` is the entry.
    pub resume_points: Vec<ResumePoint>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the PTX.
    pub name: String,
    /// Offset in the parameter buffer, bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Alignment in bytes.
    pub align_bytes: u32,
}

/// A variable inside the shared segment or the local frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name in the PTX.
    pub name: String,
    /// Offset in the segment, bytes.
    pub offset: u32,
    /// Size in bytes; 0 for dynamic shared memory.
    pub size_bytes: u32,
}

/// Shared memory of one block: static variables, then (aligned to 16) what the launch adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSegment {
    /// Size of the static part, a multiple of 16; dynamic shared memory starts here.
    pub static_bytes: u32,
    /// Variables, for messages.
    pub variables: Vec<Variable>,
}

/// Local memory of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalFrame {
    /// Size, a multiple of 16.
    pub size_bytes: u32,
    /// Variables, for messages.
    pub variables: Vec<Variable>,
}

/// `.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchBounds {
    /// `.maxntid`: the product is the limit of threads a block.
    pub max_ntid: Option<[u32; 3]>,
    /// `.reqntid`.
    pub req_ntid: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub min_cta_per_sm: Option<u32>,
    /// `.maxnreg`.
    pub max_registers: Option<u32>,
}

/// A program point from which a stopped thread goes on, at the start of `block`. What must be saved there is what is
/// live at that point ([`crate::analysis::liveness`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResumePoint {
    /// What kind of point it is.
    pub kind: ResumePointKind,
    /// The thread goes on at the start of this basic block.
    pub block: BbId,
}

/// Kinds of resume points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResumePointKind {
    /// The kernel's start: the thread has done nothing yet.
    Entry,
    /// A probe in a loop.
    Loop,
    /// Before a barrier.
    BarrierArrive,
    /// After a barrier.
    BarrierLeave,
    /// Before a warp-level operation.
    WarpArrive,
    /// After a warp-level operation.
    WarpLeave,
}

impl Kernel {
    /// The entry.
    pub const ENTRY: BbId = BbId(0);
    /// The resume point of a thread that has not started.
    pub const ENTRY_POINT: ResumePointId = ResumePointId(0);

    /// Width of a register.
    #[must_use]
    pub fn width(&self, reg: RegId) -> Width {
        self.registers[reg.index()]
    }

    /// A new register.
    pub fn add_register(&mut self, width: Width) -> RegId {
        let id = RegId::from_index(self.registers.len());
        self.registers.push(width);
        id
    }

    /// A new basic block.
    pub fn add_block(&mut self, block: BasicBlock) -> BbId {
        let id = BbId::from_index(self.blocks.len());
        self.blocks.push(block);
        id
    }

    /// A new resume point.
    pub fn add_resume_point(&mut self, point: ResumePoint) -> ResumePointId {
        let id = ResumePointId::from_index(self.resume_points.len());
        self.resume_points.push(point);
        id
    }

    /// Size of the parameter buffer in bytes.
    #[must_use]
    pub fn param_bytes(&self) -> u32 {
        self.params.iter().map(|p| p.offset + p.size_bytes).max().unwrap_or(0)
    }

    /// The parameter behind the program's own that tells where blocks of a cooperative launch meet.
    #[must_use]
    pub fn grid_workspace(&self) -> Option<&Param> {
        self.params.last().filter(|param| param.name == grid_workspace::PARAM)
    }

    /// The parameters that the program knows of.
    #[must_use]
    pub fn program_params(&self) -> &[Param] {
        let hidden = usize::from(self.grid_workspace().is_some());
        self.params.split_at(self.params.len() - hidden).0
    }

    /// All instructions, block by block.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.blocks.iter().flat_map(|block| &block.insts)
    }

    /// True if threads of a block wait for one another.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        self.blocks
            .iter()
            .any(|block| matches!(block.terminator, Terminator::Barrier { .. }))
    }

    /// Where a barrier stands, if any, that is not number 0, or not for the whole block.
    #[must_use]
    pub fn partial_barrier(&self) -> Option<Span> {
        let mut blocks = self.blocks.iter();
        blocks.find_map(|block| match &block.terminator {
            Terminator::Barrier { id, count, .. } if *id != Operand::Imm(0) || count.is_some() => Some(block.span),
            _ => None,
        })
    }

    /// True if lanes of a warp wait for one another.
    #[must_use]
    pub fn has_warp_op(&self) -> bool {
        self.insts().any(|inst| matches!(inst.op, Op::Warp { .. }))
    }

    /// True if it counts on threads that run in step ([`WarpOp::Step`]).
    #[must_use]
    pub fn runs_in_step(&self) -> bool {
        let is_step = |inst: &Inst| matches!(inst.op, Op::Warp { op: WarpOp::Step, .. });
        self.insts().any(is_step)
    }

    /// Ids and basic blocks, in order.
    pub fn iter_blocks(&self) -> impl Iterator<Item = (BbId, &BasicBlock)> {
        (0u32..).map(BbId).zip(&self.blocks)
    }
}
