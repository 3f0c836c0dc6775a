//! Conversions, packing, special registers.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Axis, Modifiers, Op, Rounding, SpecialReg};
use hetckpt_ir::types::{Type, Width};

use crate::bench::{Bench, IntoOperand, width_of};
use crate::implementation::Implementation;
use crate::operands::{floats, integers, operands};

pub fn conversions(tested: &dyn Implementation) {
    let integer_types = [
        Type::U8,
        Type::S8,
        Type::U16,
        Type::S16,
        Type::U32,
        Type::S32,
        Type::U64,
        Type::S64,
    ];
    let float_types = [Type::F16, Type::F32, Type::F64];
    let none = Modifiers::default();
    let convert = |to: Type, from: Type, mods: Modifiers, bench: &mut Bench| {
        let src = bench.operand(0, from).into_operand();
        let dst = bench.kernel.add_register(width_of(to));
        bench.push(Op::Cvt {
            dst_ty: to,
            src_ty: from,
            mods,
            dst,
            src,
        });
        bench.result(format!("cvt.{}.{} {mods:?}", to.name(), from.name()), dst, to);
    };
    for from in integer_types {
        let mut bench = Bench::new(tested);
        for to in integer_types {
            convert(to, from, none, &mut bench);
            // PTX has no saturation where there is nothing to saturate.
            let is_within = match (from.is_signed(), to.is_signed()) {
                (true, false) => false,
                (false, true) => to.size_bytes() > from.size_bytes(),
                _ => to.size_bytes() >= from.size_bytes(),
            };
            if !is_within {
                convert(to, from, Modifiers { sat: true, ..none }, &mut bench);
            }
        }
        for to in float_types {
            for rounding in [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp] {
                convert(
                    to,
                    from,
                    Modifiers {
                        rounding: Some(rounding),
                        ..none
                    },
                    &mut bench,
                );
            }
        }
        bench.check(&operands(&integers()));
    }
    for from in float_types {
        let mut bench = Bench::new(tested);
        for to in integer_types {
            for rounding in [Rounding::Rni, Rounding::Rzi, Rounding::Rmi, Rounding::Rpi] {
                convert(
                    to,
                    from,
                    Modifiers {
                        rounding: Some(rounding),
                        ..none
                    },
                    &mut bench,
                );
            }
        }
        for to in float_types {
            let roundings: &[Rounding] = match from.size_bytes().cmp(&to.size_bytes()) {
                std::cmp::Ordering::Equal => &[Rounding::Rni, Rounding::Rzi, Rounding::Rmi, Rounding::Rpi],
                std::cmp::Ordering::Greater => &[Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp],
                std::cmp::Ordering::Less => &[],
            };
            let mods = roundings.iter().map(|r| Modifiers {
                rounding: Some(*r),
                ..none
            });
            for mods in mods.chain(roundings.is_empty().then_some(none)) {
                convert(to, from, mods, &mut bench);
                convert(to, from, Modifiers { sat: true, ..mods }, &mut bench);
            }
        }
        bench.check(&operands(&floats(from)));
    }
}

pub fn packing_and_special_registers(tested: &dyn Implementation) {
    let mut bench = Bench::new(tested);
    for (ty, part) in [(Type::B32, Type::B16), (Type::B64, Type::B32), (Type::B64, Type::B16)] {
        let count = u64::from(ty.size_bytes() / part.size_bytes());
        let srcs = (0..count).map(|i| bench.operand(i, part).into_operand()).collect();
        let dst = bench.kernel.add_register(width_of(ty));
        bench.push(Op::Pack { ty, dst, srcs });
        bench.result(format!("pack.{}", ty.name()), dst, ty);
        let src = bench.operand(1, ty).into_operand();
        let dsts: Vec<RegId> = (0..count).map(|_| bench.kernel.add_register(width_of(part))).collect();
        bench.push(Op::Unpack {
            ty,
            dsts: dsts.iter().map(|d| Some(*d)).collect(),
            src,
        });
        for dst in dsts {
            bench.result(format!("unpack.{}", ty.name()), dst, part);
        }
    }
    let axes = [Axis::X, Axis::Y, Axis::Z];
    let mut specials: Vec<SpecialReg> = axes.map(SpecialReg::Tid).to_vec();
    specials.extend(axes.map(SpecialReg::Ntid));
    specials.extend(axes.map(SpecialReg::Ctaid));
    specials.extend(axes.map(SpecialReg::Nctaid));
    use SpecialReg as S;
    specials.extend([
        S::LaneId,
        S::LaneMaskEq,
        S::LaneMaskLe,
        S::LaneMaskLt,
        S::LaneMaskGe,
        S::LaneMaskGt,
    ]);
    specials.extend([S::WarpId, S::DynamicSmemSize, S::TotalSmemSize]);
    if tested.numbers_warps_by_block() {
        specials.push(S::NWarpId);
    } else {
        bench.left_open.push(format!("{:?}", S::WarpId));
    }
    for special in specials {
        let dst = bench.kernel.add_register(Width::W32);
        bench.push(Op::ReadSpecial { dst, special });
        bench.result(format!("{special:?}"), dst, Type::B32);
    }
    bench.check_in([8, 4, 16], &operands(&integers()));
}
