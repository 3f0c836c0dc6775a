//! Special registers by name (PTX ISA, "Special Registers").

use hetckpt_ir::inst::{Axis, SpecialReg};
use hetckpt_ir::types::Width;

use crate::error::Reason;

/// A special register and how it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Special {
    pub(crate) register: SpecialReg,
}

impl Special {
    pub(crate) const fn width(self) -> Width {
        match self.register {
            SpecialReg::Clock64 | SpecialReg::GlobalTimer => Width::W64,
            _ => Width::W32,
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
        return Ok(Some(Special { register }));
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
        "%globaltimer" => SpecialReg::GlobalTimer,
        "%dynamic_smem_size" => SpecialReg::DynamicSmemSize,
        "%total_smem_size" => SpecialReg::TotalSmemSize,
        "%smid" => SpecialReg::SmId,
        "%nsmid" => SpecialReg::NSmId,
        "%gridid" => SpecialReg::GridId,
        _ if name.starts_with('%') => return Err(unsupported()),
        _ => return Ok(None),
    };
    Ok(Some(Special { register }))
}
