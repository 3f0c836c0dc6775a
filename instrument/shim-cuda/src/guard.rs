//! What every entry point goes through: it catches panics, checks that the library may be called, and makes a
//! `CUresult` of what comes out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hetckpt_ring::command::{Command, DeviceIndex, StreamFlags, StreamId};

use crate::handles::Handle;
use crate::log;
use crate::result::{CuResult, Outcome};
use crate::session::{self, Session};
use crate::thread_state;

/// What stream 0 means to an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's own (`_ptds` and `_ptsz` entry points).
    PerThread,
}

/// The library initialised, with a current context in the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Current {
    /// The session.
    pub session: &'static Session,
    /// The thread's current context.
    pub context: Handle,
    /// What stream 0 means.
    pub default_stream: DefaultStream,
}

const LEGACY: Handle = Handle(1);
const PER_THREAD: Handle = Handle(2);

impl Current {
    /// The stream behind a handle.
    pub fn stream(&self, handle: Handle) -> Outcome<StreamId> {
        let handle = match (handle, self.default_stream) {
            (Handle::NULL, DefaultStream::Legacy) => LEGACY,
            (Handle::NULL, DefaultStream::PerThread) => PER_THREAD,
            (other, _) => other,
        };
        match handle {
            LEGACY => Ok(StreamId::LEGACY_DEFAULT),
            PER_THREAD => self.per_thread_stream(),
            other => {
                let stream = self.session.streams.get(other).ok_or(CuResult::INVALID_HANDLE)?;
                if stream.generation == self.session.device.generation() {
                    Ok(stream.id)
                } else {
                    Err(CuResult::INVALID_HANDLE)
                }
            }
        }
    }

    /// The stream that calls without a stream argument use.
    pub fn default_stream(&self) -> Outcome<StreamId> {
        self.stream(Handle::NULL)
    }

    fn per_thread_stream(&self) -> Outcome<StreamId> {
        thread_state::default_stream(self.session.device.generation(), || {
            let stream = StreamId(self.session.device.next_id());
            self.session.device.send(Command::StreamCreate {
                device: DeviceIndex::FIRST,
                stream,
                flags: StreamFlags::default(),
            })?;
            Ok(stream.0)
        })
        .map(StreamId)
    }
}

/// Entry points that work before `cuInit`.
pub fn plain(name: &'static str, body: impl FnOnce(()) -> Outcome) -> CuResult {
    run(name, || body(()))
}

/// Entry points that need `cuInit`.
pub fn device(name: &'static str, body: impl FnOnce(&'static Session) -> Outcome) -> CuResult {
    run(name, || body(session::get()?))
}

/// Entry points that need `cuInit` and a working device, but no current context.
pub fn working(name: &'static str, body: impl FnOnce(&'static Session) -> Outcome) -> CuResult {
    run(name, || {
        let session = session::get()?;
        session.check_fault()?;
        body(session)
    })
}

/// Entry points that need a current context and a working device.
pub fn context(name: &'static str, default_stream: DefaultStream, body: impl FnOnce(Current) -> Outcome) -> CuResult {
    run(name, || {
        let session = session::get()?;
        session.check_fault()?;
        let context = thread_state::current_context();
        if context == Handle::NULL {
            return Err(CuResult::INVALID_CONTEXT);
        }
        body(Current {
            session,
            context,
            default_stream,
        })
    })
}

/// Entry points that exist only by name.
pub fn not_implemented(name: &'static str) -> CuResult {
    run(name, || Err(CuResult::NOT_SUPPORTED))
}

fn run(name: &'static str, body: impl FnOnce() -> Outcome) -> CuResult {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CuResult::SUCCESS,
        Ok(Err(result)) => {
            if result == CuResult::NOT_SUPPORTED {
                log::not_implemented(name);
            }
            log::refused(name, result);
            result
        }
        Err(_) => {
            log::failure(&format!("{name} failed: a bug in hetckpt"));
            CuResult::UNKNOWN
        }
    }
}
