//! Special registers by name (PTX ISA, "Special Registers").

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AluOp, Axis, Modifiers, Op, Operand, Ordering, SpecialReg};
use hetckpt_ir::types::{Space, Type, Width};

use crate::error::Reason;
use crate::lower::lowering::KernelLowering;

/// A special register and how it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Special {
    /// By an instruction.
    Register(SpecialReg),
    /// The lower half of one of 64 bits.
    LowHalf(SpecialReg),
    /// The upper half of one of 64 bits.
    HighHalf(SpecialReg),
    /// From the parameter for a grid's workspace ([`hetckpt_ir::grid_workspace`]), at this offset.
    GridWorkspace(u32),
}

impl Special {
    pub(crate) const fn width(self) -> Width {
        match self {
            Self::Register(SpecialReg::Clock64 | SpecialReg::GlobalTimer) => Width::W64,
            Self::Register(_) | Self::LowHalf(_) | Self::HighHalf(_) | Self::GridWorkspace(_) => Width::W32,
        }
    }
}

impl KernelLowering<'_, '_> {
    /// The value of a special register of 32 bits.
    pub(crate) fn special(&mut self, special: SpecialReg) -> Operand {
        let dst = self.scratch(Width::W32);
        self.emit_unguarded(Op::ReadSpecial { dst, special });
        Operand::Reg(dst)
    }

    /// The thread's number in its block.
    pub(crate) fn thread_number(&mut self) -> Operand {
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| self.special(SpecialReg::Tid(axis)));
        let [width, height] = [Axis::X, Axis::Y].map(|axis| self.special(SpecialReg::Ntid(axis)));
        let mut add_rows = |rows, row_length, rest| {
            let dst = self.scratch(Width::W32);
            self.emit_unguarded(Op::Alu {
                op: AluOp::Mad,
                ty: Type::U32,
                mods: Modifiers::default(),
                dst,
                srcs: vec![rows, row_length, rest],
            });
            Operand::Reg(dst)
        };
        let row = add_rows(z, height, y);
        add_rows(row, width, x)
    }

    /// The instruction that reads a special register.
    pub(crate) fn read_special(&mut self, special: Special, dst: RegId) -> Op {
        match special {
            Special::Register(special) => Op::ReadSpecial { dst, special },
            Special::LowHalf(half) | Special::HighHalf(half) => {
                let whole = self.scratch(Width::W64);
                self.emit_unguarded(Op::ReadSpecial {
                    dst: whole,
                    special: half,
                });
                let (low, high) = match special {
                    Special::LowHalf(_) => (Some(dst), None),
                    _ => (None, Some(dst)),
                };
                Op::Unpack {
                    ty: Type::B64,
                    dsts: vec![low, high],
                    src: Operand::Reg(whole),
                }
            }
            Special::GridWorkspace(offset) => Op::Load {
                space: Space::Param,
                ty: Type::B32,
                ordering: Ordering::Weak,
                dsts: vec![Some(dst)],
                addr: Address {
                    base: AddressBase::Absolute,
                    offset: i64::from(self.grid_workspace() + offset),
                },
            },
        }
    }
}

/// The special register `name`, perhaps with `.x`; `None` if the name is none.
pub(crate) fn special_named(name: &str, component: Option<&str>) -> Result<Option<Special>, Reason> {
    let unsupported = || {
        let dot = if component.is_some() { "." } else { "" };
        Reason::SpecialRegister(format!("{name}{dot}{}", component.unwrap_or_default()))
    };
    if let Some(component) = component {
        let axis = match component {
            "x" => Axis::X,
            "y" => Axis::Y,
            "z" => Axis::Z,
            _ => return Err(unsupported()),
        };
        let register = match name {
            "%tid" => SpecialReg::Tid(axis),
            "%ntid" => SpecialReg::Ntid(axis),
            "%ctaid" => SpecialReg::Ctaid(axis),
            "%nctaid" => SpecialReg::Nctaid(axis),
            _ => return Err(unsupported()),
        };
        return Ok(Some(Special::Register(register)));
    }
    let register = match name {
        "%laneid" => SpecialReg::LaneId,
        "%warpid" => SpecialReg::WarpId,
        "%nwarpid" => SpecialReg::NWarpId,
        "%lanemask_eq" => SpecialReg::LaneMaskEq,
        "%lanemask_le" => SpecialReg::LaneMaskLe,
        "%lanemask_lt" => SpecialReg::LaneMaskLt,
        "%lanemask_ge" => SpecialReg::LaneMaskGe,
        "%lanemask_gt" => SpecialReg::LaneMaskGt,
        "%clock" => SpecialReg::Clock,
        "%clock64" => SpecialReg::Clock64,
        "%clock_hi" => return Ok(Some(Special::HighHalf(SpecialReg::Clock64))),
        "%globaltimer_lo" => return Ok(Some(Special::LowHalf(SpecialReg::GlobalTimer))),
        "%globaltimer_hi" => return Ok(Some(Special::HighHalf(SpecialReg::GlobalTimer))),
        "%globaltimer" => SpecialReg::GlobalTimer,
        "%dynamic_smem_size" => SpecialReg::DynamicSmemSize,
        "%total_smem_size" => SpecialReg::TotalSmemSize,
        "%smid" => SpecialReg::SmId,
        "%nsmid" => SpecialReg::NSmId,
        "%gridid" => SpecialReg::GridId,
        "%envreg1" => return Ok(Some(Special::GridWorkspace(4))),
        "%envreg2" => return Ok(Some(Special::GridWorkspace(0))),
        _ if name.starts_with('%') => return Err(unsupported()),
        _ => return Ok(None),
    };
    Ok(Some(Special::Register(register)))
}
