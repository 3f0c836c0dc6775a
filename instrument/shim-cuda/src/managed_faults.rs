//! Handing faults of managed memory over to the server, where it asks for them: then it keeps the memory on the device
//! while kernels run, and brings back what the program touches.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use std::thread;
use std::time::Duration;

use hetckpt_ring::command::Command;
use hetckpt_ring::userfaultfd::{Reach, Userfaultfd};

use crate::device::Device;
use crate::log;
use crate::own_thread;
use crate::result::CuResult;

/// The system has said no.
static IS_DENIED: AtomicBool = AtomicBool::new(false);

/// The device, once there is one.
static DEVICE: OnceLock<&'static Device> = OnceLock::new();
/// Until the next offer, if the server asks for one again at once.
const INTERVAL: Duration = Duration::from_millis(100);

/// Hands them over if the server asks for them. The program's system calls must be able to wait for the memory as its
/// own code does, which the system allows only some programs. The caller holds [`Device::managed`], so that no two
/// offer at once.
pub fn offer(device: &Device) {
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
    let fd = faults.as_fd().as_raw_fd();
    // Whatever the server says, the program goes on.
    let answer = device.call_raw(Command::ManagedFaults { fd });
    drop(faults);
    if !answer.is_ok_and(|answer| CuResult(answer.result) == CuResult::SUCCESS) {
        return;
    }
    static KEEPER: Once = Once::new();
    KEEPER.call_once(|| {
        if let Err(error) = own_thread::start("hetckpt-managed", keep_offering) {
            log::detail(&format!(
                "managed memory stays in the host's memory after a pause: {error}"
            ));
        }
    });
}

/// Offers them whenever the server asks anew: it does after each pause, and so does another that has taken over the
/// program. Kernels that have stopped in the middle go on by then.
fn keep_offering() {
    while let Some(device) = DEVICE.get() {
        device.producer().await_managed_faults_wanted();
        let areas = device.managed();
        offer(device);
        drop(areas);
        if IS_DENIED.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(INTERVAL);
    }
}

/// From now on a thread can offer them.
pub fn watch(device: &'static Device) {
    let _ = DEVICE.set(device);
}

fn is_asked_for(device: &Device) -> bool {
    device.producer().wants_managed_faults() && !IS_DENIED.load(Ordering::Relaxed)
}
