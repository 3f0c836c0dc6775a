//! Who runs commands: a thread for each queue, which gives them to the queue's stream when what they wait for is over.
//!
//! # Order
//! Commands of an in-order queue go into the stream in their order, several at a time, and are complete in it. Those
//! whose events the program has are waited for one by one; others together with the next that is waited for. Of an
//! out-of-order queue the first that is ready goes next; barriers are events that all later commands wait for. A
//! command that makes the thread itself wait (a copy to the program's memory) goes only when the stream is empty, so
//! that the commands before it are seen to be complete as soon as they are. So does every command of a queue with
//! profiling, whose times are the thread's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use crate::command::Command;
use crate::cuda::{self, CudaError, Mark, Stream};
use crate::event::{Event, progress};
use crate::log;
use crate::monitor;
use crate::status::{Outcome, Status};

/// Commands that a stream may have at a time.
const DEPTH: usize = 64;

/// What is enqueued.
#[derive(Debug)]
pub enum Work {
    /// Something for the device.
    Device(Command),
    /// Nothing.
    Point,
    /// Nothing. Without a wait list it waits for all before it.
    Marker,
    /// Likewise, and all after it wait for it.
    Barrier,
}

#[derive(Debug)]
struct Pending {
    event: Arc<Event>,
    /// What it waits for; an error there is its own.
    wait_list: Vec<Arc<Event>>,
    /// What it waits for, whatever comes of it.
    behind: Vec<Arc<Event>>,
    work: Work,
}

#[derive(Debug, Default)]
struct Content {
    pending: VecDeque<Pending>,
    /// What is in the stream.
    started: VecDeque<Arc<Event>>,
    /// Barriers that are not over.
    barriers: Vec<Arc<Event>>,
    is_closed: bool,
    /// Commands that the device failed to do.
    num_failed: u64,
    /// How many of them `finish` has told of.
    num_told: u64,
}

/// How a queue's commands are run.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Only wait lists and barriers order them.
    pub is_out_of_order: bool,
    /// Their times are asked for.
    pub is_profiled: bool,
}

/// A queue's commands, and the stream they go into.
#[derive(Debug)]
pub struct Lane {
    stream: Stream,
    is_out_of_order: AtomicBool,
    is_profiled: AtomicBool,
    content: Mutex<Content>,
}

/// Starts a worker; it ends when its lane is closed and empty.
///
/// # Errors
/// If there can be no more threads.
pub fn start(stream: Stream, mode: Mode) -> std::io::Result<Arc<Lane>> {
    let lane = Arc::new(Lane {
        stream,
        is_out_of_order: AtomicBool::new(mode.is_out_of_order),
        is_profiled: AtomicBool::new(mode.is_profiled),
        content: Mutex::default(),
    });
    let own = lane.clone();
    // The program's signal handlers must not run in our thread.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = std::thread::Builder::new()
        .name("hetckpt-queue".to_owned())
        .spawn(move || own.serve());
    let _ = before.thread_set_mask();
    started.map(|_| lane)
}

impl Lane {
    /// The stream that its commands go into.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Sets how commands are run from now on. The lane must be empty.
    pub fn set_mode(&self, mode: Mode) {
        self.is_out_of_order.store(mode.is_out_of_order, Ordering::Relaxed);
        self.is_profiled.store(mode.is_profiled, Ordering::Relaxed);
    }

    fn is_out_of_order(&self) -> bool {
        self.is_out_of_order.load(Ordering::Relaxed)
    }

    /// Adds a command.
    pub fn push(&self, event: Arc<Event>, wait_list: Vec<Arc<Event>>, work: Work) {
        let mut behind = Vec::new();
        let mut content = self.content.lock();
        if self.is_out_of_order() {
            content.barriers.retain(|barrier| !barrier.is_over());
            if matches!(work, Work::Marker | Work::Barrier) && wait_list.is_empty() {
                behind.extend(content.pending.iter().map(|pending| pending.event.clone()));
                behind.extend(content.started.iter().cloned());
            }
            behind.extend(content.barriers.iter().cloned());
            if matches!(work, Work::Barrier) {
                content.barriers.push(event.clone());
            }
        }
        content.pending.push_back(Pending {
            event,
            wait_list,
            behind,
            work,
        });
        drop(content);
        monitor::changed();
    }

    /// No more commands will come.
    pub fn close(&self) {
        self.content.lock().is_closed = true;
        monitor::changed();
    }

    /// Waits until all that has been enqueued is over.
    ///
    /// # Errors
    /// If the device failed to do any of it, or of what was before and has not been told of. `clFinish` gives its own
    /// error, not the queue's state (OpenCL 1.2, 5.13): once it has told of a failure the queue goes on, and a lost
    /// device fails what comes next too.
    pub fn finish(&self) -> Outcome {
        let content = self.content.lock();
        let pending = content.pending.iter().map(|pending| &pending.event);
        let events: Vec<Arc<Event>> = content.started.iter().chain(pending).cloned().collect();
        let num_told = content.num_told;
        drop(content);
        for event in events {
            // Each command's own error is its event's.
            let _ = event.wait();
        }
        let mut content = self.content.lock();
        content.num_told = content.num_failed;
        if content.num_failed > num_told {
            Err(Status::OUT_OF_RESOURCES)
        } else {
            Ok(())
        }
    }

    /// The thread.
    fn serve(&self) {
        let mut in_stream: VecDeque<InStream> = VecDeque::new();
        loop {
            if let Some(pending) = self.take(in_stream.len()) {
                let (event, work) = (pending.event, pending.work);
                match start_command(self.stream, &event, &pending.wait_list, &work, in_stream.is_empty()) {
                    Ok(Started::Behind(mark)) => in_stream.push_back(InStream { event, mark, work }),
                    Ok(Started::Over) => self.over(&event, work, Ok(())),
                    Err(status) => self.over(&event, work, Err(status)),
                }
            } else if !in_stream.is_empty() {
                self.wait(&mut in_stream);
            } else if monitor::wait_for(|| self.has_ready()) == Next::End {
                break;
            }
        }
        if let Ok(driver) = cuda::driver() {
            // The device may be lost; then the stream is too.
            let _ = driver.destroy_stream(self.stream);
        }
    }

    /// Waits for the first mark in the stream, or for all of it if there is none; what is before it is over.
    fn wait(&self, in_stream: &mut VecDeque<InStream>) {
        let marked = in_stream.iter().position(|started| started.mark.is_some());
        let last = marked.unwrap_or(in_stream.len() - 1);
        let mark = in_stream[last].mark;
        let result = cuda::driver().and_then(|driver| {
            let waited = match mark {
                Some(mark) => driver.wait(mark),
                None => driver.synchronize(self.stream),
            };
            waited.map_err(report)
        });
        for started in in_stream.drain(..=last) {
            self.over(&started.event, started.work, result);
        }
    }

    fn is_ready(&self, pending: &Pending) -> bool {
        let mut all = pending.wait_list.iter().chain(&pending.behind);
        all.all(|event| event.is_over() || event.is_in(self.stream))
    }

    /// Place of the command to start next.
    fn next(&self, content: &Content) -> Option<usize> {
        let eligible = if self.is_out_of_order() { usize::MAX } else { 1 };
        content
            .pending
            .iter()
            .take(eligible)
            .position(|pending| self.is_ready(pending))
    }

    fn has_ready(&self) -> Option<Next> {
        let content = self.content.lock();
        if self.next(&content).is_some() {
            Some(Next::Start)
        } else if content.is_closed && content.pending.is_empty() {
            Some(Next::End)
        } else {
            None
        }
    }

    /// Takes the command to start next, if the stream with `depth` commands can have it.
    fn take(&self, depth: usize) -> Option<Pending> {
        let is_profiled = self.is_profiled.load(Ordering::Relaxed);
        if depth >= DEPTH || (is_profiled && depth > 0) {
            return None;
        }
        let mut content = self.content.lock();
        let at = self.next(&content)?;
        if depth > 0 && content.pending[at].work.makes_wait() {
            return None;
        }
        let pending = content.pending.remove(at)?;
        content.started.push_back(pending.event.clone());
        Some(pending)
    }

    /// Notes that a command is over. What it keeps is kept no longer, as a program may expect that sees it complete.
    fn over(&self, event: &Arc<Event>, work: Work, result: Outcome) {
        drop(work);
        // Before the event: whoever waits for that must not miss it.
        self.content.lock().num_failed += u64::from(result == Err(Status::OUT_OF_RESOURCES));
        event.advance(match result {
            Ok(()) => progress::COMPLETE,
            Err(status) => status.0,
        });
        let mut content = self.content.lock();
        let at = content.started.iter().position(|started| Arc::ptr_eq(started, event));
        let gone = at.and_then(|at| content.started.remove(at));
        drop(content);
        drop(gone);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Start,
    End,
}

impl Work {
    /// True if starting it makes the thread wait until it is over.
    fn makes_wait(&self) -> bool {
        matches!(self, Self::Device(command) if command.makes_wait())
    }
}

/// A command in the stream.
#[derive(Debug)]
struct InStream {
    event: Arc<Event>,
    /// Behind it in the stream, if it is waited for by itself.
    mark: Option<Mark>,
    work: Work,
}

/// What became of a command that was started.
enum Started {
    /// It is in the stream, with a mark behind it if its event is the program's.
    Behind(Option<Mark>),
    /// There was nothing to do.
    Over,
}

/// Gives a command to the stream.
fn start_command(
    stream: Stream,
    event: &Event,
    wait_list: &[Arc<Event>],
    work: &Work,
    is_stream_empty: bool,
) -> Outcome<Started> {
    if wait_list.iter().any(|event| event.status() < 0) {
        return Err(Status::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    }
    let driver = cuda::driver()?;
    event.advance(progress::SUBMITTED);
    event.advance(progress::RUNNING);
    match work {
        Work::Point | Work::Marker | Work::Barrier if is_stream_empty => return Ok(Started::Over),
        Work::Point | Work::Marker | Work::Barrier => {}
        Work::Device(command) => command.start(driver, stream).map_err(report)?,
    }
    let mark = event.is_programs().then(|| driver.mark(stream)).transpose();
    mark.map(Started::Behind).map_err(report)
}

fn report(error: CudaError) -> Status {
    log::failure(&format!("a command failed with CUDA error {}", error.0));
    Status::OUT_OF_RESOURCES
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::pointers::EventFn;

    /// A lane with a command in its stream, and the command.
    fn started(callback: Option<EventFn>) -> (Arc<Lane>, Arc<Event>) {
        let lane = Arc::new(Lane {
            stream: Stream::of_tests(),
            is_out_of_order: AtomicBool::new(false),
            is_profiled: AtomicBool::new(false),
            content: Mutex::default(),
        });
        let event = Event::of_tests(callback);
        lane.content.lock().started.push_back(event.clone());
        (lane, event)
    }

    static LANE: OnceLock<Arc<Lane>> = OnceLock::new();
    static SEEN: OnceLock<Outcome> = OnceLock::new();

    extern "C" fn look(_event: usize, _status: i32, _data: usize) {
        SEEN.get_or_init(|| LANE.get().unwrap().finish());
    }

    #[test]
    fn a_failure_is_known_before_its_event_is_over() {
        let (lane, event) = started(Some(look));
        LANE.set(lane.clone()).unwrap();
        lane.over(&event, Work::Point, Err(Status::OUT_OF_RESOURCES));
        assert_eq!(SEEN.get(), Some(&Err(Status::OUT_OF_RESOURCES)));
    }

    #[test]
    fn a_failure_is_told_once() {
        let (lane, event) = started(None);
        lane.over(&event, Work::Point, Err(Status::OUT_OF_RESOURCES));
        assert_eq!(lane.finish(), Err(Status::OUT_OF_RESOURCES));
        assert_eq!(lane.finish(), Ok(()));
        // What another command's failure does to one is its event's affair.
        lane.over(
            &event,
            Work::Point,
            Err(Status::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        );
        assert_eq!(lane.finish(), Ok(()));
        lane.over(&event, Work::Point, Err(Status::OUT_OF_RESOURCES));
        assert_eq!(lane.finish(), Err(Status::OUT_OF_RESOURCES));
    }
}
