//! Renews the claim on a job, on a thread of its own: whatever else is waited for, a dump, a restore or a long upload,
//! and whether or not the store answers.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use hetckpt_store::claim::ClaimGuard;
use hetckpt_store::error::StoreError;

/// How often the store is given a sign of life.
const INTERVAL: Duration = Duration::from_secs(15);

/// How long the job's end waits for the store to hear of it. One that does not finds the claim stale later.
const GIVING_UP: Duration = Duration::from_secs(3);

/// The claim, which is given up when this is dropped.
pub struct Renewing {
    stop: Option<Sender<()>>,
    thread: JoinHandle<()>,
    lost: Arc<OnceLock<String>>,
}

impl Renewing {
    /// Renews `claim` from now on.
    pub fn start(claim: ClaimGuard<'static>) -> io::Result<Self> {
        Self::start_with(claim, INTERVAL)
    }

    fn start_with(mut claim: ClaimGuard<'static>, interval: Duration) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        let renew = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // With other errors the next one may get through.
                if let Err(error @ (StoreError::Claimed { .. } | StoreError::ClaimLost { .. })) = claim.renew() {
                    // Nobody else sets it.
                    let _ = told.set(error.to_string());
                    return;
                }
            }
        };
        Ok(Self {
            stop: Some(stop),
            thread: Builder::new().name("renewing".to_owned()).spawn(renew)?,
            lost,
        })
    }

    /// Who has the job, if another run has it.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.stop = None;
        let until = Instant::now() + GIVING_UP;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_store::claim::Claim;
    use hetckpt_store::store::Store;

    use super::*;

    fn claim(run: u64) -> Claim {
        Claim {
            host: "n".to_owned(),
            pid: 1,
            run,
        }
    }

    #[test]
    fn whoever_has_lost_the_job_learns_it_and_who_has_not_gives_it_up() {
        let folder = tempfile::tempdir().unwrap();
        let store: &'static Store = Box::leak(Box::new(Store::open(folder.path().to_str().unwrap(), None).unwrap()));
        let job = "a".parse().unwrap();
        let first = Renewing::start_with(store.claim(&job, &claim(0)).unwrap(), Duration::from_millis(10)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(first.lost(), None);
        // A later run takes it.
        let second = Renewing::start_with(store.claim(&job, &claim(1)).unwrap(), Duration::from_millis(10)).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while first.lost().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(first.lost().is_some() && second.lost().is_none());
        drop(first);
        assert!(store.claim(&job, &claim(1)).is_err());
        drop(second);
        store.claim(&job, &claim(1)).unwrap();
    }
}
