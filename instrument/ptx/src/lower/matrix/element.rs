//! What matrices are made of.

use hetckpt_ir::inst::AluOp;

use crate::lower::eight_bits::{E4M3, E5M2, Format};

/// An element of the matrices that are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// A float of 8 bits.
    F8(Format),
    /// Single precision of whose mantissa only the upper 10 bits count.
    Tf32,
    /// Double precision.
    F64,
    /// An integer of so many bits.
    Int {
        /// 4 or 8.
        bits: u32,
        /// With a sign.
        is_signed: bool,
    },
    /// A bit. Those that match are counted.
    Bit,
}

/// An element of what is added to their product, and of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Half precision, two in a register.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// An integer of 32 bits.
    S32,
}

const fn int(bits: u32, is_signed: bool) -> Element {
    Element::Int { bits, is_signed }
}

/// By name.
pub(crate) const ELEMENTS: [(&str, Element); 11] = [
    ("f16", Element::F16),
    ("bf16", Element::Bf16),
    ("e4m3", Element::F8(E4M3)),
    ("e5m2", Element::F8(E5M2)),
    ("tf32", Element::Tf32),
    ("f64", Element::F64),
    ("s8", int(8, true)),
    ("u8", int(8, false)),
    ("s4", int(4, true)),
    ("u4", int(4, false)),
    ("b1", Element::Bit),
];

/// By name.
pub(crate) const SUMS: [(&str, Sum); 4] = [
    ("f16", Sum::F16),
    ("f32", Sum::F32),
    ("f64", Sum::F64),
    ("s32", Sum::S32),
];

/// How bits match, by name.
pub(crate) const MATCHES: [(&str, AluOp); 2] = [("xor", AluOp::Xor), ("and", AluOp::And)];

impl Element {
    /// Its size.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::F8(_) => 8,
            Self::Tf32 => 32,
            Self::F64 => 64,
            Self::Int { bits, .. } => bits,
            Self::Bit => 1,
        }
    }

    /// How many are in a register, which has 64 bits if they have.
    pub(crate) const fn per_register(self) -> u32 {
        match self {
            Self::F64 => 1,
            _ => 32 / self.bits(),
        }
    }

    /// True if products of `self` and `other` can be added up to `sum`.
    pub(crate) fn goes_with(self, other: Self, sum: Sum) -> bool {
        match (self, other) {
            (Self::F16, Self::F16) | (Self::F8(_), Self::F8(_)) => matches!(sum, Sum::F16 | Sum::F32),
            (Self::Bf16, Self::Bf16) | (Self::Tf32, Self::Tf32) => sum == Sum::F32,
            (Self::F64, Self::F64) => sum == Sum::F64,
            (Self::Int { bits, .. }, Self::Int { bits: others, .. }) => bits == others && sum == Sum::S32,
            (Self::Bit, Self::Bit) => sum == Sum::S32,
            _ => false,
        }
    }
}
