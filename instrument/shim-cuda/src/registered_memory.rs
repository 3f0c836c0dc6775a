//! Memory of its own that the program registers. It stays ordinary memory until the program asks where kernels reach
//! it: then its pages are those of an area of pinned memory as well.

use hetckpt_ring::command::{Command, DeviceIndex};

use crate::host_areas;
use crate::log;
use crate::memory_map::{Range, RangeKind};
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::shared_pages::Pages;

/// Where kernels reach the registered memory that starts at `addr`.
pub fn device_address(session: &Session, addr: u64) -> Outcome<u64> {
    let device = &session.device;
    // Held throughout, so that two threads do not both share the same pages.
    let mut pool = session.pinned();
    let found = device.memory().starting_at(addr);
    let (range, flags) = match found {
        Some(
            range @ Range {
                kind: RangeKind::Registered { flags, on_device },
                ..
            },
        ) => match on_device {
            Some(known) => return Ok(known),
            None => (range, flags),
        },
        _ => return Err(CuResult::INVALID_VALUE),
    };
    let pages = Pages::around(addr, range.size_bytes).ok_or(CuResult::INVALID_VALUE)?;
    if !pages.are_private() {
        log::note("registered memory that is shared, of a file or of a stack is not reached by kernels");
        return Err(CuResult::NOT_SUPPORTED);
    }
    let area = host_areas::take_own(device, &mut pool, pages.size_bytes())?;
    let shared = pool.memfd(area).map(|memfd| pages.share(memfd, area));
    if !matches!(shared, Some(Ok(()))) {
        if let Some(Err(error)) = shared {
            log::note(&format!(
                "registered memory is not reached by kernels: userfaultfd: {error}"
            ));
        }
        let _ = host_areas::give_back(device, &mut pool, area, pages.size_bytes());
        return Err(CuResult::NOT_SUPPORTED);
    }
    let on_device = area + (addr - pages.start());
    let mut memory = device.memory();
    memory.insert(area, pages.size_bytes(), RangeKind::Pinned { flags });
    memory.place_registered(addr, on_device);
    Ok(on_device)
}

/// Makes memory ordinary again that the program no longer has registered, once nothing that is queued uses it.
pub fn release(session: &Session, range: &Range, on_device: u64) -> Outcome {
    session.call(Command::Synchronize {
        device: DeviceIndex::FIRST,
    })?;
    let mut pool = session.pinned();
    let Some(pages) = Pages::around(range.addr, range.size_bytes) else {
        return Ok(());
    };
    let area = on_device - (range.addr - pages.start());
    session.device.memory().remove(area);
    match pages.make_private() {
        Ok(()) => host_areas::give_back(&session.device, &mut pool, area, pages.size_bytes()),
        // It stays shared, and the area with it.
        Err(error) => {
            log::note(&format!("memory that is no longer registered stays pinned: {error}"));
            Ok(())
        }
    }
}
