//! What takes long and belongs to no stream: loading a module, and building a kernel that is only asked about. A thread
//! of its own does it, so that what other threads of the application want does not wait for it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::session::Session;

/// Does `work` beside the ring's reader. Until it is done, the reader does not stop for a capture: the state has what
/// the application is to be answered.
pub fn start(session: &Arc<Session>, work: impl FnOnce(&Session) + Send + 'static) {
    session.queues.lock().num_aside += 1;
    let (running, work) = (Running(Arc::clone(session)), Arc::new(Mutex::new(Some(work))));
    let mine = Arc::clone(&work);
    let spawned = std::thread::Builder::new().name("aside".to_owned()).spawn(move || {
        let work = mine.lock().take();
        work.into_iter().for_each(|work| work(&running.0));
    });
    if let Err(error) = spawned {
        tracing::debug!(%error, "no thread for what takes long");
        let work = work.lock().take();
        work.into_iter().for_each(|work| work(session));
    }
}

/// One that has not ended.
struct Running(Arc<Session>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.queues.lock().num_aside -= 1;
        self.0.changed.notify_all();
    }
}
