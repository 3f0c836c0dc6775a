//! Instructions: what stands in a basic block before its terminator.
//!
//! Operands are registers or immediates; a symbol's address is either an `AddrOf` or the base of a memory access.
//! Semantics are PTX's (PTX ISA 9.0, "Instruction Set"): the variant and its fields name the PTX instruction.

use crate::entity::{RegId, ResumePointId, Span};
use crate::types::{Space, Type};

/// One instruction, perhaps predicated, with the PTX line it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// `@p` or `@!p`: executed only by threads where the predicate holds. A guarded write does not end a live range.
    pub guard: Option<Guard>,
    /// Source position.
    pub span: Span,
}

/// `@p` (`negated == false`) or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The predicate register.
    pub pred: RegId,
    /// True for `@!p`.
    pub negated: bool,
}

/// Source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// Bits of a constant, as wide as the instruction reads it, zero-extended to 64; floats as their IEEE bits;
    /// a predicate constant is 0 or 1.
    Imm(u64),
}

/// Address of a memory access or of `AddrOf`: `base + offset` (wrapping, in the width of the space).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// What the offset counts from.
    pub base: AddressBase,
    /// Bytes.
    pub offset: i64,
}

/// What an address counts from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AddressBase {
    /// A register holding an address of the access's space (32 or 64 bits wide).
    Reg(RegId),
    /// A module variable in the global space, by name; [`crate::module::bind_globals`] turns it into `Absolute`.
    Global(String),
    /// Zero: the offset is the address (shared, local, param: offset into the segment; global: a device address).
    Absolute,
}

/// Arithmetic, logic and bit operations: `dst = op(srcs)`. Number and meaning of `srcs` are PTX's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum AluOp {
    Add,
    Sub,
    /// Low half for integers (`mul.lo`), the product for floats.
    Mul,
    MulHi,
    /// `dst` is twice as wide as the type.
    MulWide,
    /// Low half of the product plus the third operand; integers only.
    Mad,
    MadHi,
    MadWide,
    Fma,
    Div,
    Rem,
    Min,
    Max,
    Abs,
    Neg,
    Sad,
    And,
    Or,
    Xor,
    Not,
    Cnot,
    /// Shift amounts are u32 and clamp at the width.
    Shl,
    /// Arithmetic for signed types.
    Shr,
    /// Funnel shifts: `srcs` = low, high, amount.
    ShfLWrap,
    ShfLClamp,
    ShfRWrap,
    ShfRClamp,
    /// `dst` is 32 bits wide for popc, clz, bfind.
    Popc,
    Clz,
    Brev,
    Bfind,
    BfindShiftAmt,
    /// `srcs` = value, position, length.
    Bfe,
    /// `srcs` = inserted, into, position, length.
    Bfi,
    /// `srcs` = position, length.
    BmskClamp,
    BmskWrap,
    /// Default mode; `srcs` = a, b, selector.
    Prmt,
    /// `srcs` = a, b, c, truth table (an immediate).
    Lop3,
    Rcp,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    Copysign,
}

/// Rounding (PTX ISA, "Rounding Modifiers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Rounding {
    Rn,
    Rz,
    Rm,
    Rp,
    Rni,
    Rzi,
    Rmi,
    Rpi,
    Rna,
}

/// Modifiers of arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Modifiers {
    /// Rounding; `None` is the instruction's default (nearest even where it has one).
    pub rounding: Option<Rounding>,
    /// `.ftz`: subnormal inputs and results become zero.
    pub ftz: bool,
    /// `.sat`: result clamped to the type's range, floats to [0, 1].
    pub sat: bool,
    /// `.approx`.
    pub approx: bool,
    /// `.full` (division).
    pub full: bool,
}

/// Comparison of `setp` (PTX ISA, "setp"). The `u` forms are true if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unsigned `lt`, and so on; also written `lt` on `u` types.
    Lo,
    Ls,
    Hi,
    Hs,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// How `setp` combines its comparison with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

/// Atomic read-modify-write (PTX ISA, "atom").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    /// `srcs` = compare, new value.
    Cas,
    Inc,
    Dec,
}

/// Ordering of a memory access (PTX ISA, "Memory Consistency Model"); cache hints are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Ordering {
    #[default]
    Weak,
    /// `.nc`: read-only for the kernel's whole life.
    NonCoherent,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

/// Scope of an ordering (PTX ISA, "Scope").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Scope {
    Cta,
    #[default]
    Gpu,
    Sys,
}

/// One dimension of a special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "x, y, z")]
pub enum Axis {
    X,
    Y,
    Z,
}

/// Special registers (PTX ISA, "Special Registers"); 32 bits wide except `Clock64` and `GlobalTimer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum SpecialReg {
    Tid(Axis),
    Ntid(Axis),
    Ctaid(Axis),
    Nctaid(Axis),
    LaneId,
    WarpId,
    NWarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    Clock,
    Clock64,
    GlobalTimer,
    DynamicSmemSize,
    TotalSmemSize,
    SmId,
    NSmId,
    GridId,
}

/// Warp-level operations, on the 32 lanes of a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync",
/// "activemask", "bar.warp.sync"). The probe pass gives each one a basic block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarpOp {
    /// `srcs` = value (b32), lane or delta or mask b, clamp c. `dst_pred` = the `|p` result.
    ShflUp,
    /// See [`WarpOp::ShflUp`].
    ShflDown,
    /// See [`WarpOp::ShflUp`].
    ShflBfly,
    /// See [`WarpOp::ShflUp`].
    ShflIdx,
    /// `srcs` = predicate; result in `dst_pred`.
    VoteAll,
    /// See [`WarpOp::VoteAll`].
    VoteAny,
    /// See [`WarpOp::VoteAll`].
    VoteUni,
    /// `srcs` = predicate; result (b32 mask) in `dst`.
    VoteBallot,
    /// `srcs` = value of the given type; b32 mask in `dst`.
    MatchAny(Type),
    /// `srcs` = value of the given type; b32 mask in `dst`, `dst_pred` = all equal.
    MatchAll(Type),
    /// `srcs` = value; result in `dst`.
    Redux(ReduxOp, Type),
    /// `dst` = mask of active lanes; has no member mask.
    ActiveMask,
    /// `bar.warp.sync`.
    Sync,
    /// Not an instruction of PTX: where a program counts on a GPU's order, in which no lane executes an instruction
    /// before all lanes beside it have executed the one before. A thread that comes here goes on once the others of its
    /// warp have come as far as they can, here or elsewhere. The mask is all lanes; nobody waits for who does not come.
    Step,
}

/// The member mask of all lanes of a warp.
pub const ALL_LANES: u64 = 0xffff_ffff;

/// Operation of `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum ReduxOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Arithmetic, logic, bits.
    Alu {
        /// Operation.
        op: AluOp,
        /// Type of the sources (and of the result, unless [`AluOp`] says otherwise).
        ty: Type,
        /// Modifiers.
        mods: Modifiers,
        /// Result.
        dst: RegId,
        /// Sources, in PTX's order.
        srcs: Vec<Operand>,
    },
    /// `dst = src`, bits unchanged. Type `Pred` moves predicates.
    Mov {
        /// Type.
        ty: Type,
        /// Result.
        dst: RegId,
        /// Source.
        src: Operand,
    },
    /// `mov.b32 d, {a, b}` and the like: parts packed, lowest first; part width = type size / number of parts.
    Pack {
        /// Type of the result.
        ty: Type,
        /// Result.
        dst: RegId,
        /// Parts, lowest first.
        srcs: Vec<Operand>,
    },
    /// `mov.b32 {a, b}, s`: the inverse; `None` for `_`.
    Unpack {
        /// Type of the source.
        ty: Type,
        /// Parts, lowest first.
        dsts: Vec<Option<RegId>>,
        /// Source.
        src: Operand,
    },
    /// Address of a variable, in its own state space.
    AddrOf {
        /// Result (32 or 64 bits wide).
        dst: RegId,
        /// Space of the variable: global, shared or local.
        space: Space,
        /// The address.
        addr: Address,
    },
    /// Reads a special register.
    ReadSpecial {
        /// Result.
        dst: RegId,
        /// Which.
        special: SpecialReg,
    },
    /// `dst = (a cmp b) [combine p]`; `dst_not` = `(!(a cmp b)) [combine p]`.
    Setp {
        /// Comparison.
        cmp: Comparison,
        /// Type compared.
        ty: Type,
        /// `.ftz`.
        ftz: bool,
        /// Result.
        dst: RegId,
        /// Second result `|q`.
        dst_not: Option<RegId>,
        /// Left.
        a: Operand,
        /// Right.
        b: Operand,
        /// `.and p`, `.or !p`, …: operation, predicate, negated.
        combine: Option<(BoolOp, RegId, bool)>,
    },
    /// `set.cmp.dty.sty`: result all ones or 1.0 if true, else 0.
    Set {
        /// Comparison.
        cmp: Comparison,
        /// Type of the result: u32, s32 or f32.
        dst_ty: Type,
        /// Type compared.
        ty: Type,
        /// `.ftz`.
        ftz: bool,
        /// Result.
        dst: RegId,
        /// Left.
        a: Operand,
        /// Right.
        b: Operand,
    },
    /// `dst = pred ? a : b`.
    Selp {
        /// Type.
        ty: Type,
        /// Result.
        dst: RegId,
        /// If true.
        a: Operand,
        /// If false.
        b: Operand,
        /// Selector.
        pred: RegId,
    },
    /// Conversion.
    Cvt {
        /// Type of the result.
        dst_ty: Type,
        /// Type of the source.
        src_ty: Type,
        /// Rounding, ftz, sat.
        mods: Modifiers,
        /// Result.
        dst: RegId,
        /// Source.
        src: Operand,
    },
    /// Load of one, two, four or eight elements: one access, aligned to its size, of which another thread sees all or
    /// nothing if it is no longer than 16 bytes.
    Load {
        /// State space.
        space: Space,
        /// Element type; a register wider than the element is zero- or sign-extended by it.
        ty: Type,
        /// Ordering.
        ordering: Ordering,
        /// Results, one an element; `None` for `_`.
        dsts: Vec<Option<RegId>>,
        /// Address of the first element.
        addr: Address,
    },
    /// Store of one, two, four or eight elements; one access as [`Op::Load`] is.
    Store {
        /// State space.
        space: Space,
        /// Element type; a wider register is truncated.
        ty: Type,
        /// Ordering.
        ordering: Ordering,
        /// Address of the first element.
        addr: Address,
        /// Values, one an element.
        srcs: Vec<Operand>,
    },
    /// Atomic read-modify-write; `dst` is the old value.
    Atom {
        /// Operation.
        op: AtomOp,
        /// State space: global, shared or generic.
        space: Space,
        /// Type.
        ty: Type,
        /// Ordering (PTX's default: relaxed).
        ordering: Ordering,
        /// Scope.
        scope: Scope,
        /// Old value, if wanted.
        dst: Option<RegId>,
        /// Address.
        addr: Address,
        /// Operands after the address.
        srcs: Vec<Operand>,
    },
    /// `membar.{cta,gl,sys}` and `fence`.
    Membar {
        /// Scope.
        scope: Scope,
    },
    /// `nanosleep`: the thread waits for about so long.
    Nanosleep {
        /// Nanoseconds, 32 bits; up to a millisecond.
        duration: Operand,
    },
    /// Warp-level operation.
    Warp {
        /// Operation.
        op: WarpOp,
        /// Result.
        dst: Option<RegId>,
        /// Predicate result.
        dst_pred: Option<RegId>,
        /// Sources, without the member mask.
        srcs: Vec<Operand>,
        /// Member mask.
        mask: Operand,
        /// Set by the probe pass.
        probe: Option<WarpProbe>,
    },
    /// An instruction that the front end does not model, kept word for word for the target it came from.
    Opaque {
        /// PTX text with `$0`, `$1`, … for the registers.
        text: String,
        /// Registers read.
        uses: Vec<RegId>,
        /// Registers written.
        defs: Vec<RegId>,
    },
}

/// Resume points around a warp-level operation that stands alone in its basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpProbe {
    /// Start of the block: the lane has not taken part yet.
    pub arrive: ResumePointId,
    /// Start of the following block: the lane has its result.
    pub leave: ResumePointId,
    /// Lanes of this warp may have stopped since its last warp-level operation. Generated code does not read it: on
    /// GPUs warps stop as wholes, the CPU device lets lanes wait; the interpreter checks it.
    pub poll: bool,
}
