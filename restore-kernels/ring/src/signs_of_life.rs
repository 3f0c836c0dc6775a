//! Telling a process that takes long from one that hangs. To write or read tens of gigabytes takes minutes, so what
//! counts is not the time but signs of life: processor time, and bytes read and written, of the process and of its
//! children.

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Seconds that a process may show no sign of life, in the environment of whoever waits for it.
const VARIABLE: &str = "HETCKPT_SILENCE_LIMIT";
/// The same where it is missing.
const LIMIT: Duration = Duration::from_secs(60);
/// Milliseconds between two looks.
const INTERVAL_MS: u16 = 500;

/// What grows while a process does something: ticks of processor time, bytes read and written.
type Signs = [u64; 3];

/// For how long a process has shown no sign of life.
#[derive(Debug)]
pub struct Silence {
    pid: Option<u32>,
    limit: Duration,
    last: Option<Signs>,
    since: Instant,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The process has shown no sign of life for too long.
    #[error("process {pid} has done nothing for {seconds} s: it hangs, or is stopped")]
    Silent {
        /// The process.
        pid: u32,
        /// The limit.
        seconds: u64,
    },
    /// A signal came, which may mean something to whoever waits.
    #[error("it was waited for until a signal came")]
    Signal,
    /// The descriptor cannot be waited for.
    #[error("it cannot be waited for: {0}")]
    Poll(Errno),
}

impl Silence {
    /// Begins to watch process `pid`; without one, whoever waits waits for ever.
    #[must_use]
    pub fn of(pid: Option<u32>) -> Self {
        Self {
            pid,
            limit: limit(std::env::var(VARIABLE).ok().as_deref()),
            last: pid.and_then(signs_of),
            since: Instant::now(),
        }
    }

    /// Waits until `descriptor` can be read, or its other end has been closed, while the process behind it shows signs
    /// of life.
    ///
    /// # Errors
    /// [`WaitError`]; after [`WaitError::Signal`] it can be waited on.
    pub fn wait_to_read(&mut self, descriptor: impl AsFd) -> Result<(), WaitError> {
        self.wait_to_read_unless(descriptor, &|| false)
    }

    /// As [`Self::wait_to_read`], until `gives_up` says so, which counts as a signal.
    ///
    /// # Errors
    /// As [`Self::wait_to_read`].
    pub fn wait_to_read_unless(&mut self, descriptor: impl AsFd, gives_up: &dyn Fn() -> bool) -> Result<(), WaitError> {
        loop {
            let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::from(INTERVAL_MS)) {
                Ok(0) if gives_up() => return Err(WaitError::Signal),
                Ok(0) => self.look()?,
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => return Err(WaitError::Signal),
                Err(error) => return Err(WaitError::Poll(error)),
            }
        }
    }

    /// Looks whether the process does something. Where nothing can be told, there is no silence.
    fn look(&mut self) -> Result<(), WaitError> {
        self.hear(self.pid.and_then(signs_of));
        match self.pid {
            Some(pid) if self.since.elapsed() >= self.limit => Err(WaitError::Silent {
                pid,
                seconds: self.limit.as_secs(),
            }),
            _ => Ok(()),
        }
    }

    fn hear(&mut self, signs: Option<Signs>) {
        if signs.is_none() || signs != self.last {
            (self.last, self.since) = (signs, Instant::now());
        }
    }
}

fn limit(text: Option<&str>) -> Duration {
    let seconds = text.and_then(|text| text.parse().ok()).filter(|&seconds| seconds > 0);
    seconds.map_or(LIMIT, Duration::from_secs)
}

/// Those of process `pid` and of its children, who may do its work.
fn signs_of(pid: u32) -> Option<Signs> {
    let mut sum = own_signs(pid)?;
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    for list in children {
        for child in list
            .split_whitespace()
            .filter_map(|child| own_signs(child.parse().ok()?))
        {
            sum.iter_mut()
                .zip(child)
                .for_each(|(sum, sign)| *sum = sum.wrapping_add(sign));
        }
    }
    Some(sum)
}

fn own_signs(pid: u32) -> Option<Signs> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let stat = read("stat")?;
    // The name, in parentheses, may hold anything; `utime` and `stime` are the 14th and the 15th field.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks = rest.split(' ').skip(11).take(2);
    let ticks = ticks.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    let io = read("io").unwrap_or_default();
    let bytes = |name: &str| {
        let mut lines = io.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .unwrap_or(0)
    };
    Some([ticks, bytes("rchar:"), bytes("wchar:")])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command};

    use super::*;

    struct Shell(Child);

    impl Shell {
        fn of(script: &str) -> Self {
            Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn signs_of_life_end_silence() {
        let mut silence = Silence {
            pid: None,
            limit: LIMIT,
            last: Some([1, 2, 3]),
            since: Instant::now().checked_sub(LIMIT).unwrap(),
        };
        silence.hear(Some([1, 2, 3]));
        assert!(silence.since.elapsed() >= LIMIT);
        for signs in [Some([1, 2, 4]), None] {
            silence.since = Instant::now().checked_sub(LIMIT).unwrap();
            silence.hear(signs);
            assert!(silence.since.elapsed() < LIMIT);
        }
    }

    #[test]
    fn who_works_is_told_from_who_sleeps() {
        let (busy, idle) = (Shell::of("while :; do :; done"), Shell::of("exec sleep 1000"));
        let first = signs_of(busy.0.id()).unwrap();
        let started = Instant::now();
        while signs_of(busy.0.id()).unwrap() == first {
            assert!(started.elapsed() < LIMIT, "it does nothing");
        }
        let mut silence = Silence::of(Some(idle.0.id()));
        silence.limit = Duration::from_secs(1);
        let (ours, other) = UnixStream::pair().unwrap();
        let error = silence.wait_to_read(&ours).unwrap_err();
        assert!(
            matches!(error, WaitError::Silent { pid, .. } if pid == idle.0.id()),
            "{error}"
        );
        drop(other);
        silence.wait_to_read(&ours).unwrap();
    }

    #[test]
    fn who_waits_for_a_child_that_works_is_not_silent() {
        let parent = Shell::of("sh -c 'trap exit TERM; while kill -0 $PPID 2>/dev/null; do :; done'; :");
        let started = Instant::now();
        let own = || own_signs(parent.0.id()).unwrap();
        let (mut last, mut same_for) = (own(), Instant::now());
        while same_for.elapsed() < Duration::from_millis(500) {
            assert!(started.elapsed() < LIMIT, "it does something itself");
            if own() != last {
                (last, same_for) = (own(), Instant::now());
            }
        }
        let first = signs_of(parent.0.id()).unwrap();
        while signs_of(parent.0.id()).unwrap() == first {
            assert!(started.elapsed() < LIMIT, "its child does nothing");
        }
    }

    #[test]
    fn limit_is_a_positive_number_of_seconds() {
        for (text, seconds) in [(Some("7"), 7), (Some("0"), 60), (Some("soon"), 60), (None, 60)] {
            assert_eq!(limit(text).as_secs(), seconds, "{text:?}");
        }
    }
}
