//! What a program asks for itself, in the ring's header: a checkpoint, how often it was restored, and its label.
//!
//! A request is no command of the FIFO: those wait behind the program's kernels, and are part of the device's state.
//! Both sides find all that they need in shared memory, so a program that is frozen while it waits, and restored by
//! another server, is answered by that one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::checkpoint::{Answer, Outcome};
use crate::error::RingError;
use crate::futex;
use crate::layout;
use crate::shared_memory::SharedMemory;

/// How often a program that waits looks whether its server is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The words.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointWords<'a> {
    memory: &'a SharedMemory,
}

/// A request that has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub number: u32,
    /// The file that the checkpoint is to go to, if one was named.
    pub file: Option<Vec<u8>>,
}

impl<'a> CheckpointWords<'a> {
    pub(crate) fn new(memory: &'a SharedMemory) -> Self {
        Self { memory }
    }

    /// Asks for a checkpoint, in `file` if that is not empty, and waits for the answer, which may come from another
    /// server, after a restore. One thread of the application at a time.
    ///
    /// # Errors
    /// [`RingError::TooLarge`]; [`RingError::ServerGone`] once the server is not `is_alive`.
    pub fn ask(&self, file: &[u8], is_alive: impl Fn() -> bool) -> Result<Answer, RingError> {
        let (asked, answered) = (
            self.word(layout::CHECKPOINT_ASKED),
            self.word(layout::CHECKPOINT_ANSWERED),
        );
        self.put(
            "file name",
            file,
            layout::CHECKPOINT_FILE,
            layout::CHECKPOINT_FILE_BYTES,
            layout::MAX_CHECKPOINT_FILE_BYTES,
        )?;
        let number = asked.load(Ordering::Relaxed).wrapping_add(1);
        asked.store(number, Ordering::SeqCst);
        futex::wake(asked, i32::MAX);
        loop {
            let last = answered.load(Ordering::SeqCst);
            if last == number {
                return Ok(self.answered());
            }
            if !is_alive() {
                return Err(RingError::ServerGone);
            }
            futex::wait(answered, last, Some(LOOK_INTERVAL));
        }
    }

    fn answered(&self) -> Answer {
        let outcome = Outcome::of_number(self.word(layout::CHECKPOINT_OUTCOME).load(Ordering::Relaxed));
        let message = self.get(
            layout::CHECKPOINT_MESSAGE,
            layout::CHECKPOINT_MESSAGE_BYTES,
            layout::MAX_CHECKPOINT_MESSAGE_BYTES,
        );
        Answer::new(outcome, String::from_utf8_lossy(&message))
    }

    /// Waits for the next request. The server's part, for one thread of it.
    #[must_use]
    pub fn next(&self) -> Request {
        let asked = self.word(layout::CHECKPOINT_ASKED);
        loop {
            let number = asked.load(Ordering::SeqCst);
            if number != self.word(layout::CHECKPOINT_ANSWERED).load(Ordering::Relaxed) {
                let file = self.get(
                    layout::CHECKPOINT_FILE,
                    layout::CHECKPOINT_FILE_BYTES,
                    layout::MAX_CHECKPOINT_FILE_BYTES,
                );
                let file = (!file.is_empty()).then_some(file);
                return Request { number, file };
            }
            futex::wait(asked, number, None);
        }
    }

    /// Answers request `number`; a message that is too long is cut.
    pub fn answer(&self, number: u32, answer: &Answer) {
        let mut length = answer.message.len().min(layout::MAX_CHECKPOINT_MESSAGE_BYTES);
        while !answer.message.is_char_boundary(length) {
            length -= 1;
        }
        let message = &answer.message[..length];
        self.memory.write(layout::CHECKPOINT_MESSAGE, message.as_bytes());
        self.word(layout::CHECKPOINT_MESSAGE_BYTES)
            .store(message.len() as u32, Ordering::Relaxed);
        self.word(layout::CHECKPOINT_OUTCOME)
            .store(answer.outcome as u32, Ordering::Relaxed);
        let answered = self.word(layout::CHECKPOINT_ANSWERED);
        answered.store(number, Ordering::SeqCst);
        futex::wake(answered, i32::MAX);
    }

    /// The application has been restored: it is counted, and whoever waits for a checkpoint learns it. Before the
    /// application runs on.
    pub fn note_restored(&self) {
        self.word(layout::NUM_RESTORES).fetch_add(1, Ordering::Relaxed);
        let asked = self.word(layout::CHECKPOINT_ASKED).load(Ordering::SeqCst);
        if asked != self.word(layout::CHECKPOINT_ANSWERED).load(Ordering::SeqCst) {
            self.answer(asked, &Answer::new(Outcome::Restored, ""));
        }
    }

    /// How often the application has been restored.
    #[must_use]
    pub fn num_restores(&self) -> u32 {
        self.word(layout::NUM_RESTORES).load(Ordering::Relaxed)
    }

    /// Labels the application's state from now on; an empty label is none. One thread of the application at a time.
    ///
    /// # Errors
    /// [`RingError::TooLarge`].
    pub fn set_label(&self, label: &str) -> Result<(), RingError> {
        let (at, length) = (layout::LABEL, layout::LABEL_BYTES);
        self.put("label", label.as_bytes(), at, length, layout::MAX_LABEL_BYTES)
    }

    /// The label; empty if there is none, or if what the application has written there can be none.
    #[must_use]
    pub fn label(&self) -> String {
        let bytes = self.get(layout::LABEL, layout::LABEL_BYTES, layout::MAX_LABEL_BYTES);
        let label = String::from_utf8(bytes).unwrap_or_default();
        if is_label(&label) { label } else { String::new() }
    }

    /// Puts bytes in. Nobody who looks meanwhile takes a part of them for all.
    fn put(&self, what: &'static str, bytes: &[u8], at: usize, length: usize, limit: usize) -> Result<(), RingError> {
        if bytes.len() > limit {
            let (size_bytes, limit_bytes) = (bytes.len() as u64, limit as u64);
            return Err(RingError::TooLarge {
                what,
                size_bytes,
                limit_bytes,
            });
        }
        self.word(length).store(0, Ordering::SeqCst);
        self.memory.write(at, bytes);
        self.word(length).store(bytes.len() as u32, Ordering::SeqCst);
        Ok(())
    }

    fn get(&self, at: usize, length: usize, limit: usize) -> Vec<u8> {
        let length = self.word(length).load(Ordering::SeqCst) as usize;
        let mut bytes = vec![0; length.min(limit)];
        self.memory.read(at, &mut bytes);
        bytes
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        self.memory.u32_at(offset)
    }
}

/// True if `text` can be a label: a line that is not too long.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= layout::MAX_LABEL_BYTES && !text.contains(char::is_control)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_by_whichever_server_is_there() {
        let (_fd, memory) = SharedMemory::create().unwrap();
        let words = CheckpointWords::new(&memory);
        std::thread::scope(|scope| {
            let program = scope.spawn(|| words.ask(b"/a/file", || true).unwrap());
            let request = words.next();
            assert_eq!(request.file.as_deref(), Some(&b"/a/file"[..]));
            let failed = Answer::new(Outcome::Failed, "\u{e9}".repeat(1000));
            words.answer(request.number, &failed);
            let answer = program.join().unwrap();
            assert_eq!(answer.outcome, Outcome::Failed);
            assert_eq!(answer.message, "\u{e9}".repeat(512));

            let program = scope.spawn(|| words.ask(b"", || true).unwrap());
            assert_eq!(words.next().file, None);
            words.note_restored();
            assert_eq!(program.join().unwrap().outcome, Outcome::Restored);
        });
        // Nobody waits: nobody is answered.
        words.note_restored();
        assert_eq!(words.num_restores(), 2);
        assert!(matches!(words.ask(b"", || false), Err(RingError::ServerGone)));
        assert!(
            words
                .ask(&[b'a'; layout::MAX_CHECKPOINT_FILE_BYTES + 1], || true)
                .is_err()
        );
    }

    #[test]
    fn what_is_no_label_is_none() {
        let (_fd, memory) = SharedMemory::create().unwrap();
        let words = CheckpointWords::new(&memory);
        assert_eq!(words.label(), "");
        words.set_label("step 7 \u{3b1}").unwrap();
        assert_eq!(words.label(), "step 7 \u{3b1}");
        for hostile in [&b"\xff"[..], b"a\nb", b"\x1b[2J"] {
            words
                .put("label", hostile, layout::LABEL, layout::LABEL_BYTES, 9)
                .unwrap();
            assert_eq!(words.label(), "", "{hostile:?}");
        }
        words.word(layout::LABEL_BYTES).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(words.label(), "");
        words.set_label("").unwrap();
        assert_eq!(words.label(), "");
    }
}
