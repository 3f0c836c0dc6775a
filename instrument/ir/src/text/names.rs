//! How the text form writes each enumeration; one table an enumeration, used both ways.

use crate::basic_block::BarrierReductionOp;
use crate::inst::{AluOp, AtomOp, Axis, BoolOp, Comparison, Ordering, ReduxOp, Rounding, Scope, SpecialReg};
use crate::kernel::ResumePointKind;
use crate::types::{Space, Type, Width};

/// A name in the text form and back.
pub trait TextName: Sized + Copy {
    /// The name.
    fn text_name(self) -> &'static str;
    /// The value with that name.
    fn from_text_name(name: &str) -> Option<Self>;
}

macro_rules! names {
    ($type:ty { $($value:pat => $name:literal = $make:expr,)* }) => {
        impl TextName for $type {
            fn text_name(self) -> &'static str {
                match self {
                    $($value => $name,)*
                }
            }

            fn from_text_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some($make),)*
                    _ => None,
                }
            }
        }
    };
    ($type:ident: $($variant:ident $name:literal)*) => {
        names!($type { $($type::$variant => $name = $type::$variant,)* });
    };
}

names!(Width: Pred "pred" W16 "w16" W32 "w32" W64 "w64");

names!(Type:
    Pred "pred" B8 "b8" B16 "b16" B32 "b32" B64 "b64" U8 "u8" U16 "u16" U32 "u32" U64 "u64"
    S8 "s8" S16 "s16" S32 "s32" S64 "s64" F16 "f16" F16x2 "f16x2" Bf16 "bf16" Bf16x2 "bf16x2" F32 "f32" F64 "f64");

names!(Space: Global "global" Param "param" Shared "shared" Local "local" Generic "generic");

names!(AluOp:
    Add "add" Sub "sub" Mul "mul" MulHi "mul_hi" MulWide "mul_wide" Mad "mad" MadHi "mad_hi" MadWide "mad_wide"
    Fma "fma" Div "div" Rem "rem" Min "min" Max "max" Abs "abs" Neg "neg" Sad "sad" And "and" Or "or" Xor "xor"
    Not "not" Cnot "cnot" Shl "shl" Shr "shr" ShfLWrap "shf_l_wrap" ShfLClamp "shf_l_clamp" ShfRWrap "shf_r_wrap"
    ShfRClamp "shf_r_clamp" Popc "popc" Clz "clz" Brev "brev" Bfind "bfind" BfindShiftAmt "bfind_shiftamt"
    Bfe "bfe" Bfi "bfi" BmskClamp "bmsk_clamp" BmskWrap "bmsk_wrap" Prmt "prmt" Lop3 "lop3" Rcp "rcp" Sqrt "sqrt"
    Rsqrt "rsqrt" Sin "sin" Cos "cos" Lg2 "lg2" Ex2 "ex2" Tanh "tanh" Copysign "copysign");

names!(Rounding: Rn "rn" Rz "rz" Rm "rm" Rp "rp" Rni "rni" Rzi "rzi" Rmi "rmi" Rpi "rpi" Rna "rna");

names!(Comparison:
    Eq "eq" Ne "ne" Lt "lt" Le "le" Gt "gt" Ge "ge" Lo "lo" Ls "ls" Hi "hi" Hs "hs"
    Equ "equ" Neu "neu" Ltu "ltu" Leu "leu" Gtu "gtu" Geu "geu" Num "num" Nan "nan");

names!(BoolOp: And "and" Or "or" Xor "xor");

names!(AtomOp:
    Add "add" Min "min" Max "max" And "and" Or "or" Xor "xor" Exch "exch" Cas "cas" Inc "inc" Dec "dec");

names!(Ordering:
    Weak "weak" NonCoherent "nc" Volatile "volatile" Relaxed "relaxed" Acquire "acquire" Release "release"
    AcqRel "acq_rel");

names!(Scope: Cta "cta" Gpu "gpu" Sys "sys");

names!(ReduxOp: Add "add" Min "min" Max "max" And "and" Or "or" Xor "xor");

names!(BarrierReductionOp: And "and" Or "or" Popc "popc");

names!(ResumePointKind:
    Entry "entry" Loop "loop" BarrierArrive "barrier_arrive" BarrierLeave "barrier_leave"
    WarpArrive "warp_arrive" WarpLeave "warp_leave");

names!(SpecialReg {
    SpecialReg::Tid(Axis::X) => "tid_x" = SpecialReg::Tid(Axis::X),
    SpecialReg::Tid(Axis::Y) => "tid_y" = SpecialReg::Tid(Axis::Y),
    SpecialReg::Tid(Axis::Z) => "tid_z" = SpecialReg::Tid(Axis::Z),
    SpecialReg::Ntid(Axis::X) => "ntid_x" = SpecialReg::Ntid(Axis::X),
    SpecialReg::Ntid(Axis::Y) => "ntid_y" = SpecialReg::Ntid(Axis::Y),
    SpecialReg::Ntid(Axis::Z) => "ntid_z" = SpecialReg::Ntid(Axis::Z),
    SpecialReg::Ctaid(Axis::X) => "ctaid_x" = SpecialReg::Ctaid(Axis::X),
    SpecialReg::Ctaid(Axis::Y) => "ctaid_y" = SpecialReg::Ctaid(Axis::Y),
    SpecialReg::Ctaid(Axis::Z) => "ctaid_z" = SpecialReg::Ctaid(Axis::Z),
    SpecialReg::Nctaid(Axis::X) => "nctaid_x" = SpecialReg::Nctaid(Axis::X),
    SpecialReg::Nctaid(Axis::Y) => "nctaid_y" = SpecialReg::Nctaid(Axis::Y),
    SpecialReg::Nctaid(Axis::Z) => "nctaid_z" = SpecialReg::Nctaid(Axis::Z),
    SpecialReg::LaneId => "laneid" = SpecialReg::LaneId,
    SpecialReg::WarpId => "warpid" = SpecialReg::WarpId,
    SpecialReg::NWarpId => "nwarpid" = SpecialReg::NWarpId,
    SpecialReg::LaneMaskEq => "lanemask_eq" = SpecialReg::LaneMaskEq,
    SpecialReg::LaneMaskLe => "lanemask_le" = SpecialReg::LaneMaskLe,
    SpecialReg::LaneMaskLt => "lanemask_lt" = SpecialReg::LaneMaskLt,
    SpecialReg::LaneMaskGe => "lanemask_ge" = SpecialReg::LaneMaskGe,
    SpecialReg::LaneMaskGt => "lanemask_gt" = SpecialReg::LaneMaskGt,
    SpecialReg::Clock => "clock" = SpecialReg::Clock,
    SpecialReg::Clock64 => "clock64" = SpecialReg::Clock64,
    SpecialReg::GlobalTimer => "globaltimer" = SpecialReg::GlobalTimer,
    SpecialReg::DynamicSmemSize => "dynamic_smem_size" = SpecialReg::DynamicSmemSize,
    SpecialReg::TotalSmemSize => "total_smem_size" = SpecialReg::TotalSmemSize,
    SpecialReg::SmId => "smid" = SpecialReg::SmId,
    SpecialReg::NSmId => "nsmid" = SpecialReg::NSmId,
    SpecialReg::GridId => "gridid" = SpecialReg::GridId,
});
