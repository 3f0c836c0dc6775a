//! Waiting for a server that may take long, but not for one that hangs: CRIU holds the program frozen meanwhile.
//!
//! To write or read tens of gigabytes takes minutes, so what counts is not the time but signs of life: the server's processor time, and
//! the bytes that it has read and written.

use std::time::{Duration, Instant};

use hetckpt_ring::control_socket::ControlSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Seconds that a server may show no sign of life, in CRIU's environment.
const VARIABLE: &str = "HETCKPT_SILENCE_LIMIT";
/// The same where it is missing.
const LIMIT: Duration = Duration::from_secs(60);
/// Milliseconds between two looks.
const INTERVAL_MS: u16 = 500;

/// Waits until `socket` has an answer or the other end has closed. Fails if the server, process `server`, shows no sign of life for too
/// long.
pub fn wait_for_answer(socket: &ControlSocket, server: Option<u32>) -> Result<(), String> {
    let limit = limit(std::env::var(VARIABLE).ok().as_deref());
    let mut silence = Silence::new(server.and_then(signs_of));
    loop {
        let mut polled = [PollFd::new(socket.as_stream().as_fd(), PollFlags::POLLIN)];
        // A signal is CRIU's own time limit.
        match poll(&mut polled, PollTimeout::from(INTERVAL_MS)) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(format!("it was waited for until a signal came ({error})")),
        }
        let silent = silence.lasts(server.and_then(signs_of));
        if let Some(server) = server.filter(|_| silent >= limit) {
            return Err(format!(
                "process {server} has done nothing for {} s: it hangs, or is stopped",
                limit.as_secs()
            ));
        }
    }
}

fn limit(text: Option<&str>) -> Duration {
    let seconds = text.and_then(|text| text.parse().ok()).filter(|&seconds| seconds > 0);
    seconds.map_or(LIMIT, Duration::from_secs)
}

/// What grows while a process does something: ticks of processor time, bytes read and written.
type Signs = [u64; 3];

/// For how long there has been no sign of life.
struct Silence {
    last: Option<Signs>,
    since: Instant,
}

impl Silence {
    fn new(signs: Option<Signs>) -> Self {
        Self {
            last: signs,
            since: Instant::now(),
        }
    }

    /// Where nothing can be told, there is no silence.
    fn lasts(&mut self, signs: Option<Signs>) -> Duration {
        if signs.is_none() || signs != self.last {
            *self = Self::new(signs);
        }
        self.since.elapsed()
    }
}

fn signs_of(pid: u32) -> Option<Signs> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
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
        let mut silence = Silence::new(Some([1, 2, 3]));
        silence.since = Instant::now().checked_sub(LIMIT).unwrap();
        assert!(silence.lasts(Some([1, 2, 3])) >= LIMIT);
        assert!(silence.lasts(Some([1, 2, 4])) < LIMIT);
        silence.since = Instant::now().checked_sub(LIMIT).unwrap();
        assert!(silence.lasts(None) < LIMIT);
    }

    #[test]
    fn who_works_is_told_from_who_sleeps() {
        let (busy, idle) = (Shell::of("while :; do :; done"), Shell::of("exec sleep 1000"));
        let first = signs_of(busy.0.id()).unwrap();
        let started = Instant::now();
        while signs_of(busy.0.id()).unwrap() == first {
            assert!(started.elapsed() < LIMIT, "it does nothing");
        }
        // Once it has become what it is, nothing changes any more.
        let mut last = signs_of(idle.0.id());
        let mut silence = Silence::new(last);
        while silence.lasts(last) < Duration::from_secs(1) {
            assert!(started.elapsed() < LIMIT, "it does something");
            std::thread::sleep(Duration::from_millis(50));
            last = signs_of(idle.0.id());
        }
    }

    #[test]
    fn an_answer_is_not_waited_for_longer() {
        let (one, other) = UnixStream::pair().unwrap();
        let socket = ControlSocket::new(one);
        drop(other);
        wait_for_answer(&socket, Some(std::process::id())).unwrap();
    }

    #[test]
    fn limit_is_a_positive_number_of_seconds() {
        for (text, seconds) in [(Some("7"), 7), (Some("0"), 60), (Some("soon"), 60), (None, 60)] {
            assert_eq!(limit(text).as_secs(), seconds, "{text:?}");
        }
    }
}
