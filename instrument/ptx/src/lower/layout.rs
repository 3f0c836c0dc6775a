//! Sizes, alignments and places of variables (PTX ISA, "Variables", "Alignment").

use crate::ast::Variable;
use crate::error::Reason;
use crate::lower::modifiers::type_named;

/// Largest segment (shared memory, local frame, parameters) that is laid out.
const MAX_SEGMENT_BYTES: u32 = 1 << 30;

/// Size of one element of `variable`, vectors included.
pub(crate) fn element_bytes(variable: &Variable<'_>) -> Result<u64, Reason> {
    let size_bytes = match type_named(variable.ty) {
        Some(ty) => ty.size_bytes(),
        // No instruction that hetIR has knows this type, but memory of it is read and written in parts too.
        None if variable.ty == "b128" => 16,
        None => return Err(Reason::Type(variable.ty.to_owned())),
    };
    Ok(u64::from(size_bytes) * variable.vector)
}

/// Size and alignment of `variable`; an unsized array has size 0.
pub(crate) fn size_and_align(variable: &Variable<'_>) -> Result<(u64, u32), Reason> {
    let element = element_bytes(variable)?;
    let mut size = element;
    for dim in &variable.dims {
        size = size
            .checked_mul(dim.unwrap_or(0))
            .filter(|s| *s <= 1 << 48)
            .ok_or(Reason::Limit {
                what: "a variable",
                found: u64::MAX,
                limit: 1 << 48,
            })?;
    }
    let align = variable.align.unwrap_or(element);
    match u32::try_from(align) {
        Ok(align) if align.is_power_of_two() && align <= 1 << 20 => Ok((size, align)),
        _ => Err(Reason::Limit {
            what: "an alignment",
            found: align,
            limit: 1 << 20,
        }),
    }
}

/// Where a variable lies in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Offset in bytes.
    pub(crate) offset: u32,
    /// Size in bytes.
    pub(crate) size_bytes: u32,
}

/// A segment that grows by variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    size_bytes: u32,
}

impl Segment {
    /// Bytes used so far.
    pub(crate) const fn size_bytes(self) -> u32 {
        self.size_bytes
    }

    /// Places a variable.
    pub(crate) fn place(&mut self, size: u64, align: u32) -> Result<Placed, Reason> {
        let limit = u64::from(MAX_SEGMENT_BYTES);
        let offset = u64::from(self.size_bytes).next_multiple_of(u64::from(align));
        let end = offset.saturating_add(size);
        match (u32::try_from(offset), u32::try_from(end)) {
            (Ok(offset), Ok(end)) if end <= MAX_SEGMENT_BYTES => {
                self.size_bytes = end;
                let size_bytes = end - offset;
                Ok(Placed { offset, size_bytes })
            }
            _ => Err(Reason::Limit {
                what: "a state space",
                found: end,
                limit,
            }),
        }
    }

    /// Rounds the segment up.
    pub(crate) fn round_up(&mut self, align: u32) {
        self.size_bytes = self.size_bytes.next_multiple_of(align);
    }
}
