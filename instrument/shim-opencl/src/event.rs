//! Events: how far a command is. User events are commands that the program itself completes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::context::{Context, check_same};
use crate::cuda::Stream;
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::monitor;
use crate::pointers::{Callback, EventFn, In, Out};
use crate::status::{Outcome, Status};

entry_points! {
    status clWaitForEvents(count: u32, events: In<Handle>) => wait_for_events;
    status clGetEventInfo(event: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    object clCreateUserEvent(context: Handle) => create_user_event;
    status clSetUserEventStatus(event: Handle, status: i32) => set_user_event_status;
    status clRetainEvent(event: Handle) => handles::retain::<Event>;
    status clReleaseEvent(event: Handle) => handles::release::<Event>;
    status clSetEventCallback(event: Handle, when: i32, function: Option<EventFn>, data: usize) => set_callback;
    status clGetEventProfilingInfo(event: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => profile;
}

/// Numbers of a command's execution status.
pub mod progress {
    /// Done.
    pub const COMPLETE: i32 = 0;
    /// On the device.
    pub const RUNNING: i32 = 1;
    /// Given to the device.
    pub const SUBMITTED: i32 = 2;
    /// Waits in its queue.
    pub const QUEUED: i32 = 3;
}

/// `CL_COMMAND_USER`.
const USER_COMMAND: u32 = 0x1204;

mod name {
    pub const COMMAND_QUEUE: u32 = 0x11D0;
    pub const COMMAND_TYPE: u32 = 0x11D1;
    pub const REFERENCE_COUNT: u32 = 0x11D2;
    pub const STATUS: u32 = 0x11D3;
    pub const CONTEXT: u32 = 0x11D4;
    pub const PROFILING_QUEUED: u32 = 0x1280;
    pub const PROFILING_END: u32 = 0x1283;
}

/// What an event knows of its command's queue.
#[derive(Clone, Debug)]
pub struct QueueRef {
    /// Its context.
    pub context: Arc<Context>,
    /// Its handle.
    pub handle: Handle,
    /// The stream that its commands go into.
    pub stream: Stream,
    /// True if its commands' times are asked for.
    pub is_profiled: bool,
    /// The queue itself, which must last as long as its events.
    pub _keep: Arc<dyn Any + Send + Sync>,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    identity: Identity,
    /// Its context.
    pub context: Arc<Context>,
    queue: Option<QueueRef>,
    command_type: u32,
    is_programs: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: i32,
    callbacks: Vec<(i32, Callback<EventFn>)>,
    /// When it got to be queued, submitted, running, complete; ns.
    times: [u64; 4],
}

handles::object!(Event, INVALID_EVENT);

/// Nanoseconds that never go back, also where a program is restored on a machine whose clock is behind.
fn now() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
    LAST.fetch_max(now, Ordering::Relaxed).max(now)
}

/// Place of a status in the list of times.
fn place(status: i32) -> usize {
    match status {
        progress::QUEUED.. => 0,
        progress::SUBMITTED => 1,
        progress::RUNNING => 2,
        _ => 3,
    }
}

impl Event {
    /// The event of a command; the program holds it if `is_wanted`.
    pub fn of_command(queue: QueueRef, command_type: u32, is_wanted: bool) -> Arc<Self> {
        handles::add(u32::from(is_wanted), |identity| Self {
            identity,
            context: queue.context.clone(),
            queue: Some(queue),
            command_type,
            is_programs: is_wanted,
            state: Mutex::new(State::new(progress::QUEUED)),
        })
    }

    /// One that is no queue's, with a callback for its end.
    #[cfg(test)]
    pub fn of_tests(callback: Option<EventFn>) -> Arc<Self> {
        let mut state = State::new(progress::QUEUED);
        let at_end = |function| (progress::COMPLETE, Callback { function, data: 0 });
        state.callbacks.extend(callback.map(at_end));
        handles::add(0, |identity| Self {
            identity,
            context: Context::of_tests(),
            queue: None,
            command_type: USER_COMMAND,
            is_programs: false,
            state: Mutex::new(state),
        })
    }

    /// True if the program was given it: only then anyone can tell when exactly it is complete.
    pub fn is_programs(&self) -> bool {
        self.is_programs
    }

    /// Its status; negative is an error.
    pub fn status(&self) -> i32 {
        self.state.lock().status
    }

    /// True once it will not change any more.
    pub fn is_over(&self) -> bool {
        self.status() <= progress::COMPLETE
    }

    /// True if it is a command that is in `stream` already.
    pub fn is_in(&self, stream: Stream) -> bool {
        let is_same = self.queue.as_ref().is_some_and(|queue| queue.stream == stream);
        is_same && self.status() == progress::RUNNING
    }

    /// Brings it to `status` and tells whoever wants to know.
    pub fn advance(&self, status: i32) {
        let mut state = self.state.lock();
        if state.status <= progress::COMPLETE {
            return;
        }
        for at in place(state.status) + 1..=place(status) {
            state.times[at] = now();
        }
        state.status = status;
        let (due, rest) = std::mem::take(&mut state.callbacks)
            .into_iter()
            .partition(|&(when, _)| status <= when);
        state.callbacks = rest;
        drop(state);
        if status <= progress::COMPLETE {
            monitor::changed();
        }
        self.call(due);
    }

    fn call(&self, due: Vec<(i32, Callback<EventFn>)>) {
        for (when, callback) in due {
            let status = self.status();
            // An error is told as it is.
            callback.call(self.handle().0, if status < 0 { status } else { when });
        }
    }

    /// Waits until it is over; gives its error, if it has one.
    pub fn wait(&self) -> Outcome {
        let status = monitor::wait_for(|| self.is_over().then(|| self.status()));
        if status < 0 { Err(Status(status)) } else { Ok(()) }
    }
}

impl State {
    fn new(status: i32) -> Self {
        let mut times = [0; 4];
        times[0] = now();
        Self {
            status,
            callbacks: Vec::new(),
            times,
        }
    }
}

/// The events of a wait list of a command in `context`.
pub fn wait_list(context: &Arc<Context>, count: u32, events: In<Handle>) -> Outcome<Vec<Arc<Event>>> {
    let invalid = Status::INVALID_EVENT_WAIT_LIST;
    if (count == 0) != events.is_null() {
        return Err(invalid);
    }
    let events = handles::get_all::<Event>(&events.all(count as usize)?).map_err(|_| invalid)?;
    events
        .iter()
        .try_for_each(|event| check_same(context, &event.context))?;
    Ok(events)
}

fn wait_for_events(count: u32, events: In<Handle>) -> Outcome {
    if count == 0 || events.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let events = handles::get_all::<Event>(&events.all(count as usize)?)?;
    for pair in events.windows(2) {
        check_same(&pair[0].context, &pair[1].context)?;
    }
    let mut outcome = Ok(());
    for event in events {
        if event.wait().is_err() {
            outcome = Err(Status::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        }
    }
    outcome
}

fn create_user_event(context: Handle) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    let event = handles::add(1, |identity| Event {
        identity,
        context,
        queue: None,
        command_type: USER_COMMAND,
        is_programs: true,
        state: Mutex::new(State::new(progress::SUBMITTED)),
    });
    Ok(event.handle())
}

fn set_user_event_status(event: Handle, status: i32) -> Outcome {
    let event = handles::get::<Event>(event)?;
    if event.command_type != USER_COMMAND {
        return Err(Status::INVALID_EVENT);
    }
    if status > progress::COMPLETE {
        return Err(Status::INVALID_VALUE);
    }
    if event.is_over() {
        return Err(Status::INVALID_OPERATION);
    }
    event.advance(status);
    Ok(())
}

fn set_callback(event: Handle, when: i32, function: Option<EventFn>, data: usize) -> Outcome {
    let event = handles::get::<Event>(event)?;
    let function = function.ok_or(Status::INVALID_VALUE)?;
    if !(progress::COMPLETE..=progress::SUBMITTED).contains(&when) {
        return Err(Status::INVALID_VALUE);
    }
    let callback = Callback { function, data };
    let mut state = event.state.lock();
    if state.status <= when {
        drop(state);
        event.call(vec![(when, callback)]);
    } else {
        state.callbacks.push((when, callback));
    }
    Ok(())
}

fn info(event: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let event = handles::get::<Event>(event)?;
    let found = match name {
        name::COMMAND_QUEUE => bytes(event.queue.as_ref().map_or(Handle::NULL, |queue| queue.handle)),
        name::COMMAND_TYPE => bytes(event.command_type),
        name::REFERENCE_COUNT => bytes(handles::count::<Event>(event.handle())),
        name::STATUS => bytes(event.status()),
        name::CONTEXT => bytes(event.context.handle()),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

fn profile(event: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let event = handles::get::<Event>(event)?;
    if !(name::PROFILING_QUEUED..=name::PROFILING_END).contains(&name) {
        return Err(Status::INVALID_VALUE);
    }
    let state = event.state.lock();
    let is_profiled = event.queue.as_ref().is_some_and(|queue| queue.is_profiled);
    if !is_profiled || state.status != progress::COMPLETE {
        return Err(Status::PROFILING_INFO_NOT_AVAILABLE);
    }
    let time = state.times[(name - name::PROFILING_QUEUED) as usize];
    Query { room, value, size }.give(time)
}
