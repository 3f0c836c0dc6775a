//! The thread that reads the ring.

use std::sync::Arc;

use hetckpt_ring::consumer::Consumer;

use crate::commands;
use crate::cuda_result;
use crate::error::ServerError;
use crate::queues::Reading;
use crate::session::Session;

/// Starts it.
///
/// # Errors
/// [`ServerError::Os`].
pub fn start(session: &Arc<Session>, consumer: Consumer) -> Result<(), ServerError> {
    let session = Arc::clone(session);
    let spawned = std::thread::Builder::new()
        .name("ring".to_owned())
        .spawn(move || read(&session, consumer));
    spawned.map(drop).map_err(|source| ServerError::Os {
        call: "thread creation",
        source,
    })
}

fn read(session: &Arc<Session>, mut consumer: Consumer) {
    loop {
        loop {
            match consumer.take() {
                Ok(Some(envelope)) => commands::handle(session, envelope),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "the ring is spoiled; the application gets errors from now on");
                    session.set_fault(cuda_result::UNKNOWN);
                    return;
                }
            }
        }
        let mut queues = session.queues.lock();
        if queues.reading == Reading::Stop {
            queues.reading = Reading::Stopped;
            session.changed.notify_all();
            while queues.reading == Reading::Stopped {
                session.changed.wait(&mut queues);
            }
            continue;
        }
        drop(queues);
        consumer.wait(None);
    }
}
