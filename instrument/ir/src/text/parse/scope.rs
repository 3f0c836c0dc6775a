//! The registers, basic blocks and resume points that a kernel's lines may refer to.

use super::error::ParseError;
use super::line::Line;
use crate::entity::{BbId, RegId, ResumePointId};

/// What instructions may refer to; blocks are checked when all are known.
#[derive(Default)]
pub(super) struct Scope {
    num_registers: usize,
    num_resume_points: usize,
    block_uses: Vec<(usize, BbId)>,
}

impl Scope {
    pub(super) fn register(&self, line: &mut Line<'_>) -> Result<RegId, ParseError> {
        let number = line.id("%r", "a register")?;
        if number as usize >= self.num_registers {
            return Err(ParseError::UnknownRegister {
                line: line.number(),
                register: number,
            });
        }
        Ok(RegId(number))
    }

    pub(super) fn resume_point(&self, line: &mut Line<'_>) -> Result<ResumePointId, ParseError> {
        let number = line.id("rp", "a resume point")?;
        if number as usize >= self.num_resume_points {
            return Err(ParseError::UnknownResumePoint {
                line: line.number(),
                resume_point: number,
            });
        }
        Ok(ResumePointId(number))
    }

    pub(super) fn block(&mut self, line: &mut Line<'_>) -> Result<BbId, ParseError> {
        let block = BbId(line.id("bb", "a basic block")?);
        self.block_uses.push((line.number(), block));
        Ok(block)
    }

    /// Sets how many registers and resume points there are, once all are declared.
    pub(super) fn declare(&mut self, num_registers: usize, num_resume_points: usize) {
        self.num_registers = num_registers;
        self.num_resume_points = num_resume_points;
    }

    /// Every block that was referred to is one of the kernel's `num_blocks`.
    pub(super) fn check_blocks(&self, num_blocks: usize) -> Result<(), ParseError> {
        match self.block_uses.iter().find(|(_, block)| block.index() >= num_blocks) {
            Some((line, block)) => Err(ParseError::UnknownBlock {
                line: *line,
                block: block.0,
            }),
            None => Ok(()),
        }
    }
}
