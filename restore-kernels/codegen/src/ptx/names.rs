//! How PTX writes registers, constants, parameters and labels.

use hetckpt_ir::entity::{BbId, RegId, ResumePointId};
use hetckpt_ir::inst::{Axis, SpecialReg};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

/// The hidden parameter.
pub(super) const CONTROL_PARAM: &str = "hetckpt_control";

/// `%r12`: the letters tell the width, the number is the register's id.
pub(super) fn register(kernel: &Kernel, reg: RegId) -> String {
    format!("{}{}", prefix(kernel.width(reg)), reg.0)
}

/// Letters of a kernel's registers of one width.
pub(super) const fn prefix(width: Width) -> &'static str {
    match width {
        Width::Pred => "%p",
        Width::W16 => "%rs",
        Width::W32 => "%r",
        Width::W64 => "%rd",
    }
}

/// The untyped PTX type of a width.
pub(super) const fn width_type(width: Width) -> &'static str {
    match width {
        Width::Pred => "pred",
        Width::W16 => "b16",
        Width::W32 => "b32",
        Width::W64 => "b64",
    }
}

/// A label of a basic block.
pub(super) fn label(id: BbId) -> String {
    format!("$bb{}", id.0)
}

/// A label of a basic block for launches that are not asked to stop.
pub(super) fn label_unasked(id: BbId) -> String {
    format!("$unasked_bb{}", id.0)
}

/// A label of a basic block, behind the barrier that is written before it.
pub(super) fn label_after_join(id: BbId) -> String {
    format!("$bb{}_joined", id.0)
}

/// A label of what a thread does that stops at a resume point.
pub(super) fn save_label(point: ResumePointId) -> String {
    format!("$save_rp{}", point.0)
}

/// A label of what a thread does that starts at a resume point.
pub(super) fn resume_label(point: ResumePointId) -> String {
    format!("$resume_rp{}", point.0)
}

/// A constant of type `ty`; `None` if PTX has no literal of that type (half floats, predicates).
pub(super) fn constant(ty: Type, bits: u64) -> Option<String> {
    let text = match ty {
        Type::Pred | Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 => return None,
        Type::F32 => format!("0f{:08X}", bits & 0xffff_ffff),
        Type::F64 => format!("0d{bits:016X}"),
        _ => integer(ty, bits),
    };
    Some(text)
}

fn integer(ty: Type, bits: u64) -> String {
    let unused = 64 - 8 * ty.size_bytes();
    let unsigned = bits << unused >> unused;
    let signed = (bits << unused).cast_signed() >> unused;
    if ty.is_signed() && signed < 0 && signed != i64::MIN {
        signed.to_string()
    } else if unsigned < 1 << 31 {
        unsigned.to_string()
    } else {
        format!("0x{unsigned:X}")
    }
}

/// `.param .u64 name` or `.param .align 8 .b8 name[24]`.
pub(super) fn param_declaration(kernel: &Kernel, index: usize) -> String {
    let param = &kernel.params[index];
    if param.align_bytes == param.size_bytes && matches!(param.size_bytes, 1 | 2 | 4 | 8) {
        format!(".param .b{} {}", param.size_bytes * 8, param.name)
    } else {
        format!(
            ".param .align {} .b8 {}[{}]",
            param.align_bytes, param.name, param.size_bytes
        )
    }
}

const fn axis(axis: Axis) -> &'static str {
    match axis {
        Axis::X => "x",
        Axis::Y => "y",
        Axis::Z => "z",
    }
}

/// A special register as PTX names it.
pub(super) fn special(special: SpecialReg) -> String {
    match special {
        SpecialReg::Tid(a) => format!("%tid.{}", axis(a)),
        SpecialReg::Ntid(a) => format!("%ntid.{}", axis(a)),
        SpecialReg::Ctaid(a) => format!("%ctaid.{}", axis(a)),
        SpecialReg::Nctaid(a) => format!("%nctaid.{}", axis(a)),
        SpecialReg::LaneId => "%laneid".into(),
        SpecialReg::WarpId => "%warpid".into(),
        SpecialReg::NWarpId => "%nwarpid".into(),
        SpecialReg::LaneMaskEq => "%lanemask_eq".into(),
        SpecialReg::LaneMaskLe => "%lanemask_le".into(),
        SpecialReg::LaneMaskLt => "%lanemask_lt".into(),
        SpecialReg::LaneMaskGe => "%lanemask_ge".into(),
        SpecialReg::LaneMaskGt => "%lanemask_gt".into(),
        SpecialReg::Clock => "%clock".into(),
        SpecialReg::Clock64 => "%clock64".into(),
        SpecialReg::GlobalTimer => "%globaltimer".into(),
        SpecialReg::DynamicSmemSize => "%dynamic_smem_size".into(),
        SpecialReg::TotalSmemSize => "%total_smem_size".into(),
        SpecialReg::SmId => "%smid".into(),
        SpecialReg::NSmId => "%nsmid".into(),
        SpecialReg::GridId => "%gridid".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_constants_as_ptx_reads_them() {
        assert_eq!(constant(Type::S32, 0xffff_ffff).as_deref(), Some("-1"));
        assert_eq!(constant(Type::U32, 0xffff_ffff).as_deref(), Some("0xFFFFFFFF"));
        assert_eq!(constant(Type::S64, u64::MAX).as_deref(), Some("-1"));
        assert_eq!(constant(Type::F32, 0x3f80_0000).as_deref(), Some("0f3F800000"));
        assert_eq!(
            constant(Type::F64, 0x3ff0_0000_0000_0000).as_deref(),
            Some("0d3FF0000000000000")
        );
        assert_eq!(constant(Type::S64, 1 << 63).as_deref(), Some("0x8000000000000000"));
        assert_eq!(constant(Type::U16, 0x1_0005).as_deref(), Some("5"));
        assert_eq!(constant(Type::F16, 0), None);
    }
}
