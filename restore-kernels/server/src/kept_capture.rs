//! A capture whose memory is written while the application goes on: device memory is kept as it was.

use std::sync::Arc;

use hetckpt_devices::device::{MemoryView, PlannedView};

use crate::capture::{Captured, Commands, Taken, begin};
use crate::error::ServerError;
use crate::session::Session;
use crate::state_output::Folder;

/// A state that is to be written.
pub struct KeptCapture {
    /// The connection that asks for it.
    pub of: u64,
    taken: Taken,
    view: Box<dyn MemoryView>,
    output: Folder,
}

/// What a capture has come to.
pub enum Outcome {
    /// All is written.
    Written(Captured),
    /// All that is not memory is known: this is what will be written.
    Kept(Captured, Box<KeptCapture>),
}

/// Writes the state of the application to `output`, or keeps it for the connection that wants it later, if the device
/// can. The pause must be held.
///
/// # Errors
/// [`ServerError`]; files may be left behind, the application can go on.
pub fn capture(session: &Arc<Session>, mut output: Folder) -> Result<Outcome, ServerError> {
    let taken = begin(session, Commands::TakenIn)?;
    if let Some((of, planned)) = output.take_planned() {
        match planned.make(&taken.mapped()) {
            Ok(Some(view)) => {
                let announced = taken.announced();
                let kept = KeptCapture {
                    of,
                    taken,
                    view,
                    output,
                };
                return Ok(Outcome::Kept(announced, Box::new(kept)));
            }
            Ok(None) => no_room(),
            Err(error) => tracing::warn!(%error, "memory is written at once"),
        }
    }
    let written = taken.write(&output, |addr, bytes| session.device.read(addr, bytes))?;
    Ok(Outcome::Written(written))
}

/// Has the device begin to keep memory as it is, while the application still runs. None, and a word about it, if it
/// cannot.
pub fn plan(session: &Session) -> Option<Box<dyn PlannedView>> {
    let size_bytes = session.memory.lock().mapped_bytes();
    let planned = session.device.plan_view(size_bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "memory cannot be kept");
        None
    });
    if planned.is_none() {
        no_room();
    }
    planned
}

fn no_room() {
    tracing::info!("memory is written at once: the device cannot keep it as it is");
}

impl KeptCapture {
    /// Writes it.
    ///
    /// # Errors
    /// [`ServerError`]; files may be left behind.
    pub fn write(self) -> Result<Captured, ServerError> {
        self.taken
            .write(&self.output, |addr, bytes| self.view.read(addr, bytes))
    }
}
