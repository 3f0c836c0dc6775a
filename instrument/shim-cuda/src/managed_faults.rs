//! Handing faults of managed memory over to the server, where it asks for them: then it keeps the memory on the device
//! while kernels run, and brings back what the program touches.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use hetckpt_ring::command::Command;
use hetckpt_ring::userfaultfd::{Reach, Userfaultfd};

use crate::device::Device;
use crate::log;
use crate::pinned_pool::PinnedPool;

/// The system has said no.
static IS_DENIED: AtomicBool = AtomicBool::new(false);

/// To be called before kernels are launched: a server that has taken the program over asks anew.
pub fn offer_for_launch(device: &Device) {
    if is_asked_for(device) {
        let mut pool = device.managed();
        if !pool.is_empty() {
            offer(device, &mut pool);
        }
    }
}

/// Hands them over if the server asks for them. The program's system calls must be able to wait for the memory as its
/// own code does, which the system allows only some programs.
pub fn offer(device: &Device, pool: &mut PinnedPool) {
    if !is_asked_for(device) {
        return;
    }
    let faults = match Userfaultfd::open(Reach::Everything) {
        Ok(faults) => faults,
        Err(error) => {
            IS_DENIED.store(true, Ordering::Relaxed);
            return log::detail(&format!(
                "managed memory stays in the host's memory, as userfaultfd is not to be had: {error}"
            ));
        }
    };
    // What is on the device would be zero in a child.
    pool.keep_from_children();
    let fd = faults.as_fd().as_raw_fd();
    // Whatever the server says, the program goes on.
    let _ = device.call_raw(Command::ManagedFaults { fd });
}

fn is_asked_for(device: &Device) -> bool {
    device.producer().wants_managed_faults() && !IS_DENIED.load(Ordering::Relaxed)
}
