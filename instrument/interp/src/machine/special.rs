//! Special registers.

use hetckpt_ir::inst::{Axis, SpecialReg};
use hetckpt_ir::types::Dim3;

use super::block::WARP;
use super::world::World;

pub(super) fn read(world: &World<'_>, block: u64, thread: usize, special: SpecialReg) -> u64 {
    let lane = thread % WARP;
    let lanes_below = (1u64 << lane) - 1;
    let all_lanes = u64::from(u32::MAX);
    match special {
        SpecialReg::Tid(axis) => coordinate(thread as u64, world.block, axis),
        SpecialReg::Ntid(axis) => extent(world.block, axis),
        SpecialReg::Ctaid(axis) => coordinate(block, world.grid, axis),
        SpecialReg::Nctaid(axis) => extent(world.grid, axis),
        SpecialReg::LaneId => lane as u64,
        SpecialReg::WarpId => (thread / WARP) as u64,
        SpecialReg::NWarpId => world.threads_per_block().div_ceil(WARP) as u64,
        SpecialReg::LaneMaskEq => lanes_below + 1,
        SpecialReg::LaneMaskLe => lanes_below << 1 | 1,
        SpecialReg::LaneMaskLt => lanes_below,
        SpecialReg::LaneMaskGe => all_lanes & !lanes_below,
        SpecialReg::LaneMaskGt => all_lanes & !(lanes_below << 1 | 1),
        SpecialReg::Clock | SpecialReg::Clock64 | SpecialReg::GlobalTimer => world.steps,
        SpecialReg::DynamicSmemSize => world.dynamic_shared_bytes.into(),
        SpecialReg::TotalSmemSize => world.shared_bytes() as u64,
        SpecialReg::NSmId => 1,
        SpecialReg::SmId | SpecialReg::GridId => 0,
    }
}

fn extent(dim: Dim3, axis: Axis) -> u64 {
    match axis {
        Axis::X => dim.x.into(),
        Axis::Y => dim.y.into(),
        Axis::Z => dim.z.into(),
    }
}

fn coordinate(linear: u64, dim: Dim3, axis: Axis) -> u64 {
    let (x, y) = (u64::from(dim.x), u64::from(dim.y));
    match axis {
        Axis::X => linear % x,
        Axis::Y => linear / x % y,
        Axis::Z => linear / (x * y),
    }
}
