//! Copies from device to host that wait for no kernel of the program, however many of them there are: in a context of
//! their own, since streams of one context share the hardware's queues.
//!
//! In the program's context, a copy that waits for a kernel keeps its queue, and each of our streams that is given that
//! queue keeps waiting too ([`Transfers`] sets it aside). With some 35 streams, of which 31 wait so, a driver for the
//! H200 (580) makes no more: even that waits for the kernel. Memory of one context can be copied in another one of the
//! same device.

use std::sync::OnceLock;

use super::driver::Result;
use super::handles::Context;
use super::transfer::Transfers;

/// Copies beside the program's, from when they are first needed.
pub(super) struct Apart {
    priority: i32,
    copying: OnceLock<Option<Copying>>,
}

/// The context and its streams.
struct Copying {
    transfers: Transfers,
    context: Context,
}

impl Apart {
    /// `priority` is that of its streams.
    pub fn new(priority: i32) -> Self {
        Self {
            priority,
            copying: OnceLock::new(),
        }
    }

    /// Makes the context beside `program`, unless that has been done. That takes 0.1 s, and some of the device's memory
    /// until the device is closed.
    pub fn open(&self, program: &Context) {
        self.copying.get_or_init(|| match program.beside() {
            Ok(context) => Some(Copying {
                transfers: Transfers::new(self.priority),
                context,
            }),
            Err(error) => {
                tracing::warn!(%error, "copies may wait for the program's: the device gives no second context");
                None
            }
        });
    }

    /// Copies memory of the program to the host; None if the device has given no further context.
    pub fn read(&self, src: u64, dst: &mut [u8]) -> Option<Result<()>> {
        let copying = self.copying.get()?.as_ref()?;
        Some(copying.transfers.read(&copying.context, src, dst))
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // Its streams are destroyed before it is.
        let _ = self.context.enter();
    }
}
