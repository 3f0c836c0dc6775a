//! Who may be heard at a time: callers who have not said yet what they want, and sources whose programs are being
//! received.
//!
//! Callers have slots of their own and little time. Where all slots are taken, the caller who has said nothing for
//! longest is hung up on, so that those who say nothing keep nobody else out. What a source says of a program that has
//! been received takes no slot: it is always heard.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Most callers at a time who have not said yet what they want.
const MOST_CALLERS: usize = 64;

/// The slots of a `serve`.
#[derive(Debug)]
pub struct Slots {
    /// The oldest first.
    callers: Mutex<VecDeque<Arc<TcpStream>>>,
    programs: AtomicUsize,
    most_programs: usize,
}

/// A caller's slot, free again when this is dropped.
#[derive(Debug)]
pub struct Caller {
    slots: Arc<Slots>,
    stream: Arc<TcpStream>,
}

/// The slot of a program that is being received, likewise.
#[derive(Debug)]
pub struct Program(Arc<Slots>);

impl Slots {
    /// For so many programs at a time.
    pub fn new(most_programs: usize) -> Arc<Self> {
        Arc::new(Self {
            callers: Mutex::default(),
            programs: AtomicUsize::new(0),
            most_programs,
        })
    }

    fn callers(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.callers.lock()
    }

    /// A slot for a caller, perhaps that of the oldest, whose connection ends.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn caller(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Caller> {
        let stream = Arc::new(stream.try_clone()?);
        let mut callers = self.callers();
        while callers.len() >= MOST_CALLERS {
            // It may have gone by itself.
            let _ = callers.pop_front().map(|oldest| oldest.shutdown(Shutdown::Both));
        }
        callers.push_back(Arc::clone(&stream));
        let slots = Arc::clone(self);
        Ok(Caller { slots, stream })
    }

    /// A slot for a program, if there is one.
    pub fn program(self: &Arc<Self>) -> Option<Program> {
        let slot = Program(Arc::clone(self));
        // One that is one too many is given back at once.
        (self.programs.fetch_add(1, Ordering::AcqRel) < self.most_programs).then_some(slot)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.slots.callers().retain(|other| !Arc::ptr_eq(other, &self.stream));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.programs.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_oldest_caller_makes_room() {
        let slots = Slots::new(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let call = || {
            let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (there, slots.caller(&listener.accept().unwrap().0).unwrap())
        };
        let mut held: Vec<_> = (0..=MOST_CALLERS).map(|_| call()).collect();
        assert_eq!(held[0].0.read(&mut [0]).unwrap(), 0, "the oldest is hung up on");
        held[1].0.set_nonblocking(true).unwrap();
        assert_eq!(held[1].0.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(slots.callers().is_empty());
    }

    #[test]
    fn slots_of_programs_come_free_again() {
        let slots = Slots::new(1);
        let first = slots.program().unwrap();
        assert!(slots.program().is_none() && slots.program().is_none());
        drop(first);
        assert!(slots.program().is_some());
    }
}
