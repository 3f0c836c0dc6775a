//! What the probe pass did, for people who look at a kernel's stages.

use std::fmt;

use hetckpt_ir::entity::BbId;

/// What the probe pass did to one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Barriers that became probes.
    pub num_barriers: u32,
    /// Warp-level operations that stand alone now.
    pub num_warp_ops: u32,
    /// Edges that close cycles with several entries, each with a countdown now.
    pub num_irreducible: u32,
    /// Why probes are missing, if some are.
    pub unprobed: Option<Unprobed>,
    /// Loops, by header.
    pub loops: Vec<LoopReport>,
}

/// Why a kernel has fewer probes than its loops and barriers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprobed {
    /// Asynchronous copies may be on their way: entry probe only.
    AsyncCopies,
    /// A warp-level operation has a member mask other than all lanes: no probes in loops.
    PartialWarpMask,
}

/// What was done to one loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopReport {
    /// Header of the loop in the probed kernel.
    pub header: BbId,
    /// First PTX line of the header.
    pub line: u32,
    /// What was done.
    pub probe: LoopProbe,
}

/// How a loop polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopProbe {
    /// Split into chunks of so many iterations, with a poll between them.
    StripMined {
        /// Iterations.
        chunk: u32,
    },
    /// So many bodies in a row, each with its exit, and one countdown.
    Unrolled {
        /// Bodies.
        factor: u32,
    },
    /// A countdown at its back edge.
    CountedDown,
    /// Each iteration passes a barrier.
    HasBarrier,
    /// None ([`Report::unprobed`] says why).
    None,
}

impl fmt::Display for LoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loop {} (line {}): {}", self.header, self.line, self.probe)
    }
}

impl fmt::Display for LoopProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StripMined { chunk } => write!(f, "strip-mined, polls every {chunk} iterations"),
            Self::Unrolled { factor } => write!(f, "{factor} bodies in a row, one countdown"),
            Self::CountedDown => f.write_str("countdown at its back edge"),
            Self::HasBarrier => f.write_str("each iteration passes a barrier"),
            Self::None => f.write_str("no probe"),
        }
    }
}

impl fmt::Display for Unprobed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsyncCopies => "has asynchronous copies: it can be paused only before it starts",
            Self::PartialWarpMask => "has warp-level operations on part of a warp: its loops carry no probe",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} barriers, {} warp-level operations",
            self.num_barriers, self.num_warp_ops
        )?;
        if let Some(reason) = self.unprobed {
            writeln!(f, "{reason}")?;
        }
        if self.num_irreducible > 0 {
            writeln!(f, "{} countdowns in cycles with several entries", self.num_irreducible)?;
        }
        for line in &self.loops {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
