//! `hetckpt serve`: take programs that other nodes move here.

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cli::Serve;
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::migration::depot::Depot;
use crate::migration::launch::Launcher;
use crate::migration::{receive, tls};
use crate::output;

/// Rest after a connection that could not be taken, for want of descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is counted until it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Listens until it is killed.
pub fn run(options: Serve) -> anyhow::Result<ExitCode> {
    let tls = Arc::new(tls::Server::new(&options.files)?);
    Installation::find()?;
    let depot = Depot::open(&options.folder)?;
    let cannot = |e: std::io::Error| {
        Failure::new("HK1002", format!("cannot listen on {}", options.listen))
            .note(e.to_string())
            .help("name an address of this node, and a port that is free: ADDRESS:PORT")
    };
    let listener = TcpListener::bind(&options.listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let most = options.connections;
    let launcher = Arc::new(Launcher { depot, options });
    launcher.take_up();
    output::note(format!("listening on {address}"));
    let num_connections = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let counted = Counted(Arc::clone(&num_connections));
        if num_connections.fetch_add(1, Ordering::AcqRel) >= most {
            output::note(format!("{peer}: turned away, {most} connections are open"));
            continue;
        }
        let (tls, launcher) = (Arc::clone(&tls), Arc::clone(&launcher));
        std::thread::spawn(move || {
            let _counted = counted;
            receive::answer(stream, &tls, &launcher);
        });
    }
}
