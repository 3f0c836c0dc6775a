//! What the CPU device must know of a program's barriers and warp-level operations, which it carries out itself between
//! regions, on the saved registers.
//!
//! # Shape
//! Encoded as 8 bytes of magic and version, then [`CpuTables`], bincode 2, standard configuration.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

/// Magic and version of the encoding; a change of the tables raises the last number.
const HEAD: [u8; 8] = *b"HKCPUTB3";
/// What decoded tables may take in memory: real kernels have hundreds of resume points.
const MAX_BYTES: usize = 64 << 20;

const fn config() -> Configuration<LittleEndian, Varint, Limit<MAX_BYTES>> {
    bincode::config::standard().with_limit::<MAX_BYTES>()
}

/// A saved register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Column {
    /// Bytes per thread before it ([`crate::thread_state::ThreadStateLayout::column`]).
    pub offset: u32,
    /// 1 (predicate), 2, 4 or 8.
    pub width_bytes: u32,
}

/// Operand of a barrier or warp-level operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Source {
    /// A saved register.
    Column(Column),
    /// A constant.
    Imm(u64),
}

/// Reduction of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum ReductionOp {
    And,
    Or,
    Popc,
}

/// A barrier's reduction over the threads' predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reduction {
    /// Which.
    pub op: ReductionOp,
    /// Each thread's predicate.
    pub source: Column,
    /// True if the predicate counts negated.
    pub negated: bool,
    /// Where the result goes; `None` if nobody reads it.
    pub result: Option<Column>,
}

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BarrierTable {
    /// Threads wait here.
    pub arrive: u32,
    /// And go on here.
    pub leave: u32,
    /// Barrier number.
    pub id: Source,
    /// Threads taking part; `None`: all of the block.
    pub count: Option<Source>,
    /// Reduction.
    pub reduction: Option<Reduction>,
}

/// Warp-level operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum WarpOpcode {
    ShflUp,
    ShflDown,
    ShflBfly,
    ShflIdx,
    VoteAll,
    VoteAny,
    VoteUni,
    VoteBallot,
    MatchAny,
    MatchAll,
    ReduxAdd,
    ReduxMinUnsigned,
    ReduxMinSigned,
    ReduxMaxUnsigned,
    ReduxMaxSigned,
    ReduxAnd,
    ReduxOr,
    ReduxXor,
    ActiveMask,
    Sync,
}

/// A warp-level operation. Lanes whose guard is false never wait there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WarpTable {
    /// Lanes wait here.
    pub arrive: u32,
    /// And go on here.
    pub leave: u32,
    /// Which.
    pub op: WarpOpcode,
    /// Width of the value for `match`: 4 or 8.
    pub value_bytes: u32,
    /// Result.
    pub result: Option<Column>,
    /// Predicate result.
    pub result_pred: Option<Column>,
    /// Operands, without the mask.
    pub sources: Vec<Source>,
    /// Member mask.
    pub mask: Source,
}

/// A place where threads run in step: they go on once all others of the block have come as far as they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepTable {
    /// Threads wait here.
    pub arrive: u32,
    /// And go on here.
    pub leave: u32,
}

/// Tables of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct CpuTables {
    /// Bytes of saved registers a thread.
    pub bytes_per_thread: u32,
    /// Resume points for which there is a region function, ascending.
    pub regions: Vec<u32>,
    /// Barriers.
    pub barriers: Vec<BarrierTable>,
    /// Warp-level operations.
    pub warp_ops: Vec<WarpTable>,
    /// Places where threads run in step.
    pub steps: Vec<StepTable>,
}

/// Tables that cannot be written (a bug in us).
#[derive(Debug, thiserror::Error)]
#[error("the tables of barriers and warp-level operations cannot be encoded")]
pub struct EncodeError(#[from] bincode::error::EncodeError);

/// Bytes that are no tables: damaged, or of another version.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// They begin with something else.
    #[error("they are not of this version")]
    Version,
    /// They do not go on as tables do, or would take too much memory.
    #[error("they cannot be decoded")]
    Damaged(#[source] bincode::error::DecodeError),
    /// More follows.
    #[error("{bytes} bytes follow")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A register has no such width.
    #[error("a register of {width_bytes} bytes")]
    Width {
        /// Its width.
        width_bytes: u32,
    },
}

impl CpuTables {
    /// Bytes for the disk and the code generator's interface.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = HEAD.to_vec();
        bincode::encode_into_std_write(self, &mut bytes, config())?;
        Ok(bytes)
    }

    /// The inverse of [`CpuTables::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] if `bytes` are not what it makes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let body = bytes.strip_prefix(&HEAD).ok_or(DecodeError::Version)?;
        let (tables, used): (Self, usize) = bincode::decode_from_slice(body, config()).map_err(DecodeError::Damaged)?;
        if used != body.len() {
            return Err(DecodeError::Trailing {
                bytes: body.len() - used,
            });
        }
        let bad = tables
            .columns()
            .find(|column| !matches!(column.width_bytes, 1 | 2 | 4 | 8));
        match bad {
            Some(Column { width_bytes, .. }) => Err(DecodeError::Width { width_bytes }),
            None => Ok(tables),
        }
    }

    /// All saved registers that it names.
    fn columns(&self) -> impl Iterator<Item = Column> {
        let of_barriers = self.barriers.iter().flat_map(|barrier| {
            let sources = [Some(barrier.id), barrier.count].into_iter().flatten();
            let reduction = barrier.reduction.map(|r| [Some(r.source), r.result]);
            let reduced = reduction.into_iter().flatten().flatten();
            sources.filter_map(Source::column).chain(reduced)
        });
        let of_warp_ops = self.warp_ops.iter().flat_map(|op| {
            let sources = op.sources.iter().copied().chain([op.mask]);
            let results = [op.result, op.result_pred].into_iter().flatten();
            sources.filter_map(Source::column).chain(results)
        });
        of_barriers.chain(of_warp_ops)
    }
}

impl Source {
    fn column(self) -> Option<Column> {
        match self {
            Self::Column(column) => Some(column),
            Self::Imm(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn sample() -> CpuTables {
        let column = |offset, width_bytes| Column { offset, width_bytes };
        CpuTables {
            bytes_per_thread: 13,
            regions: vec![0, 2],
            barriers: vec![BarrierTable {
                arrive: 1,
                leave: 2,
                id: Source::Imm(0),
                count: Some(Source::Column(column(8, 4))),
                reduction: Some(Reduction {
                    op: ReductionOp::Popc,
                    source: column(12, 1),
                    negated: true,
                    result: Some(column(8, 4)),
                }),
            }],
            warp_ops: vec![WarpTable {
                arrive: 3,
                leave: 4,
                op: WarpOpcode::MatchAll,
                value_bytes: 8,
                result: None,
                result_pred: Some(column(12, 1)),
                sources: vec![Source::Column(column(0, 8)), Source::Imm(u64::MAX)],
                mask: Source::Imm(0xffff_ffff),
            }],
            steps: vec![StepTable { arrive: 5, leave: 6 }],
        }
    }

    #[test]
    fn decode_inverts_encode() {
        assert_eq!(CpuTables::decode(&sample().encode().unwrap()).unwrap(), sample());
    }

    #[test]
    fn damaged_tables_are_refused_or_differ() {
        let bytes = sample().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(CpuTables::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x40;
            assert_ne!(CpuTables::decode(&damaged).ok(), Some(sample()), "byte {i}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(
            CpuTables::decode(&longer),
            Err(DecodeError::Trailing { bytes: 1 })
        ));
    }

    #[test]
    fn a_register_of_no_width_is_refused() {
        let mut tables = sample();
        tables.warp_ops[0].sources[0] = Source::Column(Column {
            offset: 0,
            width_bytes: 3,
        });
        let decoded = CpuTables::decode(&tables.encode().unwrap());
        assert!(matches!(decoded, Err(DecodeError::Width { width_bytes: 3 })));
    }

    #[test]
    fn a_list_without_end_takes_no_memory() {
        let claimed = [&HEAD[..], &[0, 253, 0, 0, 0, 0, 0, 0, 0, 16]].concat();
        assert!(matches!(CpuTables::decode(&claimed), Err(DecodeError::Damaged(_))));
    }
}
