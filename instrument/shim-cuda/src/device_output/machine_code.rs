//! What kernels of machine code have printed: the driver has formatted it, and the server hands it on.

use hetckpt_ring::command::Command;
use hetckpt_ring::printed::Output;

use crate::device::Device;
use crate::log;

use super::c_library;

/// Prints what has been handed on.
pub fn print(device: &Device) {
    let fifo = device.producer().printed();
    if fifo.is_empty() {
        return;
    }
    let _one_at_a_time = device.output.lock_printed();
    loop {
        while let Some((output, text)) = fifo.take() {
            match output {
                Output::Stdout => c_library::write_to_stdout(&text),
                Output::Stderr => log::plain(String::from_utf8_lossy(&text).trim_end()),
            }
        }
        if !fifo.has_more() || !fetch_more(device) {
            return;
        }
    }
}

/// Has the server hand on more: it does so whenever somebody waits, for a stream without work here.
fn fetch_more(device: &Device) -> bool {
    let Ok(stream) = device.new_stream() else { return false };
    let answer = device.call_raw(Command::StreamSynchronize { stream });
    answer.is_ok() && device.send(Command::StreamDestroy { stream }).is_ok()
}
