//! One stream, and what is in it.

use std::collections::VecDeque;

use hetckpt_state::queue::Place;

/// What the order has to know of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A launch: the device runs it behind what it was given before.
    Launch {
        /// Its program is built, or known not to be buildable, which the launch then reports.
        is_built: bool,
        /// What it does when asked to stop.
        stops: Stops,
    },
    /// The device does it in order with launches, and nothing stops it: a copy, a fill. It is given to the device once
    /// no launch of its stream is there that can stop, and few such are there at a time, since a pause waits for them
    /// ([`crate::order::Order::set_window`]).
    Transfer,
    /// The device does it in order with launches, and it has no effect that counts if a launch before it stops: the
    /// record of an event, a read of device memory.
    Follower,
    /// A thread does it once all before it is done.
    Task,
    /// It is done once the application has said that this function of its own has returned.
    HostFunction(u64),
}

/// What a launch does when asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// It stops, and turns itself away behind one that has stopped.
    WhenAsked,
    /// Nothing: it goes by the rule of [`Kind::Transfer`].
    Never,
    /// It can be given in either way: so that it does not stop, which is faster, unless something is on the device in
    /// front of it that does.
    Either,
}

/// What is in streams.
pub trait Work {
    /// What the order has to know of it.
    fn kind(&self) -> Kind;

    /// How many of its stream's places it takes: more than one for things that belong together, which begin and end as
    /// one. A snapshot may have them one by one.
    fn num_places(&self) -> u64 {
        1
    }

    /// What is left to do of something that the device has done although something before it in its stream has stopped.
    /// A launch has run without effect, or had nothing to do, and only counts; a follower is to be done again. It takes
    /// as many places as before.
    #[must_use]
    fn behind_a_stop(self) -> Self;
}

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item<W> {
    /// What is to be done.
    pub work: W,
    /// Places that must be reached first.
    pub after: Vec<Place>,
}

/// Something on the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight<W, F> {
    /// What was given.
    pub work: W,
    /// What the device calls it.
    pub handle: F,
    /// What a pause does to it.
    pub in_pause: InPause,
}

/// What a pause does to something on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InPause {
    /// It stops.
    Stops,
    /// It is waited for.
    Ends,
    /// Nothing: it has no effect that counts behind a launch that stops.
    Follows,
}

/// Who is at the front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Front {
    /// Nobody.
    Free,
    /// A thread does an item that it has taken.
    Taken {
        /// [`Work::num_places`] of it.
        num_places: u64,
    },
    /// A thread builds a program. It touches nothing that a capture reads.
    Building,
    /// A thread gives items to the device.
    Giving,
}

/// Whether more may be given to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Flow {
    /// Yes.
    Open,
    /// Not until all that is there has landed: a pause has come.
    Draining,
}

/// Who waits for the first flight to land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Landing {
    /// Nobody.
    Unclaimed,
    /// One thread.
    Claimed,
}

/// Whether the application still has the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Yes.
    Open,
    /// It has destroyed it: it goes once all is done.
    Destroyed,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stream<W, F> {
    pub(crate) non_blocking: bool,
    pub(crate) priority: i32,
    /// What has not begun, in order.
    pub(crate) queue: VecDeque<Item<W>>,
    /// What a thread gives to the device, in order; before everything in `queue`.
    pub(crate) giving: VecDeque<(W, InPause)>,
    /// What is on the device, in order; before everything in `giving`.
    pub(crate) flights: VecDeque<Flight<W, F>>,
    /// Launches among `giving` and `flights` that a pause stops.
    pub(crate) num_stopping: u64,
    /// Things among them that a pause waits for.
    pub(crate) num_ending: usize,
    /// What has landed without being done, until all flights have: before `flights`, in order.
    pub(crate) stopped: Vec<Item<W>>,
    pub(crate) front: Front,
    pub(crate) flow: Flow,
    pub(crate) landing: Landing,
    pub(crate) life: Life,
    /// So much of what a pause waits for may be on the device.
    pub(crate) window: usize,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
}

/// A stream as a snapshot has it: nothing of it is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStream<W> {
    /// It does not join with the legacy default stream.
    pub non_blocking: bool,
    /// Priority.
    pub priority: i32,
    /// The application has destroyed it.
    pub is_destroyed: bool,
    /// Places reached so far; those of `queue` come next.
    pub completed: u64,
    /// What has not been done, in order.
    pub queue: Vec<Item<W>>,
}

impl<W, F> Stream<W, F> {
    /// A stream without work.
    #[must_use]
    pub fn new(non_blocking: bool, priority: i32) -> Self {
        Self {
            non_blocking,
            priority,
            queue: VecDeque::new(),
            giving: VecDeque::new(),
            flights: VecDeque::new(),
            num_stopping: 0,
            num_ending: 0,
            stopped: Vec::new(),
            front: Front::Free,
            flow: Flow::Open,
            landing: Landing::Unclaimed,
            life: Life::Open,
            window: 1,
            submitted: 0,
            completed: 0,
        }
    }

    pub(crate) fn restored(stored: StoredStream<W>) -> Self
    where
        W: Work,
    {
        let queued: u64 = stored.queue.iter().map(|item| item.work.num_places()).sum();
        let submitted = stored.completed.saturating_add(queued);
        Self {
            life: if stored.is_destroyed {
                Life::Destroyed
            } else {
                Life::Open
            },
            submitted,
            completed: stored.completed,
            queue: stored.queue.into(),
            ..Self::new(stored.non_blocking, stored.priority)
        }
    }

    /// It does not join with the legacy default stream.
    #[must_use]
    pub fn is_non_blocking(&self) -> bool {
        self.non_blocking
    }

    /// Priority, as CUDA has it.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The application has destroyed it.
    #[must_use]
    pub fn is_destroyed(&self) -> bool {
        self.life == Life::Destroyed
    }

    /// Places ever given out.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Places reached.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// What has not begun, in order.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = &Item<W>> {
        self.queue.iter()
    }

    /// What is on the device, in order.
    pub fn flights(&self) -> impl ExactSizeIterator<Item = &Flight<W, F>> + DoubleEndedIterator {
        self.flights.iter()
    }

    /// The first item that has not begun.
    #[must_use]
    pub fn front(&self) -> Option<&Item<W>> {
        self.queue.front()
    }

    /// True if something of it has stopped, and not all else has landed.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// True if a thread does an item of it right now.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        matches!(self.front, Front::Taken { .. })
    }

    /// True if it has nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.front == Front::Free
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.num_on_device() == 0 && self.stopped.is_empty()
    }

    /// How much is on the device, or on its way there.
    #[must_use]
    pub fn num_on_device(&self) -> usize {
        self.flights.len() + self.giving.len()
    }

    /// What a pause does to something of this kind once it is given to the device.
    pub(crate) fn in_pause(&self, kind: Kind) -> InPause {
        match kind {
            Kind::Launch {
                stops: Stops::WhenAsked,
                ..
            } => InPause::Stops,
            Kind::Launch {
                stops: Stops::Either, ..
            } if self.num_stopping > 0 => InPause::Stops,
            Kind::Follower => InPause::Follows,
            Kind::Launch { .. } | Kind::Transfer | Kind::Task | Kind::HostFunction(_) => InPause::Ends,
        }
    }

    /// The front item is given to the device.
    pub(crate) fn begin_front(&mut self)
    where
        W: Work,
    {
        if let Some(Item { work, .. }) = self.queue.pop_front() {
            let in_pause = self.in_pause(work.kind());
            match in_pause {
                InPause::Stops => self.num_stopping += work.num_places(),
                InPause::Ends => self.num_ending += 1,
                InPause::Follows => {}
            }
            self.giving.push_back((work, in_pause));
        }
    }

    /// The first flight is not on the device any more.
    pub(crate) fn end_first(&mut self) -> Option<Flight<W, F>>
    where
        W: Work,
    {
        let flight = self.flights.pop_front()?;
        match flight.in_pause {
            InPause::Stops => self.num_stopping -= flight.work.num_places(),
            InPause::Ends => self.num_ending -= 1,
            InPause::Follows => {}
        }
        Some(flight)
    }

    /// True if it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.life == Life::Destroyed && self.is_idle()
    }

    /// True if nothing of it changes any more while a pause holds.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_still = matches!(self.front, Front::Free | Front::Building);
        is_still && self.num_on_device() == 0 && self.stopped.is_empty()
    }

    /// What has stopped goes back to the front of the queue once nothing is on the device any more.
    pub(crate) fn put_stopped_back(&mut self) {
        if self.num_on_device() == 0 {
            self.flow = Flow::Open;
            for item in std::mem::take(&mut self.stopped).into_iter().rev() {
                self.queue.push_front(item);
            }
        }
    }
}
