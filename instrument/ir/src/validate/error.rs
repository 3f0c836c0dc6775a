//! What a kernel can break, and where.

use crate::entity::{BbId, RegId, ResumePointId, Span};
use crate::inst::{AluOp, SpecialReg};
use crate::kernel::ResumePointKind;
use crate::types::{Space, Type, Width};
use thiserror::Error;

/// A broken rule and its place.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("kernel `{kernel}`{}: {rule}", place(*block, *inst, *span))]
pub struct ValidationError {
    /// The kernel's name.
    pub kernel: String,
    /// The basic block, if it is one block's fault.
    pub block: Option<BbId>,
    /// The instruction's index in it; `None` for the terminator.
    pub inst: Option<usize>,
    /// Its PTX line.
    pub span: Span,
    /// What is wrong.
    pub rule: Rule,
}

fn place(block: Option<BbId>, inst: Option<usize>, span: Span) -> String {
    let mut out = String::new();
    if let Some(block) = block {
        out += &format!(", {block}");
        out += &inst.map_or_else(|| " terminator".into(), |i| format!(" instruction {i}"));
    }
    if span.line != 0 {
        out += &format!(" (PTX line {})", span.line);
    }
    out
}

/// The rules, as their violations.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Rule {
    /// A register id beyond the kernel's registers.
    #[error("{0} does not exist")]
    NoSuchRegister(RegId),
    /// A basic block id beyond the kernel's blocks.
    #[error("{0} does not exist")]
    NoSuchBlock(BbId),
    /// A resume point id beyond the kernel's resume points.
    #[error("{0} does not exist")]
    NoSuchResumePoint(ResumePointId),
    /// More registers, basic blocks or resume points than there are ids ([`crate::entity::MAX_ENTITIES`]).
    #[error("{found} {what}, which is more than there are ids")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
    },
    /// A kernel without basic blocks.
    #[error("a kernel has at least one basic block")]
    NoBlocks,
    /// Control comes back to the entry.
    #[error("control goes to the entry block")]
    EntryHasPredecessor,
    /// A parameter outside what offsets can express, or an alignment that is no power of two or not kept.
    #[error("parameter {0} is not laid out soundly")]
    ParameterLayout(usize),
    /// A segment's size is a multiple of 16 and its variables lie in it.
    #[error("the {} segment is not laid out soundly", space.text())]
    SegmentLayout {
        /// Which segment.
        space: SegmentName,
    },
    /// Operands of an instruction or of a list in it.
    #[error("{found} operands where {expected} belong")]
    OperandCount {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Elements of a vector access or parts of a pack.
    #[error("{0} elements do not make up a vector here")]
    VectorLength(usize),
    /// The operation is not defined for the type.
    #[error("{op:?} is not defined for .{}", ty.name())]
    AluType {
        /// Operation.
        op: AluOp,
        /// Its type.
        ty: Type,
    },
    /// An instruction that is not defined for the type.
    #[error("not defined for .{}", .0.name())]
    Type(Type),
    /// A register of the wrong width.
    #[error("{reg} is {found:?} where {expected} belongs")]
    RegisterWidth {
        /// The register.
        reg: RegId,
        /// Its width.
        found: Width,
        /// What would be right.
        expected: &'static str,
    },
    /// An immediate with bits beyond its type.
    #[error("immediate {value:#x} does not fit .{}", ty.name())]
    ImmediateRange {
        /// The immediate.
        value: u64,
        /// Its type.
        ty: Type,
    },
    /// An operand that must be an immediate is a register.
    #[error("{0} stands where an immediate belongs")]
    NotImmediate(RegId),
    /// The state space does not allow this access.
    #[error("not possible in the {0:?} space")]
    Space(Space),
    /// A constant address outside its segment.
    #[error("address {offset} with {size_bytes} bytes lies outside the {space:?} segment")]
    AddressRange {
        /// The space.
        space: Space,
        /// The constant address.
        offset: i64,
        /// Bytes accessed.
        size_bytes: u32,
    },
    /// A special register read into a register of another width.
    #[error("{0:?} is read into a register of another width")]
    SpecialWidth(SpecialReg),
    /// A result that the operation does not have, or the lack of one it must have.
    #[error("the operation has no such result, or lacks one")]
    Results,
    /// A barrier number above 15.
    #[error("barrier number {0} is above 15")]
    BarrierNumber(u64),
    /// Resume points exist, but the first is not the entry at `bb0`, or another one claims to be.
    #[error("rp0 is the entry at bb0, and no other resume point is")]
    EntryResumePoint,
    /// A probe that refers to a resume point of another kind.
    #[error("{point} is of kind {found:?} where {expected} belongs")]
    ResumePointKind {
        /// The resume point.
        point: ResumePointId,
        /// Its kind.
        found: ResumePointKind,
        /// What would be right.
        expected: &'static str,
    },
    /// A resume point that is not where its probe goes on.
    #[error("{point} is at {found} where {expected} belongs")]
    ResumePointPlace {
        /// The resume point.
        point: ResumePointId,
        /// Its block.
        found: BbId,
        /// The block that its probe goes on at.
        expected: BbId,
    },
    /// A probed barrier or warp-level operation shares its block with other instructions.
    #[error("a probed barrier or warp-level operation stands alone in its block")]
    NotAlone,
    /// A probed warp-level operation has a guard or does not end in a jump.
    #[error("a probed warp-level operation is unguarded and followed by a jump")]
    ProbedWarpOp,
}

/// The two segments a kernel lays out itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentName {
    /// Shared memory.
    Shared,
    /// The local frame.
    Local,
}

impl SegmentName {
    fn text(self) -> &'static str {
        match self {
            SegmentName::Shared => "shared",
            SegmentName::Local => "local",
        }
    }
}
