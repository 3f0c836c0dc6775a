//! Loads, stores and atomic operations.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AluOp, AtomOp, Axis, Op, Operand, Ordering, Scope, SpecialReg};
use hetckpt_ir::types::{Space, Type, Width};

use crate::bench::{Bench, IntoOperand, NUM_THREADS, bits_of, width_of};
use crate::implementation::Implementation;
use crate::operands::{integers, operands};

/// A slot of its own for each thread, in the given space: base register and offset.
fn slot(bench: &mut Bench, space: Space, ty: Type) -> Address {
    match space {
        Space::Global => {
            let index = u64::try_from(bench.results.len()).unwrap();
            let offset = (index * u64::from(NUM_THREADS) * 8).cast_signed();
            bench.results.push((format!("memory.{}", ty.name()), ty));
            Address {
                base: AddressBase::Reg(bench.output),
                offset,
            }
        }
        Space::Shared => {
            let tid = bench.kernel.add_register(Width::W32);
            bench.push(Op::ReadSpecial {
                dst: tid,
                special: SpecialReg::Tid(Axis::X),
            });
            let at = bench.alu_into(AluOp::Shl, Type::B32, Width::W32, &[Operand::Reg(tid), Operand::Imm(4)]);
            Address {
                base: AddressBase::Reg(at),
                offset: 16,
            }
        }
        _ => Address {
            base: AddressBase::Absolute,
            offset: 16,
        },
    }
}

pub fn atomics(tested: &dyn Implementation) {
    let mut bench = Bench::new(tested);
    bench.kernel.shared.static_bytes = 16 * (NUM_THREADS + 1);
    let mut forms = Vec::new();
    for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
        forms.extend([AtomOp::Min, AtomOp::Max].map(|op| (op, ty)));
    }
    for ty in [Type::B32, Type::B64] {
        forms.extend([AtomOp::And, AtomOp::Or, AtomOp::Xor, AtomOp::Exch].map(|op| (op, ty)));
    }
    forms.extend([
        (AtomOp::Add, Type::U32),
        (AtomOp::Add, Type::S32),
        (AtomOp::Add, Type::U64),
        (AtomOp::Inc, Type::U32),
        (AtomOp::Dec, Type::U32),
        (AtomOp::Cas, Type::B32),
        (AtomOp::Cas, Type::B64),
    ]);
    forms.extend([(AtomOp::Add, Type::F32), (AtomOp::Add, Type::F64)]);
    for space in [Space::Global, Space::Shared] {
        for &(op, ty) in &forms {
            let addr = slot(&mut bench, space, ty);
            let (ordering, bits) = (Ordering::Weak, bits_of(ty));
            let srcs = vec![bench.operand(0, bits).into_operand()];
            bench.push(Op::Store {
                space,
                ty: bits,
                ordering,
                addr: addr.clone(),
                srcs,
            });
            let count = if op == AtomOp::Cas { 2 } else { 1 };
            let srcs = (1..=count).map(|i| bench.operand(i, bits).into_operand()).collect();
            let old = bench.kernel.add_register(width_of(ty));
            let (ordering, scope) = (Ordering::Relaxed, Scope::Gpu);
            bench.push(Op::Atom {
                op,
                space,
                ty,
                ordering,
                scope,
                dst: Some(old),
                addr: addr.clone(),
                srcs,
            });
            bench.result(format!("old of atom.{op:?}.{}", ty.name()), old, ty);
            let new = bench.kernel.add_register(width_of(ty));
            let ordering = Ordering::Volatile;
            bench.push(Op::Load {
                space,
                ty: bits,
                ordering,
                dsts: vec![Some(new)],
                addr,
            });
            bench.result(format!("new of atom.{op:?}.{}", ty.name()), new, ty);
        }
    }
    bench.check(&operands(&integers()));
}

/// The only one of 16 bits; what lies beside it is left alone.
pub fn compare_and_swap_of_half_words(tested: &dyn Implementation) {
    let mut bench = Bench::new(tested);
    bench.kernel.shared.static_bytes = 16 * (NUM_THREADS + 1);
    for space in [Space::Global, Space::Shared] {
        for (offset, expected) in [(0, 0), (2, 1), (4, 1), (6, 0)] {
            let whole = slot(&mut bench, space, Type::B64);
            let srcs = vec![bench.operand(0, Type::B64).into_operand()];
            bench.push(Op::Store {
                space,
                ty: Type::B64,
                ordering: Ordering::Weak,
                addr: whole.clone(),
                srcs,
            });
            let addr = Address {
                offset: whole.offset + offset,
                ..whole.clone()
            };
            let compared = if expected == 0 {
                // What is there, so that it is always replaced.
                let found = bench.kernel.add_register(Width::W16);
                bench.push(Op::Load {
                    space,
                    ty: Type::B16,
                    ordering: Ordering::Volatile,
                    dsts: vec![Some(found)],
                    addr: addr.clone(),
                });
                Operand::Reg(found)
            } else {
                bench.operand(1, Type::B16).into_operand()
            };
            let srcs = vec![compared, bench.operand(2, Type::B16).into_operand()];
            let old = bench.kernel.add_register(Width::W16);
            bench.push(Op::Atom {
                op: AtomOp::Cas,
                space,
                ty: Type::B16,
                ordering: Ordering::Relaxed,
                scope: Scope::Gpu,
                dst: Some(old),
                addr,
                srcs,
            });
            bench.result(format!("old of atom.cas.b16 at {offset}"), old, Type::B16);
            let new = bench.kernel.add_register(Width::W64);
            bench.push(Op::Load {
                space,
                ty: Type::B64,
                ordering: Ordering::Volatile,
                dsts: vec![Some(new)],
                addr: whole,
            });
            bench.result(format!("memory of atom.cas.b16 at {offset}"), new, Type::B64);
        }
    }
    bench.check(&operands(&integers()));
}

pub fn loads_and_stores(tested: &dyn Implementation) {
    let mut bench = Bench::new(tested);
    bench.kernel.shared.static_bytes = 16 * (NUM_THREADS + 1);
    bench.kernel.local.size_bytes = 48;
    for space in [Space::Shared, Space::Local] {
        for ordering in [Ordering::Weak, Ordering::Volatile] {
            for (ty, count) in [
                (Type::B8, 4),
                (Type::B16, 4),
                (Type::F32, 4),
                (Type::B32, 2),
                (Type::F64, 2),
                (Type::U64, 1),
            ] {
                let addr = slot(&mut bench, space, ty);
                let srcs = (0..count).map(|i| bench.operand(i, ty).into_operand()).collect();
                bench.push(Op::Store {
                    space,
                    ty,
                    ordering,
                    addr: addr.clone(),
                    srcs,
                });
                let dsts: Vec<RegId> = (0..count).map(|_| bench.kernel.add_register(width_of(ty))).collect();
                let addr_back = addr.clone();
                bench.push(Op::Load {
                    space,
                    ty,
                    ordering,
                    dsts: dsts.iter().map(|d| Some(*d)).collect(),
                    addr: addr_back,
                });
                for dst in dsts {
                    bench.result(format!("{space:?} {ordering:?} {}", ty.name()), dst, ty);
                }
                // One byte of it, sign- and zero-extended.
                for (ty, width) in [(Type::S8, Width::W32), (Type::U8, Width::W64), (Type::S8, Width::W16)] {
                    let dst = bench.kernel.add_register(width);
                    let addr = Address {
                        offset: addr.offset + 1,
                        ..addr.clone()
                    };
                    bench.push(Op::Load {
                        space,
                        ty,
                        ordering,
                        dsts: vec![Some(dst)],
                        addr,
                    });
                    bench.result(format!("{space:?} {ordering:?} {}", ty.name()), dst, Type::B64);
                }
            }
        }
    }
    bench.check(&operands(&integers()));
}
