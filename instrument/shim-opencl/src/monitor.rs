//! One place to wait at: whatever changes (a command's status, a queue's content) wakes all who wait for something.

use parking_lot::{Condvar, Mutex};

static CHANGING: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// Waits until `what` gives something. It is asked again after each change, and must not wait itself.
pub fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let mut guard = CHANGING.lock();
    loop {
        if let Some(found) = what() {
            return found;
        }
        CHANGED.wait(&mut guard);
    }
}

/// Says that something has changed. To be called without locks that a waiting question takes.
pub fn changed() {
    // Whoever is between its question and its sleep holds this.
    drop(CHANGING.lock());
    CHANGED.notify_all();
}
