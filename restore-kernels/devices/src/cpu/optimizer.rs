//! Compiles kernels that have turned hot again, in the full tier, beside what runs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::launch::CpuLaunch;

/// Starts the thread; it ends when what it is sent to is dropped. Nobody waits for it: a compiler cannot be stopped.
pub fn start() -> std::io::Result<Sender<Arc<CpuLaunch>>> {
    let (hot, launches) = channel();
    thread::Builder::new()
        .name("cpu-optimizer".to_owned())
        .spawn(move || run(&launches))?;
    Ok(hot)
}

fn run(launches: &Receiver<Arc<CpuLaunch>>) {
    for launch in launches {
        if let Some(kernel) = launch.kernel() {
            kernel.optimize();
        }
    }
}
