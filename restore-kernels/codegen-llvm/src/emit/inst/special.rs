//! Special registers (PTX ISA, "Special Registers"). A warp is 32 consecutive threads of the block.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Axis, SpecialReg};
use hetckpt_ir::types::Type;

use crate::emit::function::FunctionText;

/// Writes an [`hetckpt_ir::inst::Op::ReadSpecial`].
pub fn write(f: &mut FunctionText<'_>, dst: RegId, special: SpecialReg) {
    let axis = |name: &str, axis: Axis| match axis {
        Axis::X => format!("%{name}.x"),
        Axis::Y => format!("%{name}.y"),
        Axis::Z => format!("%{name}.z"),
    };
    let value = match special {
        SpecialReg::Tid(a) => axis("tid", a),
        SpecialReg::Ntid(a) => axis("ntid", a),
        SpecialReg::Ctaid(a) => axis("ctaid", a),
        SpecialReg::Nctaid(a) => axis("nctaid", a),
        SpecialReg::LaneId => f.def("and i32 %t, 31"),
        SpecialReg::WarpId => f.def("lshr i32 %t, 5"),
        SpecialReg::NWarpId => {
            let up = f.def("add i32 %num.threads, 31");
            f.def(format!("lshr i32 {up}, 5"))
        }
        SpecialReg::LaneMaskEq => lane_bit(f),
        SpecialReg::LaneMaskLt => below(f),
        SpecialReg::LaneMaskLe => {
            let (bit, below) = (lane_bit(f), below(f));
            f.def(format!("or i32 {bit}, {below}"))
        }
        SpecialReg::LaneMaskGe => {
            let below = below(f);
            f.def(format!("xor i32 {below}, -1"))
        }
        SpecialReg::LaneMaskGt => {
            let (bit, below) = (lane_bit(f), below(f));
            let up_to = f.def(format!("or i32 {bit}, {below}"));
            f.def(format!("xor i32 {up_to}, -1"))
        }
        SpecialReg::Clock => {
            let cycles = f.call("i64", "llvm.readcyclecounter", &[]);
            f.def(format!("trunc i64 {cycles} to i32"))
        }
        SpecialReg::Clock64 | SpecialReg::GlobalTimer => {
            let name = if special == SpecialReg::Clock64 {
                "llvm.readcyclecounter"
            } else {
                "hetckpt_globaltimer"
            };
            let value = f.call("i64", name, &[]);
            f.write(dst, Type::U64, value);
            return;
        }
        SpecialReg::DynamicSmemSize => "%dynamic.shared".to_owned(),
        SpecialReg::TotalSmemSize => f.def(format!("add i32 %dynamic.shared, {}", f.kernel.shared.static_bytes)),
        SpecialReg::SmId => "0".to_owned(),
        SpecialReg::NSmId => "1".to_owned(),
        SpecialReg::GridId => "0".to_owned(),
    };
    f.write(dst, Type::U32, value);
}

fn lane_bit(f: &mut FunctionText<'_>) -> String {
    let lane = f.def("and i32 %t, 31");
    f.def(format!("shl nuw i32 1, {lane}"))
}

fn below(f: &mut FunctionText<'_>) -> String {
    let bit = lane_bit(f);
    f.def(format!("add i32 {bit}, -1"))
}
