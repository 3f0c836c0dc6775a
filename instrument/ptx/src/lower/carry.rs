//! Carry chains (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").
//!
//! hetIR has no condition code: the carry flag becomes a predicate register of the kernel like any other, so that it is
//! saved at a resume point between two links of a chain.
//!
//! As on NVIDIA's GPUs, a subtraction is the addition of the complement and one: it sets the flag if it does *not*
//! borrow, and `subc` borrows if the flag is not set. Chains of additions or of subtractions alone cannot tell, mixed
//! ones can.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{AluOp, BoolOp, Comparison, Modifiers, Op, Operand};
use hetckpt_ir::types::{Type, Width};

use crate::ast::Instruction;
use crate::error::Reason;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;

/// True for the instructions of this file.
pub(super) fn is_carry_chain(inst: &Instruction<'_>) -> bool {
    matches!(inst.opcode, "addc" | "subc" | "madc") || inst.modifiers.contains(&"cc")
}

/// PTX ISA, "add.cc", "addc", "sub.cc", "subc", "mad.cc", "madc".
pub(super) fn carry_chain<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let sets_carry = list.take("cc");
    let product = list.take_from(&[("lo", AluOp::Mul), ("hi", AluOp::MulHi)]);
    let ty = list.ty()?;
    list.finish()?;
    let unsigned = match ty {
        Type::U32 | Type::S32 => Type::U32,
        Type::U64 | Type::S64 => Type::U64,
        _ => return Err(Reason::Type(ty.name().to_owned())),
    };
    let (dst, a, b) = if let "mad" | "madc" = inst.opcode {
        let op = product.ok_or(Reason::Lacks("`.lo` or `.hi`"))?;
        let [dst, a, b, c] = operands(inst, "4")?;
        let (a, b, c) = (k.value(a, ty)?, k.value(b, ty)?, k.value(c, ty)?);
        (dst, Operand::Reg(alu(k, op, ty, a, b)), c)
    } else {
        let [dst, a, b] = operands(inst, "3")?;
        (dst, k.value(a, ty)?, k.value(b, ty)?)
    };
    let dst = k.result(dst, width_of(ty))?;
    let link = Link {
        is_subtraction: inst.opcode.starts_with("sub"),
        uses_carry: matches!(inst.opcode, "addc" | "subc" | "madc"),
        sets_carry,
        ty: unsigned,
    };
    let sum = link.emit(k, a, b);
    let ty = if unsigned == Type::U32 { Type::B32 } else { Type::B64 };
    k.emit(Op::Mov {
        ty,
        dst,
        src: Operand::Reg(sum),
    });
    Ok(())
}

/// One link of a chain, the product of `mad` already made.
struct Link {
    is_subtraction: bool,
    uses_carry: bool,
    sets_carry: bool,
    /// Unsigned.
    ty: Type,
}

impl Link {
    /// Sum or difference of `a`, `b` and the carry, in a register of its own; `a` and `b` may be the result's register,
    /// so the carry is made before that is written.
    fn emit(&self, k: &mut KernelLowering<'_, '_>, a: Operand, b: Operand) -> RegId {
        let op = if self.is_subtraction { AluOp::Sub } else { AluOp::Add };
        let first = alu(k, op, self.ty, a, b);
        let carry = k.carry_flag();
        let carry_in = self.uses_carry.then(|| {
            let value = k.scratch(width_of(self.ty));
            let if_set = u64::from(!self.is_subtraction);
            k.emit_unguarded(Op::Selp {
                ty: self.ty,
                dst: value,
                a: Operand::Imm(if_set),
                b: Operand::Imm(1 - if_set),
                pred: carry,
            });
            Operand::Reg(value)
        });
        let sum = carry_in.map_or(first, |c| alu(k, op, self.ty, Operand::Reg(first), c));
        if !self.sets_carry {
            return sum;
        }
        // Each step carries by itself: an addition if it comes out below an addend, of which at most one of the two
        // does; a subtraction if it takes no more than there is, which both must.
        let (first_op, sum_op) = (Operand::Reg(first), Operand::Reg(sum));
        let (cmp, both, first_step) = if self.is_subtraction {
            (Comparison::Ge, BoolOp::And, (a, b))
        } else {
            (Comparison::Lt, BoolOp::Or, (first_op, a))
        };
        let second_step = carry_in.map(|c| {
            if self.is_subtraction {
                (first_op, c)
            } else {
                (sum_op, first_op)
            }
        });
        match second_step {
            None => compare(k, (cmp, self.ty), first_step, carry, None, true),
            Some(second_step) => {
                let carried = k.scratch(Width::Pred);
                compare(k, (cmp, self.ty), first_step, carried, None, false);
                let combine = Some((both, carried, false));
                compare(k, (cmp, self.ty), second_step, carry, combine, true);
            }
        }
        sum
    }
}

fn alu(k: &mut KernelLowering<'_, '_>, op: AluOp, ty: Type, a: Operand, b: Operand) -> RegId {
    let dst = k.scratch(width_of(ty));
    k.emit_unguarded(Op::Alu {
        op,
        ty,
        mods: Modifiers::default(),
        dst,
        srcs: vec![a, b],
    });
    dst
}

fn compare(
    k: &mut KernelLowering<'_, '_>,
    (cmp, ty): (Comparison, Type),
    (a, b): (Operand, Operand),
    dst: RegId,
    combine: Option<(BoolOp, RegId, bool)>,
    guarded: bool,
) {
    let op = Op::Setp {
        cmp,
        ty,
        ftz: false,
        dst,
        dst_not: None,
        a,
        b,
        combine,
    };
    if guarded { k.emit(op) } else { k.emit_unguarded(op) }
}
