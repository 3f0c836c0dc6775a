//! What kernels of machine code have printed: the driver's `printf` writes it in the server, the application takes it
//! from here and prints it. It lies in shared memory, so it is part of a snapshot.
//!
//! A record is a `u32` kind (0 stdout, 1 stderr), a `u32` length, and the text, up to the next multiple of 8. Records
//! follow one another in a FIFO of [`layout::PRINTED_BYTES`], round whose end their text may go.

use std::sync::atomic::Ordering;

use crate::layout;
use crate::shared_memory::SharedMemory;

/// First version of the protocol that has this.
pub const FIRST_VERSION: u32 = 9;

/// Kind and length.
const HEAD_BYTES: u64 = 8;
const CAPACITY: u64 = layout::PRINTED_BYTES as u64;

/// Where text is to be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// `printf`.
    Stdout,
    /// Failed assertions.
    Stderr,
}

/// The FIFO. One thread of the server appends at a time, and one of the application takes.
#[derive(Clone, Copy, Debug)]
pub struct PrintedFifo<'a> {
    memory: &'a SharedMemory,
}

impl<'a> PrintedFifo<'a> {
    pub(crate) fn new(memory: &'a SharedMemory) -> Self {
        Self { memory }
    }

    /// Bytes of one text that there is room for.
    #[must_use]
    pub fn room(&self) -> usize {
        let tail = self.memory.u64_at(layout::PRINTED_TAIL).load(Ordering::Relaxed);
        let head = self.memory.u64_at(layout::PRINTED_HEAD).load(Ordering::Acquire);
        // An application that writes nonsense there gets nothing.
        let used = tail.wrapping_sub(head).min(CAPACITY);
        (CAPACITY - used).saturating_sub(HEAD_BYTES) as usize
    }

    /// Appends as much of `text` as there is room for, and returns how many bytes that is.
    pub fn append(&self, output: Output, text: &[u8]) -> usize {
        let text = &text[..text.len().min(self.room())];
        if text.is_empty() {
            return 0;
        }
        let word = self.memory.u64_at(layout::PRINTED_TAIL);
        let tail = word.load(Ordering::Relaxed);
        let kind = match output {
            Output::Stdout => 0_u32,
            Output::Stderr => 1,
        };
        let length = text.len() as u32;
        self.write(tail, &kind.to_le_bytes());
        self.write(tail.wrapping_add(4), &length.to_le_bytes());
        self.write(tail.wrapping_add(HEAD_BYTES), text);
        let next = tail.wrapping_add(HEAD_BYTES + u64::from(length).next_multiple_of(8));
        word.store(next, Ordering::Release);
        text.len()
    }

    /// Says whether the server has more, which is to come once there is room.
    pub fn set_more(&self, has_more: bool) {
        let word = self.memory.u32_at(layout::PRINTED_MORE);
        word.store(u32::from(has_more), Ordering::Release);
    }

    /// True if the server has said that it has more.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.memory.u32_at(layout::PRINTED_MORE).load(Ordering::Acquire) != 0
    }

    /// True if there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let tail = self.memory.u64_at(layout::PRINTED_TAIL).load(Ordering::Acquire);
        tail == self.memory.u64_at(layout::PRINTED_HEAD).load(Ordering::Relaxed)
    }

    /// Takes the oldest text.
    #[must_use]
    pub fn take(&self) -> Option<(Output, Vec<u8>)> {
        let word = self.memory.u64_at(layout::PRINTED_HEAD);
        let head = word.load(Ordering::Relaxed);
        let tail = self.memory.u64_at(layout::PRINTED_TAIL).load(Ordering::Acquire);
        let filled = tail.wrapping_sub(head);
        if !(HEAD_BYTES..=CAPACITY).contains(&filled) {
            return None;
        }
        let number = |at| {
            let mut bytes = [0; 4];
            self.read(at, &mut bytes);
            u32::from_le_bytes(bytes)
        };
        let output = match number(head) {
            0 => Output::Stdout,
            _ => Output::Stderr,
        };
        let length = u64::from(number(head.wrapping_add(4))).min(filled - HEAD_BYTES);
        let mut text = vec![0; length as usize];
        self.read(head.wrapping_add(HEAD_BYTES), &mut text);
        let next = head.wrapping_add(HEAD_BYTES + length.next_multiple_of(8));
        word.store(next, Ordering::Release);
        Some((output, text))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let (place, before_end) = place(at, bytes.len());
        self.memory.write(layout::PRINTED + place, &bytes[..before_end]);
        self.memory.write(layout::PRINTED, &bytes[before_end..]);
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        let (place, before_end) = place(at, bytes.len());
        self.memory.read(layout::PRINTED + place, &mut bytes[..before_end]);
        self.memory.read(layout::PRINTED, &mut bytes[before_end..]);
    }
}

/// Where byte `at` lies, and how many of `length` bytes from there lie before the end of the memory.
fn place(at: u64, length: usize) -> (usize, usize) {
    let place = (at % CAPACITY) as usize;
    (place, length.min(layout::PRINTED_BYTES - place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> SharedMemory {
        SharedMemory::create().unwrap().1
    }

    #[test]
    fn text_comes_out_as_it_went_in() {
        let memory = memory();
        let fifo = PrintedFifo::new(&memory);
        assert!(fifo.is_empty() && fifo.take().is_none());
        // Often round the end, in pieces of all lengths.
        for length in 0..2000_usize {
            let text: Vec<u8> = (0..length).map(|i| (i * length) as u8).collect();
            assert_eq!(fifo.append(Output::Stdout, &text), length);
            assert_eq!(fifo.append(Output::Stderr, b"x"), 1);
            if length > 0 {
                assert_eq!(fifo.take(), Some((Output::Stdout, text)));
            }
            assert_eq!(fifo.take(), Some((Output::Stderr, b"x".to_vec())));
            assert!(fifo.is_empty());
        }
    }

    #[test]
    fn what_finds_no_room_is_left() {
        let memory = memory();
        let fifo = PrintedFifo::new(&memory);
        let text = vec![7; layout::PRINTED_BYTES];
        let taken = fifo.append(Output::Stdout, &text);
        assert_eq!(taken, layout::PRINTED_BYTES - 8);
        assert_eq!(fifo.append(Output::Stdout, &text), 0);
        assert_eq!(fifo.take().map(|(_, text)| text.len()), Some(taken));
        assert_eq!(fifo.append(Output::Stdout, &text[taken..]), 8);
    }

    #[test]
    fn nonsense_of_the_other_side_is_harmless() {
        let memory = memory();
        let fifo = PrintedFifo::new(&memory);
        memory
            .u64_at(layout::PRINTED_HEAD)
            .store(u64::MAX / 3, Ordering::Relaxed);
        assert_eq!(fifo.room(), 0);
        assert!(fifo.take().is_none());
        memory.u64_at(layout::PRINTED_HEAD).store(0, Ordering::Relaxed);
        memory.u64_at(layout::PRINTED_TAIL).store(16, Ordering::Relaxed);
        memory.write(layout::PRINTED + 4, &u32::MAX.to_le_bytes());
        assert_eq!(fifo.take().map(|(_, text)| text.len()), Some(8));
        assert!(fifo.is_empty());
    }
}
