//! Short forms of what is emitted here again and again. Nothing is guarded.

use hetckpt_ir::inst::{AluOp, Comparison, Op, Operand, SpecialReg, WarpOp};
use hetckpt_ir::types::{Type, Width};

use crate::lower::arithmetic::scratch;
use crate::lower::halves;
use crate::lower::lowering::KernelLowering;
use crate::lower::scope::width_of;

/// An operation of 32 bits.
pub(crate) fn word<const N: usize>(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, srcs: [Operand; N]) -> Operand {
    scratch(k, op, ty, Width::W32, srcs.to_vec())
}

/// An operation of 64 bits.
pub(crate) fn long<const N: usize>(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, srcs: [Operand; N]) -> Operand {
    scratch(k, op, ty, Width::W64, srcs.to_vec())
}

/// A sum of 32 bits.
pub(crate) fn plus(k: &mut KernelLowering<'_, '_>, a: Operand, b: u32) -> Operand {
    match b {
        0 => a,
        _ => word(k, AluOp::Add, Type::U32, [a, Operand::Imm(b.into())]),
    }
}

/// `if_true` where the comparison holds.
pub(crate) fn choose(
    k: &mut KernelLowering<'_, '_>,
    (cmp, ty, a, b): (Comparison, Type, Operand, Operand),
    of: Type,
    (if_true, if_false): (Operand, Operand),
) -> Operand {
    let pred = halves::compare(k, (cmp, ty), a, b, None);
    let dst = k.scratch(width_of(of));
    k.emit_unguarded(Op::Selp {
        ty: of,
        dst,
        a: if_true,
        b: if_false,
        pred,
    });
    Operand::Reg(dst)
}

/// The parts of a value, the lowest first.
pub(crate) fn unpack(k: &mut KernelLowering<'_, '_>, ty: Type, part: Width, src: Operand) -> [Operand; 2] {
    let parts = [k.scratch(part), k.scratch(part)];
    let dsts = parts.map(Some).to_vec();
    k.emit_unguarded(Op::Unpack { ty, dsts, src });
    parts.map(Operand::Reg)
}

/// A value of its parts, the lowest first.
pub(crate) fn pack(k: &mut KernelLowering<'_, '_>, ty: Type, srcs: [Operand; 2]) -> Operand {
    let dst = k.scratch(width_of(ty));
    k.emit_unguarded(Op::Pack {
        ty,
        dst,
        srcs: srcs.to_vec(),
    });
    Operand::Reg(dst)
}

/// The lane's number.
pub(crate) fn lane_id(k: &mut KernelLowering<'_, '_>) -> Operand {
    let dst = k.scratch(Width::W32);
    k.emit_unguarded(Op::ReadSpecial {
        dst,
        special: SpecialReg::LaneId,
    });
    Operand::Reg(dst)
}

/// The word that the lane `from` has, of all lanes' words.
pub(crate) fn shuffle(k: &mut KernelLowering<'_, '_>, value: Operand, from: Operand) -> Operand {
    let dst = k.scratch(Width::W32);
    k.emit(Op::Warp {
        op: WarpOp::ShflIdx,
        dst: Some(dst),
        dst_pred: None,
        srcs: vec![value, from, Operand::Imm(31)],
        mask: Operand::Imm(u32::MAX.into()),
        probe: None,
    });
    Operand::Reg(dst)
}

/// The same of 64 bits.
pub(crate) fn shuffle_long(k: &mut KernelLowering<'_, '_>, value: Operand, from: Operand) -> Operand {
    let parts = unpack(k, Type::B64, Width::W32, value);
    let parts = parts.map(|part| shuffle(k, part, from));
    pack(k, Type::B64, parts)
}
