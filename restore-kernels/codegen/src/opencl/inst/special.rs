//! Special registers (PTX ISA, "Special Registers").
//!
//! Clocks are the host's ([`hetckpt_abi::opencl_program::Argument::HostClock`]), at 2 GHz, which is about what the
//! device that programs see says of itself.

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Axis, SpecialReg};

use super::super::writer::Writer;

impl Writer<'_> {
    /// Writes the reading of a special register.
    pub(super) fn read_special(&mut self, dst: RegId, special: SpecialReg) {
        let value = match special {
            SpecialReg::Tid(a) if self.is_renewing => format!("(uint)(get_local_id({}) + zero)", axis(a)),
            SpecialReg::Tid(a) => format!("(uint)get_local_id({})", axis(a)),
            SpecialReg::Ntid(a) => format!("(uint)get_local_size({})", axis(a)),
            SpecialReg::Ctaid(a) => format!("ctaid_{}", axis_name(a)),
            SpecialReg::Nctaid(a) => format!("grid.{}", axis_name(a)),
            SpecialReg::LaneId => "lane".to_owned(),
            SpecialReg::WarpId => "thread >> 5".to_owned(),
            SpecialReg::NWarpId => "(block_size + 31) >> 5".to_owned(),
            SpecialReg::LaneMaskEq => "1u << lane".to_owned(),
            SpecialReg::LaneMaskLe => "0xffffffffu >> (31 - lane)".to_owned(),
            SpecialReg::LaneMaskLt => "(1u << lane) - 1".to_owned(),
            SpecialReg::LaneMaskGe => "0xffffffffu << lane".to_owned(),
            SpecialReg::LaneMaskGt => "0xfffffffeu << lane".to_owned(),
            SpecialReg::DynamicSmemSize => "dynamic_shared_bytes".to_owned(),
            SpecialReg::TotalSmemSize => format!("dynamic_shared_bytes + {}u", self.kernel.shared.static_bytes),
            // A device as the program sees it may be one multiprocessor.
            SpecialReg::SmId | SpecialReg::GridId => "0".to_owned(),
            SpecialReg::NSmId => "1".to_owned(),
            SpecialReg::Clock => "(uint)(*host_clock * 2)".to_owned(),
            SpecialReg::Clock64 => "*host_clock * 2".to_owned(),
            SpecialReg::GlobalTimer => "*host_clock".to_owned(),
        };
        self.assign(dst, value);
    }
}

const fn axis_name(axis: Axis) -> char {
    match axis {
        Axis::X => 'x',
        Axis::Y => 'y',
        Axis::Z => 'z',
    }
}

const fn axis(axis: Axis) -> u32 {
    match axis {
        Axis::X => 0,
        Axis::Y => 1,
        Axis::Z => 2,
    }
}
