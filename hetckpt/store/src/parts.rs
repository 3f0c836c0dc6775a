//! Parts of an object on their way between a thread that reads or writes them and one that transfers them.

use std::io::{self, ErrorKind, Read, Write};

use bytes::Bytes;
use tokio::sync::mpsc;

const MIB: u64 = 1 << 20;

/// How large parts are, and how many are on their way. What is on its way lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of a part.
    pub(crate) part: usize,
    /// Parts at a time.
    pub(crate) at_a_time: usize,
}

impl Sizes {
    /// Requests at a time, for parts of [`Sizes::LEAST`] and ranges.
    pub(crate) const AT_A_TIME: usize = 6;
    /// Bytes that are read by one request.
    pub(crate) const RANGE: u64 = 8 * MIB;
    /// The smallest part, bytes.
    const LEAST: u64 = 16 * MIB;
    /// No store takes more than 10000 parts.
    const MAX_PARTS: u64 = 9000;
    /// Bytes of all parts at a time, but for the two that there must be.
    const MEMORY: u64 = Self::LEAST * Self::AT_A_TIME as u64;

    /// For an object of about `bytes`, or of a size that nobody knows yet: that may come to 562 GiB.
    pub(crate) fn for_upload(bytes: Option<u64>) -> Self {
        let bytes = bytes.unwrap_or(Self::MAX_PARTS * 64 * MIB);
        let part = bytes.div_ceil(Self::MAX_PARTS).next_multiple_of(MIB).max(Self::LEAST);
        let at_a_time = usize::try_from(Self::MEMORY / part).unwrap_or(0).max(2);
        Self {
            part: usize::try_from(part).unwrap_or(usize::MAX),
            at_a_time,
        }
    }
}

/// Bytes of an object.
#[derive(Debug)]
pub(crate) struct Part {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// No more come.
    pub(crate) is_last: bool,
}

/// Takes bytes and sends them in parts.
pub(crate) struct PartWriter {
    sender: mpsc::Sender<Part>,
    buffer: Vec<u8>,
    size: usize,
}

impl PartWriter {
    pub(crate) fn new(sender: mpsc::Sender<Part>, size: usize) -> Self {
        let buffer = vec![];
        Self { sender, buffer, size }
    }

    /// Sends what is left.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.send(true)
    }

    fn send(&mut self, is_last: bool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.buffer).into();
        let sent = self.sender.blocking_send(Part { bytes, is_last });
        sent.map_err(|_| io::Error::new(ErrorKind::BrokenPipe, "the transfer has ended"))
    }
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only if more comes: the last part is not empty.
        if self.buffer.len() == self.size {
            self.send(false)?;
        }
        if self.buffer.capacity() == 0 {
            // Small objects take little.
            self.buffer
                .reserve_exact(if bytes.len() < 4096 { 4096 } else { self.size });
        }
        let taken = bytes.len().min(self.size - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives the bytes of parts that come.
pub(crate) struct PartReader {
    receiver: mpsc::Receiver<Part>,
    current: Bytes,
    has_last: bool,
}

impl PartReader {
    pub(crate) fn new(receiver: mpsc::Receiver<Part>) -> Self {
        Self {
            receiver,
            current: Bytes::new(),
            has_last: false,
        }
    }
}

impl Read for PartReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            if self.has_last {
                return Ok(0);
            }
            let cut = || io::Error::new(ErrorKind::UnexpectedEof, "the transfer has ended");
            let part = self.receiver.blocking_recv().ok_or_else(cut)?;
            self.has_last = part.is_last;
            self.current = part.bytes;
        }
        let taken = out.len().min(self.current.len());
        out[..taken].copy_from_slice(&self.current.split_to(taken));
        Ok(taken)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_few_and_fit_into_memory() {
        for bytes in [0, 1, 4 << 30, 160 << 30, 1 << 40, 5 << 40] {
            let sizes = Sizes::for_upload(Some(bytes));
            assert!(bytes.div_ceil(sizes.part as u64) <= 10000, "{bytes}");
            assert!((2..=8).contains(&sizes.at_a_time));
        }
        let sizes = Sizes::for_upload(Some(64 << 30));
        assert!(sizes.part * (sizes.at_a_time + 3) <= 160 << 20, "{sizes:?}");
    }

    proptest! {
        #[test]
        fn parts_joined_are_what_was_split(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 1usize..50, step in 1usize..70,
        ) {
            let (sender, receiver) = mpsc::channel(1000);
            let mut writer = PartWriter::new(sender, size);
            for piece in bytes.chunks(step) {
                writer.write_all(piece).unwrap();
            }
            writer.finish().unwrap();
            let mut joined = vec![];
            PartReader::new(receiver).read_to_end(&mut joined).unwrap();
            prop_assert_eq!(joined, bytes);
        }
    }
}
