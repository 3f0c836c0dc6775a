//! Events, and the time between two of them that comes with the answer to a wait. Who measures waits for the second
//! event, and then asks for the time since the first: once that has happened, the next wait asks for the time as well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hetckpt_ring::command::EventId;
use parking_lot::Mutex;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Number in the ring.
    pub id: EventId,
    /// False: made with `CU_EVENT_DISABLE_TIMING`.
    pub timing: bool,
    /// When it was recorded.
    pub recordings: Recordings,
    /// The time that has passed up to it.
    pub time: EventTime,
    /// Generation of the device state it belongs to.
    pub generation: u64,
}

impl Event {
    /// An event that is not recorded yet.
    pub fn new(id: EventId, timing: bool, generation: u64) -> Self {
        Self {
            id,
            timing,
            recordings: Recordings::default(),
            time: EventTime::default(),
            generation,
        }
    }
}

/// How often an event was recorded.
#[derive(Debug, Default)]
pub struct Recordings {
    count: AtomicU64,
    by_graph: AtomicBool,
}

impl Recordings {
    /// A record has been sent. Counting before sending would be wrong: a wait in between would keep the time of the
    /// record before under this one's number.
    pub fn add(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// A graph has a node that records it, at any time.
    pub fn by_graph(&self) {
        self.by_graph.store(true, Ordering::Relaxed);
        self.add();
    }

    /// False until the first.
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The number of the latest one; `None` if it is not known when the event is recorded.
    fn latest(&self) -> Option<u64> {
        (!self.by_graph.load(Ordering::Relaxed)).then(|| self.count.load(Ordering::Acquire))
    }
}

/// Numbers of the records between which a time was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    start: u64,
    end: u64,
}

impl Records {
    /// The latest of both events.
    pub fn latest(start: &Event, end: &Event) -> Option<Self> {
        Some(Self {
            start: start.recordings.latest()?,
            end: end.recordings.latest()?,
        })
    }
}

/// What a program asked for when it last measured up to an event.
#[derive(Debug)]
struct Asked {
    start: Weak<Event>,
    told: Option<(Records, f32)>,
}

/// The time up to an event.
#[derive(Debug, Default)]
pub struct EventTime(Mutex<Option<Asked>>);

impl EventTime {
    /// The event since which the next wait is to ask for the time. `None` if nobody has asked, or nobody wanted what
    /// the last wait told.
    pub fn start_to_ask_for(&self) -> Option<Arc<Event>> {
        let mut asked = self.0.lock();
        if asked.as_ref().is_some_and(|asked| asked.told.is_some()) {
            *asked = None;
        }
        asked.as_ref().and_then(|asked| asked.start.upgrade())
    }

    /// A wait told that `ms` milliseconds lie between `records`.
    pub fn tell(&self, start: &Arc<Event>, records: Records, ms: f32) {
        *self.0.lock() = Some(Asked {
            start: Arc::downgrade(start),
            told: Some((records, ms)),
        });
    }

    /// The program asks for the time since `start`, the latest records being `records`: milliseconds, if that was told.
    pub fn take(&self, start: &Arc<Event>, records: Option<Records>) -> Option<f32> {
        let mut asked = self.0.lock();
        let before = asked.replace(Asked {
            start: Arc::downgrade(start),
            told: None,
        })?;
        let (of, ms) = before.told?;
        (Weak::as_ptr(&before.start) == Arc::as_ptr(start) && Some(of) == records).then_some(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(id: u64) -> Arc<Event> {
        let event = Event::new(EventId(id), true, 0);
        event.recordings.add();
        Arc::new(event)
    }

    #[test]
    fn a_told_time_is_taken_once_and_only_for_its_records() {
        let (start, other, end) = (recorded(1), recorded(2), recorded(3));
        let records = |start: &Arc<Event>| Records::latest(start, &end);
        assert!(end.time.start_to_ask_for().is_none());
        assert_eq!(end.time.take(&start, records(&start)), None);
        assert!(Arc::ptr_eq(&end.time.start_to_ask_for().unwrap(), &start));
        end.time.tell(&start, records(&start).unwrap(), 2.5);
        assert_eq!(end.time.take(&start, records(&start)), Some(2.5));
        assert_eq!(end.time.take(&start, records(&start)), None);

        end.time.tell(&start, records(&start).unwrap(), 2.5);
        start.recordings.add();
        assert_eq!(end.time.take(&start, records(&start)), None);
        end.time.tell(&start, records(&start).unwrap(), 2.5);
        assert_eq!(end.time.take(&other, records(&other)), None);
        end.time.tell(&start, records(&start).unwrap(), 2.5);
        end.recordings.by_graph();
        assert_eq!(end.time.take(&start, records(&start)), None);
    }

    #[test]
    fn a_time_that_nobody_wants_is_not_asked_for_again() {
        let (start, end) = (recorded(1), recorded(2));
        end.time.take(&start, None);
        end.time.tell(&start, Records::latest(&start, &end).unwrap(), 1.0);
        assert!(end.time.start_to_ask_for().is_none());
        assert!(end.time.start_to_ask_for().is_none());
        end.time.take(&start, None);
        drop(start);
        assert!(end.time.start_to_ask_for().is_none());
    }
}
