//! `hetckpt serve`: listening for programs that other nodes move here.

use hetckpt_ring::failure_code::Code;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;
use hetckpt_report::remark;

use crate::migration::depot::Depot;
use crate::migration::launch::Launcher;
use crate::migration::serve_options::Serve;
use crate::migration::slots::Slots;
use crate::migration::{expire, receive, tls};

/// Rest after a connection that could not be taken, for want of descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens until the process is killed.
pub fn serve(options: Serve) -> Result<Infallible, Failure> {
    let tls = Arc::new(tls::Server::new(&options.files)?);
    Installation::find()?;
    let depot = Depot::open(&options.folder)?;
    let cannot = |e: std::io::Error| {
        Failure::new(Code::CannotListen, format!("cannot listen on {}", options.listen))
            .note(e.to_string())
            .help("name an address of this node, and a port that is free: ADDRESS:PORT")
    };
    let listener = TcpListener::bind(&options.listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let slots = Slots::new(options.connections);
    let launcher = Arc::new(Launcher { depot, options });
    launcher.take_up();
    expire::start(&launcher);
    remark::note(format!("listening on {address}"));
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
