//! What the CPU device must know of a program's barriers and warp-level operations, which it carries out itself between
//! regions, on the saved registers.
//!
//! # Shape
//! Encoded as little-endian u32 words: magic, version, then each field in order; a list is its length and its
//! elements, an option a 0 or a 1 and the value, a 64-bit number low word first.

/// First word of encoded tables.
const MAGIC: u32 = 0x5443_4b48;
/// Second word: version of the encoding.
const VERSION: u32 = 1;
/// No list may be longer: resume points have 32-bit ids, but real kernels have hundreds.
const MAX_LIST: u32 = 1 << 20;

/// A saved register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Bytes per thread before it ([`crate::thread_state::ThreadStateLayout::column`]).
    pub offset: u32,
    /// 1 (predicate), 2, 4 or 8.
    pub width_bytes: u32,
}

/// Operand of a barrier or warp-level operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A saved register.
    Column(Column),
    /// A constant.
    Imm(u64),
}

/// Reduction of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum ReductionOp {
    And,
    Or,
    Popc,
}

/// A barrier's reduction over the threads' predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
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

const REDUCTIONS: [ReductionOp; 3] = [ReductionOp::And, ReductionOp::Or, ReductionOp::Popc];
const OPCODES: [WarpOpcode; 20] = [
    WarpOpcode::ShflUp,
    WarpOpcode::ShflDown,
    WarpOpcode::ShflBfly,
    WarpOpcode::ShflIdx,
    WarpOpcode::VoteAll,
    WarpOpcode::VoteAny,
    WarpOpcode::VoteUni,
    WarpOpcode::VoteBallot,
    WarpOpcode::MatchAny,
    WarpOpcode::MatchAll,
    WarpOpcode::ReduxAdd,
    WarpOpcode::ReduxMinUnsigned,
    WarpOpcode::ReduxMinSigned,
    WarpOpcode::ReduxMaxUnsigned,
    WarpOpcode::ReduxMaxSigned,
    WarpOpcode::ReduxAnd,
    WarpOpcode::ReduxOr,
    WarpOpcode::ReduxXor,
    WarpOpcode::ActiveMask,
    WarpOpcode::Sync,
];

/// A warp-level operation. Lanes whose guard is false never wait there.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Tables of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTables {
    /// Bytes of saved registers a thread.
    pub bytes_per_thread: u32,
    /// Resume points for which there is a region function, ascending.
    pub regions: Vec<u32>,
    /// Barriers.
    pub barriers: Vec<BarrierTable>,
    /// Warp-level operations.
    pub warp_ops: Vec<WarpTable>,
}

impl CpuTables {
    /// Bytes for the disk and the code generator's interface.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::new());
        w.word(MAGIC);
        w.word(VERSION);
        w.word(self.bytes_per_thread);
        w.list(&self.regions, |w, &r| w.word(r));
        w.list(&self.barriers, |w, b| {
            w.word(b.arrive);
            w.word(b.leave);
            w.source(b.id);
            w.option(b.count, Writer::source);
            w.option(b.reduction, |w, r| {
                w.word(r.op as u32);
                w.column(r.source);
                w.word(u32::from(r.negated));
                w.option(r.result, Writer::column);
            });
        });
        w.list(&self.warp_ops, |w, op| {
            w.word(op.arrive);
            w.word(op.leave);
            w.word(op.op as u32);
            w.word(op.value_bytes);
            w.option(op.result, Writer::column);
            w.option(op.result_pred, Writer::column);
            w.list(&op.sources, |w, &s| w.source(s));
            w.source(op.mask);
        });
        w.0
    }

    /// The inverse of [`CpuTables::encode`]; `None` if `bytes` are not what it makes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        if r.word()? != MAGIC || r.word()? != VERSION {
            return None;
        }
        let tables = Self {
            bytes_per_thread: r.word()?,
            regions: r.list(Reader::word)?,
            barriers: r.list(Reader::barrier)?,
            warp_ops: r.list(Reader::warp_op)?,
        };
        r.0.is_empty().then_some(tables)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u32) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn column(&mut self, column: Column) {
        self.word(column.offset);
        self.word(column.width_bytes);
    }

    fn source(&mut self, source: Source) {
        match source {
            Source::Column(column) => {
                self.word(0);
                self.column(column);
            }
            Source::Imm(value) => {
                self.word(1);
                self.0.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    fn option<T>(&mut self, value: Option<T>, f: impl FnOnce(&mut Self, T)) {
        self.word(u32::from(value.is_some()));
        if let Some(value) = value {
            f(self, value);
        }
    }

    fn list<T>(&mut self, items: &[T], mut f: impl FnMut(&mut Self, &T)) {
        self.word(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for item in items {
            f(self, item);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn column(&mut self) -> Option<Column> {
        let column = Column {
            offset: self.word()?,
            width_bytes: self.word()?,
        };
        matches!(column.width_bytes, 1 | 2 | 4 | 8).then_some(column)
    }

    fn source(&mut self) -> Option<Source> {
        if self.flag()? {
            let low = u64::from(self.word()?);
            Some(Source::Imm(low | u64::from(self.word()?) << 32))
        } else {
            Some(Source::Column(self.column()?))
        }
    }

    fn option<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        Some(if self.flag()? { Some(f(self)?) } else { None })
    }

    fn list<T>(&mut self, mut f: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let len = self.word()?;
        if len > MAX_LIST {
            return None;
        }
        (0..len).map(|_| f(self)).collect()
    }

    fn barrier(&mut self) -> Option<BarrierTable> {
        Some(BarrierTable {
            arrive: self.word()?,
            leave: self.word()?,
            id: self.source()?,
            count: self.option(Self::source)?,
            reduction: self.option(|r| {
                Some(Reduction {
                    op: *REDUCTIONS.get(r.word()? as usize)?,
                    source: r.column()?,
                    negated: r.flag()?,
                    result: r.option(Self::column)?,
                })
            })?,
        })
    }

    fn warp_op(&mut self) -> Option<WarpTable> {
        Some(WarpTable {
            arrive: self.word()?,
            leave: self.word()?,
            op: *OPCODES.get(self.word()? as usize)?,
            value_bytes: self.word()?,
            result: self.option(Self::column)?,
            result_pred: self.option(Self::column)?,
            sources: self.list(Self::source)?,
            mask: self.source()?,
        })
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
        }
    }

    #[test]
    fn decode_inverts_encode() {
        assert_eq!(CpuTables::decode(&sample().encode()).unwrap(), sample());
        for (i, op) in OPCODES.iter().enumerate() {
            assert_eq!(*op as usize, i);
        }
    }

    #[test]
    fn damaged_tables_are_refused_or_differ() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert_eq!(CpuTables::decode(&bytes[..len]), None, "cut to {len}");
        }
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x40;
            assert_ne!(CpuTables::decode(&damaged), Some(sample()), "byte {i}");
        }
    }
}
