//! What handles stand for, besides libraries and kernels.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use hetckpt_ring::command::{EventId, StreamId};

use crate::handles::Handle;

/// A context. There is one device, so all contexts share its memory; they differ in handle and settings.
#[derive(Debug)]
pub struct Context {
    /// Flags given when it was made.
    pub flags: Mutex<u32>,
    /// True for the primary context.
    pub is_primary: bool,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Number in the ring.
    pub id: StreamId,
    /// Flags given when it was made.
    pub flags: u32,
    /// Priority.
    pub priority: i32,
    /// Context it belongs to.
    pub context: Handle,
    /// Generation of the device state it belongs to.
    pub generation: u64,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Number in the ring.
    pub id: EventId,
    /// False: made with `CU_EVENT_DISABLE_TIMING`.
    pub timing: bool,
    /// True once recorded.
    pub is_recorded: AtomicBool,
    /// Generation of the device state it belongs to.
    pub generation: u64,
}
