//! `hetckpt-server`: see [`hetckpt_server`].

use std::process::ExitCode;

use hetckpt_ring::virtual_gpu::VIRTUAL_GPU_ENV;
use hetckpt_server::error::ServerError;
use hetckpt_server::options::Options;
use nix::sys::signal::{SigSet, Signal};
use tracing_subscriber::EnvFilter;

/// A launch allocates a few times, and is the faster for this.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A file that is to become larger than it may (`ulimit -f`) is an error to be told, not this program's end.
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    let filter = EnvFilter::try_from_env("HETCKPT_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let device = std::env::var("HETCKPT_DEVICE").unwrap_or_default();
    let virtual_gpu = std::env::var(VIRTUAL_GPU_ENV).unwrap_or_default();
    let options = Options::parse(std::env::args().skip(1), &device, &virtual_gpu);
    let done = options.and_then(|options| hetckpt_server::start::run(&options));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line for whoever waits for this process; logs have the details.
            eprintln!("error[{}]: {error}", error.code());
            ExitCode::from(if matches!(error, ServerError::Usage(_)) { 2 } else { 1 })
        }
    }
}
