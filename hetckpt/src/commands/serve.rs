//! `hetckpt serve`: take programs that other nodes move here.

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::Serve;
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::migration::depot::Depot;
use crate::migration::launch::Launcher;
use crate::migration::slots::Slots;
use crate::migration::{expire, receive, tls};
use crate::output;

/// Rest after a connection that could not be taken, for want of descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

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
    let slots = Slots::new(options.connections);
    let launcher = Arc::new(Launcher { depot, options });
    launcher.take_up();
    expire::start(&launcher);
    output::note(format!("listening on {address}"));
    loop {
        let accepted = listener.accept();
        let slotted = accepted.and_then(|(stream, _)| slots.caller(&stream).map(|caller| (stream, caller)));
        let Ok((stream, caller)) = slotted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let (tls, launcher, slots) = (Arc::clone(&tls), Arc::clone(&launcher), Arc::clone(&slots));
        std::thread::spawn(move || receive::answer(stream, &tls, &launcher, caller, &slots));
    }
}
