//! What whoever waits for a transfer sees of it, and how it ends it.

use crate::error::StoreError;

/// Somebody who waits.
pub struct Watch<'a> {
    progress: &'a mut dyn FnMut(u64),
    is_interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Watch<'a> {
    /// `progress` is told how many bytes are done. The transfer ends when `is_interrupted`, which is asked several
    /// times a second.
    pub fn new(progress: &'a mut dyn FnMut(u64), is_interrupted: &'a dyn Fn() -> bool) -> Self {
        Self {
            progress,
            is_interrupted,
        }
    }

    /// `bytes` in all are done.
    ///
    /// # Errors
    /// [`StoreError::Interrupted`].
    pub(crate) fn done(&mut self, bytes: u64) -> Result<(), StoreError> {
        (self.progress)(bytes);
        self.look()
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`StoreError::Interrupted`].
    pub(crate) fn look(&self) -> Result<(), StoreError> {
        match (self.is_interrupted)() {
            true => Err(StoreError::Interrupted),
            false => Ok(()),
        }
    }
}

/// Runs `with` a watch that nobody looks at.
pub fn unwatched<T>(with: impl FnOnce(&mut Watch<'_>) -> T) -> T {
    with(&mut Watch::new(&mut |_| {}, &|| false))
}
