//! Checkpoints that the program asks for itself. Whoever stands in for it makes them: frozen with its program's kernels
//! stopped, neither the program nor its server could.

use std::path::Path;

use hetckpt_ring::checkpoint::{Answer, Asked, Outcome};
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::runtime_dir::{runtime_dir, stand_in_path};
use hetckpt_ring::server_side::ServerSide;

use crate::error::ServerError;
use crate::process;

/// What the program is told that nobody stands in for.
const UNATTENDED: &str = "nobody stands in for the program, as `hetckpt run`, `hetckpt job` and `hetckpt restore` \
                          without --detach do";

/// Has the requests of process `app_pid` answered from now on, by a thread that sleeps until there is one.
///
/// # Errors
/// [`ServerError::Os`].
pub fn start(side: ServerSide, app_pid: u32) -> Result<(), ServerError> {
    let serve = move || {
        loop {
            let request = side.checkpoint_words().next();
            tracing::debug!(?request, "the application asks for a checkpoint");
            let answer = ask(app_pid, &Asked { file: request.file });
            side.checkpoint_words().answer(request.number, &answer);
        }
    };
    let spawned = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(serve);
    spawned.map(drop).map_err(|source| ServerError::Os {
        call: "thread creation",
        source,
    })
}

fn ask(app_pid: u32, asked: &Asked) -> Answer {
    let Some(mut stand_in) = find_stand_in(&runtime_dir(), app_pid) else {
        return Answer::new(Outcome::Unattended, UNATTENDED);
    };
    let answered = stand_in.send(asked, &[]).and_then(|()| stand_in.receive());
    match answered {
        Ok(Some((answer, _))) => answer,
        Ok(None) | Err(RingError::ServerGone) => {
            Answer::new(Outcome::Failed, "whoever stands in for the program is gone")
        }
        Err(error) => Answer::new(Outcome::Failed, format!("whoever stands in for the program: {error}")),
    }
}

/// Connects to the nearest ancestor of process `pid` that listens for this.
fn find_stand_in(dir: &Path, pid: u32) -> Option<ControlSocket> {
    let mut ancestor = process::parent(pid);
    while let Some(pid) = ancestor.filter(|&pid| pid > 0) {
        if let Ok(socket) = ControlSocket::connect(&stand_in_path(dir, pid)) {
            return Some(socket);
        }
        ancestor = process::parent(pid);
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::process::parent_id;

    use hetckpt_ring::control_socket::listen;

    use super::*;

    #[test]
    fn the_nearest_ancestor_that_listens_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        assert!(find_stand_in(dir.path(), own).is_none());
        // What a killed one has left.
        drop(listen(&stand_in_path(dir.path(), own)).unwrap());
        let _listener = listen(&stand_in_path(dir.path(), parent_id())).unwrap();
        assert!(find_stand_in(dir.path(), own).is_some());
    }
}
