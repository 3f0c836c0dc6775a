//! At the beginning of a dump: whoever runs CRIU may want to stop kernels only now, when CRIU has made itself ready.

#![allow(unsafe_code, reason = "a descriptor that is given by number")]

use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::net::UnixStream;

use hetckpt_ring::message::GO_AHEAD_ENV;

use crate::error::PluginError;

/// Waits until the dump may begin.
pub fn wait() -> Result<(), PluginError> {
    let Some(number) = std::env::var(GO_AHEAD_ENV)
        .ok()
        .and_then(|text| text.parse::<RawFd>().ok())
    else {
        return Ok(());
    };
    // One CRIU process may do several dumps; this is for the first one.
    // SAFETY: CRIU calls hooks of this stage while it has one thread.
    unsafe { std::env::remove_var(GO_AHEAD_ENV) };
    // SAFETY: whoever has set the variable has left the descriptor to this process, in which nobody else knows of it.
    let mut socket = unsafe { UnixStream::from_raw_fd(number) };
    let answer = socket.write_all(b"?").and_then(|()| {
        let mut answer = [0];
        socket.read(&mut answer)
    });
    match answer {
        Ok(1) => Ok(()),
        Ok(_) => Err(PluginError::NoGoAhead(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(PluginError::NoGoAhead(error)),
    }
}
