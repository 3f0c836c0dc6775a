//! Waiting for a server that may take long, but not for one that hangs: CRIU holds the program frozen meanwhile.

use std::os::fd::AsFd;

use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::silence::Silence;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Milliseconds between two looks.
const INTERVAL_MS: u16 = 500;

/// Waits until `socket` has an answer or the other end has closed. Fails if the server, process `server`, shows no sign of life for too
/// long.
pub fn wait_for_answer(socket: &ControlSocket, server: Option<u32>) -> Result<(), String> {
    let mut silence = server.map(Silence::of);
    loop {
        let mut polled = [PollFd::new(socket.as_stream().as_fd(), PollFlags::POLLIN)];
        // A signal is CRIU's own time limit.
        match poll(&mut polled, PollTimeout::from(INTERVAL_MS)) {
            Ok(0) => silence.as_mut().map_or(Ok(()), Silence::look)?,
            Ok(_) => return Ok(()),
            Err(error) => return Err(format!("it was waited for until a signal came ({error})")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_answer_is_not_waited_for_longer() {
        let (one, other) = UnixStream::pair().unwrap();
        let socket = ControlSocket::new(one);
        drop(other);
        wait_for_answer(&socket, Some(std::process::id())).unwrap();
    }
}
