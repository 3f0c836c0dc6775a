//! Moves, address conversions and branches (PTX ISA, "mov", "cvta", "Control Flow Instructions").

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::inst::{AluOp, Comparison, Guard, Modifiers, Op, Operand, SpecialReg};
use hetckpt_ir::types::{Space, Type, Width};

use crate::ast::{self, Instruction};
use crate::error::Reason;
use crate::lower::address_spaces::{End, Question};
use crate::lower::arithmetic::scratch;
use crate::lower::control_flow::DraftId;
use crate::lower::halves;
use crate::lower::lowering::KernelLowering;
use crate::lower::modifiers::ModifierList;
use crate::lower::operand::operands;
use crate::lower::scope::width_of;
use crate::lower::special_register::{Special, special_named};

/// PTX ISA, "mov" in all its forms.
pub(super) fn mov<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let ty = list.ty()?;
    list.finish()?;
    if matches!(ty, Type::B8 | Type::U8 | Type::S8) {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    match operands(inst, "2")? {
        [dst, ast::Operand::Vector(parts)] => pack(k, ty, dst, parts),
        [ast::Operand::Vector(parts), src] => unpack(k, ty, parts, src),
        [dst, src] => {
            let dst = k.result(dst, width_of(ty))?;
            let op = match src {
                ast::Operand::Name(name, component) if k.register_named(name).is_none() && *name != "WARP_SZ" => {
                    match special_named(name, *component)? {
                        Some(special) if special.width() == width_of(ty) => k.read_special(special, dst),
                        Some(special @ Special::Register(SpecialReg::GridId)) if width_of(ty) == Width::W64 => {
                            let narrow = k.scratch(Width::W32);
                            let read = k.read_special(special, narrow);
                            k.emit_unguarded(read);
                            Op::Cvt {
                                dst_ty: Type::U64,
                                src_ty: Type::U32,
                                mods: Modifiers::default(),
                                dst,
                                src: Operand::Reg(narrow),
                            }
                        }
                        Some(_) => return Err(Reason::Type(ty.name().to_owned())),
                        None => {
                            let place = k.place(name)?;
                            k.address_op(place, name, 0, dst, width_of(ty))?
                        }
                    }
                }
                ast::Operand::Offset(name, offset) => {
                    let place = k.place(name)?;
                    k.address_op(place, name, *offset, dst, width_of(ty))?
                }
                _ => Op::Mov {
                    ty,
                    dst,
                    src: k.value(src, ty)?,
                },
            };
            k.emit(op);
            Ok(())
        }
    }
}

/// Type of each of `count` parts of `ty`.
fn part_type(ty: Type, count: usize) -> Result<Type, Reason> {
    match (ty.size_bytes(), count) {
        (8, 2) => Ok(Type::B32),
        (8, 4) | (4, 2) => Ok(Type::B16),
        (4, 4) | (2, 2) => Ok(Type::B8),
        _ => Err(Reason::Type(ty.name().to_owned())),
    }
}

fn pack<'a>(
    k: &mut KernelLowering<'_, 'a>,
    ty: Type,
    dst: &ast::Operand<'a>,
    parts: &[ast::Operand<'a>],
) -> Result<(), Reason> {
    let part = part_type(ty, parts.len())?;
    let srcs = parts.iter().map(|p| k.value(p, part)).collect::<Result<_, _>>()?;
    let dst = k.result(dst, width_of(ty))?;
    if part == Type::B8 {
        let src = pack_bytes(k, ty, srcs);
        k.emit(Op::Mov { ty, dst, src });
        return Ok(());
    }
    k.emit(Op::Pack { ty, dst, srcs });
    Ok(())
}

fn unpack<'a>(
    k: &mut KernelLowering<'_, 'a>,
    ty: Type,
    parts: &[ast::Operand<'a>],
    src: &ast::Operand<'a>,
) -> Result<(), Reason> {
    let part = part_type(ty, parts.len())?;
    let width = width_of(part);
    let src = k.value(src, ty)?;
    if part == Type::B8 {
        return unpack_bytes(k, ty, parts, src);
    }
    let dsts = results(k, parts, |k, part| k.result(part, width))?;
    k.emit(Op::Unpack { ty, dsts, src });
    Ok(())
}

/// Two or four bytes, which lie in registers of 16 bits, as one value.
fn pack_bytes(k: &mut KernelLowering<'_, '_>, ty: Type, bytes: Vec<Operand>) -> Operand {
    let pair = |k: &mut KernelLowering<'_, '_>, low, high| {
        let low = scratch(k, AluOp::And, Type::B16, Width::W16, vec![low, Operand::Imm(0xFF)]);
        let high = scratch(k, AluOp::Shl, Type::B16, Width::W16, vec![high, Operand::Imm(8)]);
        scratch(k, AluOp::Or, Type::B16, Width::W16, vec![low, high])
    };
    let mut halves: Vec<_> = bytes.chunks_exact(2).map(|bytes| pair(k, bytes[0], bytes[1])).collect();
    match halves.pop() {
        Some(half) if halves.is_empty() => half,
        upper => {
            halves.extend(upper);
            let dst = k.scratch(width_of(ty));
            k.emit_unguarded(Op::Pack { ty, dst, srcs: halves });
            Operand::Reg(dst)
        }
    }
}

/// The bytes of a value, each in a register of 16 bits.
fn unpack_bytes<'a>(
    k: &mut KernelLowering<'_, 'a>,
    ty: Type,
    parts: &[ast::Operand<'a>],
    src: Operand,
) -> Result<(), Reason> {
    let dsts = results(k, parts, |k, part| k.result(part, Width::W16))?;
    let halves = match ty.size_bytes() {
        4 => halves::halves(k, src).map(Operand::Reg).to_vec(),
        _ => vec![src],
    };
    let shifts = halves.into_iter().flat_map(|half| [(half, 0), (half, 8)]);
    let bytes: Vec<_> = shifts
        .map(|(half, by)| {
            let shifted = scratch(k, AluOp::Shr, Type::U16, Width::W16, vec![half, Operand::Imm(by)]);
            scratch(k, AluOp::And, Type::B16, Width::W16, vec![shifted, Operand::Imm(0xFF)])
        })
        .collect();
    for (dst, src) in dsts.into_iter().zip(bytes) {
        if let Some(dst) = dst {
            let ty = Type::B16;
            k.emit(Op::Mov { ty, dst, src });
        }
    }
    Ok(())
}

/// A vector of results; `_` is none.
pub(super) fn results<'m, 'a>(
    k: &mut KernelLowering<'m, 'a>,
    parts: &[ast::Operand<'a>],
    mut result: impl FnMut(&mut KernelLowering<'m, 'a>, &ast::Operand<'a>) -> Result<hetckpt_ir::entity::RegId, Reason>,
) -> Result<Vec<Option<hetckpt_ir::entity::RegId>>, Reason> {
    parts
        .iter()
        .map(|part| match part {
            ast::Operand::Name("_", None) => Ok(None),
            _ => result(k, part).map(Some),
        })
        .collect()
}

/// PTX ISA, "isspacep". Variables in constant memory are in global memory here, so of that nothing can be said.
pub(super) fn isspacep<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let (space, is_constant) = list.space();
    list.finish()?;
    if is_constant || !matches!(space, Space::Global | Space::Shared | Space::Local) {
        return Err(Reason::Lacks("`.global`, `.shared` or `.local`"));
    }
    let [dst, src] = operands(inst, "2")?;
    let line = k.span().line;
    let address = k.value(src, Type::U64)?;
    let dst = k.result(dst, Width::Pred)?;
    let (answer, source) = (k.scratch(Width::Pred), k.scratch(Width::W64));
    k.emit_unguarded(Op::Mov {
        ty: Type::B64,
        dst: source,
        src: address,
    });
    k.emit_unguarded(Op::Setp {
        cmp: Comparison::Eq,
        ty: Type::U32,
        ftz: false,
        dst: answer,
        dst_not: None,
        a: Operand::Imm(0),
        b: Operand::Imm(0),
        combine: None,
    });
    k.emit(Op::Mov {
        ty: Type::Pred,
        dst,
        src: Operand::Reg(answer),
    });
    k.generic_questions.push(Question {
        answer,
        source,
        space,
        line,
    });
    Ok(())
}

/// PTX ISA, "cvta". Global addresses are generic addresses. What the other spaces' generic addresses may be used for,
/// [`super::address_spaces`] says.
pub(super) fn cvta<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    let to = list.take("to");
    let (space, _) = list.space();
    let ty = list.ty()?;
    list.finish()?;
    let [dst, src] = operands(inst, "2")?;
    if ty != Type::U64 {
        return Err(Reason::Type(ty.name().to_owned()));
    }
    let src = k.value(src, ty)?;
    let dst = k.result(dst, Width::W64)?;
    let src = match space {
        Space::Global => src,
        Space::Shared | Space::Local | Space::Param => {
            // The conversion is a register of its own, so that the analysis sees where generic addresses start and end.
            let converted = k.scratch(Width::W64);
            k.emit_unguarded(Op::Mov {
                ty: Type::B64,
                dst: converted,
                src,
            });
            if !to {
                k.generic_origins.push((converted, space));
            } else if let Operand::Reg(source) = src {
                k.generic_ends.push(End {
                    result: converted,
                    source,
                    space,
                    may_be_null: k.is_in_vprintf(),
                    line: k.span().line,
                });
            }
            Operand::Reg(converted)
        }
        Space::Generic => return Err(Reason::Lacks("a state space")),
    };
    k.emit(Op::Mov {
        ty: Type::B64,
        dst,
        src,
    });
    Ok(())
}

/// PTX ISA, "bra".
pub(super) fn bra<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let [ast::Operand::Name(label, None)] = operands(inst, "1")? else {
        return Err(Reason::Operand {
            expected: "a label",
            found: inst.operands[0].describe(),
        });
    };
    let target = label_named(k, label)?;
    match k.guard {
        None => k.terminate(Terminator::Jump(target)),
        Some(guard) => {
            let not_taken = k.drafts.reserve();
            k.terminate(Terminator::Branch {
                guard,
                taken: target,
                not_taken,
            });
            k.drafts.start(not_taken);
        }
    }
    Ok(())
}

fn label_named(k: &KernelLowering<'_, '_>, name: &str) -> Result<DraftId, Reason> {
    let found = k.scopes.iter().rev().find_map(|s| s.label(name));
    found.ok_or_else(|| Reason::Undeclared(name.to_owned()))
}

/// PTX ISA, "brx.idx": a comparison for each label. A number beyond them, which PTX leaves undefined, ends the kernel.
pub(super) fn brx<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let mut list = ModifierList::new(inst);
    if !list.take("idx") {
        return Err(Reason::Lacks("`.idx`"));
    }
    list.take("uni");
    list.finish()?;
    let [index, ast::Operand::Name(targets, None)] = operands(inst, "2")? else {
        return Err(Reason::Lacks("a list of labels"));
    };
    let found = k.scopes.iter().rev().find_map(|s| s.targets(targets));
    let labels = found.ok_or_else(|| Reason::Undeclared((*targets).to_owned()))?;
    let blocks = labels.iter().map(|label| label_named(k, label));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let not_taken = k.branch_on_guard();
    let index = k.value(index, Type::U32)?;
    for (number, taken) in (0..).zip(blocks) {
        let pred = halves::compare(k, (Comparison::Eq, Type::U32), index, Operand::Imm(number), None);
        let guard = Guard { pred, negated: false };
        let other = k.drafts.reserve();
        k.terminate(Terminator::Branch {
            guard,
            taken,
            not_taken: other,
        });
        k.drafts.start(other);
    }
    k.terminate(Terminator::Trap);
    k.leave_guard(not_taken);
    Ok(())
}

/// PTX ISA, "ret", "exit", "trap".
pub(super) fn end<'a>(k: &mut KernelLowering<'_, 'a>, inst: &Instruction<'a>) -> Result<(), Reason> {
    let not_taken = k.branch_on_guard();
    let terminator = match inst.opcode {
        "exit" => Terminator::Exit,
        "trap" => Terminator::Trap,
        _ => k.return_terminator(),
    };
    k.terminate(terminator);
    k.leave_guard(not_taken);
    Ok(())
}
