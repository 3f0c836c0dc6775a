//! One place to wait at: whatever changes (a command's status, a queue's content) wakes all who wait for something.

use std::sync::{Condvar, Mutex, PoisonError};

static CHANGING: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// Waits until `what` gives something. It is asked again after each change, and must not wait itself.
pub fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let mut guard = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(found) = what() {
            return found;
        }
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Says that something has changed. To be called without locks that a waiting question takes.
pub fn changed() {
    // Whoever is between its question and its sleep holds this.
    drop(CHANGING.lock().unwrap_or_else(PoisonError::into_inner));
    CHANGED.notify_all();
}
