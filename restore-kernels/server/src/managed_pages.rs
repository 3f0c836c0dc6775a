//! Managed memory by page: while kernels run it lies in the device's memory, at the application's addresses; what the
//! application touches comes back to its memfd, the more at a time the further it goes on from there.
//!
//! The application hands over a userfaultfd ([`Userfaultfd`]), and this is how its pages are kept:
//!
//! * *On the device*: the memfd has a hole there. Whoever touches it in the application waits, until nothing runs on
//!   the device and the content is in the memfd ([`crate::managed_faults`]).
//! * *In the memfd*: the application reads and writes it as any memory. Before anything is given to the device, it is
//!   copied there and the hole made; who writes meanwhile waits.
//! * *In both*: the application has only read it. A write is seen as a fault; nothing need be copied back otherwise.
//!
//! So whatever runs on the device finds all managed memory there. What cannot be had this way (no room on the device,
//! addresses that the driver does not give, a program that is not allowed a userfaultfd) stays in the memfd, where
//! kernels reach it. So does all of it during a pause, as a dump needs it, and until the application has offered again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::eventfd::EventFd;
use parking_lot::Mutex;

use hetckpt_devices::device::Device;
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::userfaultfd::{Fault, Modes, Userfaultfd};

use crate::error::ServerError;
use crate::managed_area::{Area, LONGEST_PIECE, Place, os};
use crate::pinned::Pinned;

/// What managed memory leaves on the device for what kernels and drivers need besides.
const SPARED_BYTES: u64 = 512 << 20;
/// After kernels have not stopped for it, it is not to begin again so soon.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// So often kernels may be stopped for an area; then it stays in the memfd.
const MOST_INTERRUPTIONS: u32 = 3;

/// All managed memory that lies on the device by turns.
pub struct ManagedPages {
    device: Arc<dyn Device>,
    /// The application is to offer its faults, when it has none to offer yet or there is no more of `paging`.
    is_wanted: AtomicBool,
    /// It is not to begin before.
    not_before: Mutex<Option<Instant>>,
    /// [`Paging`] is there.
    is_active: AtomicBool,
    paging: Mutex<Option<Paging>>,
}

struct Paging {
    faults: Arc<Userfaultfd>,
    /// Ends the thread that serves the faults.
    end: Arc<EventFd>,
    areas: BTreeMap<u64, Area>,
}

/// What had to be stopped so that nothing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing ran, or what ran had ended.
    Nothing,
    /// Kernels, in their midst.
    Kernels,
}

impl ManagedPages {
    /// None yet.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self {
            is_wanted: AtomicBool::new(is_wanted(&*device)),
            not_before: Mutex::default(),
            device,
            is_active: AtomicBool::new(false),
            paging: Mutex::default(),
        }
    }

    /// True if it could begin.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let may_begin = || self.not_before.lock().is_none_or(|moment| Instant::now() >= moment);
        self.is_wanted.load(Ordering::Acquire) && !self.is_active() && may_begin()
    }

    /// Kernels have not stopped for it: it may begin later.
    pub fn put_off(&self) {
        *self.not_before.lock() = Some(Instant::now() + AGAIN_AFTER);
    }

    /// It will not begin any more.
    pub fn refuse(&self) {
        self.is_wanted.store(false, Ordering::Release);
    }

    /// True from [`Self::begin`] to [`Self::end`].
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// From now on, while nothing runs on the device, all managed memory lies there by turns. Somebody must see to
    /// `faults` until `end` is readable.
    pub fn begin(&self, faults: Arc<Userfaultfd>, end: Arc<EventFd>, pinned: &Pinned) {
        // Until then nothing is freed, nor are variables filled.
        let mut guard = self.paging.lock();
        let mut paging = Paging {
            faults,
            end,
            areas: BTreeMap::new(),
        };
        for addr in pinned.managed() {
            let added = pinned.lend(addr).and_then(|is_lent| match is_lent {
                true => paging.add(&*self.device, pinned, addr),
                false => Ok(()),
            });
            if let Err(error) = added {
                tracing::error!(%error, addr, "managed memory is out of kernels' reach");
            }
        }
        *guard = Some(paging);
        self.is_active.store(true, Ordering::Release);
    }

    /// Takes in a new area, which is lent; gives it back if that is not possible.
    ///
    /// # Errors
    /// [`ServerError`] if that is not possible either.
    pub fn add(&self, addr: u64, pinned: &Pinned) -> Result<(), ServerError> {
        match &mut *self.paging.lock() {
            Some(paging) => paging.add(&*self.device, pinned, addr),
            None => pinned.take_back(addr),
        }
    }

    /// Forgets an area that the application frees, of managed memory or other; false if there is none.
    ///
    /// # Errors
    /// As [`Pinned::unregister`].
    pub fn unregister(&self, addr: u64, pinned: &Pinned) -> Result<bool, ServerError> {
        // Nobody begins meanwhile.
        let mut guard = self.paging.lock();
        if let Some(paging) = &mut *guard {
            paging.remove(&*self.device, addr);
        }
        pinned.unregister(addr)
    }

    /// Forgets all areas, with what is in them.
    pub fn clear(&self, pinned: &Pinned) {
        let mut guard = self.paging.lock();
        if let Some(mut paging) = guard.take() {
            self.is_active.store(false, Ordering::Release);
            for addr in paging.areas.keys().copied().collect::<Vec<_>>() {
                paging.remove(&*self.device, addr);
            }
            paging.end_service();
        }
        pinned.clear();
    }

    /// Puts everything back into the memfds, for good, while nothing runs on the device. Where it is not active it has
    /// nothing to do.
    ///
    /// # Errors
    /// [`ServerError`]. Without room in the host's memory everything stays as it is.
    pub fn end(&self, pinned: &Pinned) -> Result<(), ServerError> {
        let mut guard = self.paging.lock();
        let Some(paging) = &mut *guard else { return Ok(()) };
        let addresses: Vec<u64> = paging.areas.keys().copied().collect();
        for &addr in &addresses {
            paging.fetch_all(&*self.device, addr)?;
        }
        let mut given = Ok(());
        for addr in addresses {
            // The others all the same.
            given = given.and(paging.give_up(&*self.device, pinned, addr));
        }
        paging.end_service();
        *guard = None;
        self.is_active.store(false, Ordering::Release);
        given
    }

    /// True if all of the range lies on the device, or comes there with [`Self::bring`].
    #[must_use]
    pub fn contains(&self, addr: u64, size_bytes: u64) -> bool {
        self.is_active()
            && self.paging.lock().as_ref().is_some_and(|paging| {
                let area = paging.area_of(addr);
                area.is_some_and(|area| size_bytes <= area.facts.size_bytes - (addr - area.facts.addr))
            })
    }

    /// Brings all managed memory to the device. It stays there as long as anything runs on the device.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn bring(&self) -> Result<(), DeviceError> {
        match self.is_active() {
            true => self.hold().map(drop),
            false => Ok(()),
        }
    }

    /// As [`Self::bring`]; as long as what is returned lives, all stays there, and this neither begins nor ends.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn hold(&self) -> Result<impl Sized + '_, DeviceError> {
        let mut guard = self.paging.lock();
        if let Some(paging) = &mut *guard {
            paging.bring_all(&*self.device)?;
        }
        Ok(guard)
    }

    /// Sees to those faults for which nothing has to come from the device; leaves the others.
    pub fn settle(&self, faults: &mut Vec<Fault>) {
        match &mut *self.paging.lock() {
            Some(paging) => faults.retain(|fault| !paging.settle(*fault)),
            None => faults.clear(),
        }
    }

    /// Sees to faults, while nothing runs on the device.
    pub fn fetch(&self, faults: &[Fault], stopped: Stopped, pinned: &Pinned) {
        let mut guard = self.paging.lock();
        let Some(paging) = &mut *guard else { return };
        if stopped == Stopped::Kernels {
            paging.note_interruption(faults);
        }
        for &fault in faults {
            if paging.settle(fault) {
                continue;
            }
            if let Err(error) = paging.fetch(&*self.device, fault, pinned) {
                tracing::error!(%error, addr = fault.addr, "managed memory is lost: who touches it gets SIGBUS");
                paging.poison(fault.addr);
            }
        }
    }
}

impl Paging {
    fn area_of(&self, addr: u64) -> Option<&Area> {
        let (_, area) = self.areas.range(..=addr).next_back()?;
        (addr - area.facts.addr < area.facts.size_bytes).then_some(area)
    }

    fn area_of_mut(&mut self, addr: u64) -> Option<&mut Area> {
        let (_, area) = self.areas.range_mut(..=addr).next_back()?;
        (addr - area.facts.addr < area.facts.size_bytes).then_some(area)
    }

    fn add(&mut self, device: &dyn Device, pinned: &Pinned, addr: u64) -> Result<(), ServerError> {
        let Some((facts, memfd)) = pinned.lent(addr)? else {
            return Ok(());
        };
        match self.area(device, facts, memfd) {
            Ok(area) => {
                tracing::info!(addr, bytes = facts.size_bytes, "managed memory moves by page");
                self.areas.insert(addr, area);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, addr, "managed memory stays in the host's memory");
                pinned.take_back(addr)
            }
        }
    }

    fn area(&self, device: &dyn Device, facts: PinnedArea, memfd: OwnedFd) -> Result<Area, ServerError> {
        let area = Area::new(facts, memfd)?;
        let (requested_bytes, free_bytes) = (area.on_device_bytes(), device.describe().free_bytes);
        if free_bytes < requested_bytes.saturating_add(SPARED_BYTES) {
            return Err(ServerError::Device(DeviceError::OutOfMemory {
                requested_bytes,
                free_bytes,
            }));
        }
        device.map_managed(facts.addr, area.on_device_bytes())?;
        if let Err(errno) = self.faults.register(&area.range(), Modes::ALL) {
            device.unmap_managed(facts.addr, area.on_device_bytes())?;
            return Err(os("UFFDIO_REGISTER")(errno));
        }
        Ok(area)
    }

    fn remove(&mut self, device: &dyn Device, addr: u64) {
        let Some(area) = self.areas.remove(&addr) else { return };
        // The application may have unmapped it.
        let _ = self.faults.unregister(&area.range());
        if let Err(error) = device.unmap_managed(addr, area.on_device_bytes()) {
            tracing::error!(%error, addr, "managed memory cannot be freed");
        }
    }

    fn end_service(&self) {
        if let Err(error) = self.end.write(1) {
            tracing::error!(%error, "a thread cannot be told to end");
        }
    }

    /// Brings everything to the device.
    fn bring_all(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        self.areas
            .values_mut()
            .try_for_each(|area| area.bring(&self.faults, device))
    }

    /// Sees to a fault if nothing has to come from the device.
    fn settle(&mut self, fault: Fault) -> bool {
        let faults = Arc::clone(&self.faults);
        let Some(area) = self.area_of_mut(fault.addr) else {
            // Given up, or freed: nobody waits any more.
            return true;
        };
        let Some((run, &place)) = area.places.get_key_value(&fault.addr) else {
            return false;
        };
        let run = run.clone();
        let piece = area.piece(fault.addr, &run);
        if fault.is_write {
            area.places.insert(piece.clone(), Place::Memfd);
        }
        let done = match (fault.is_protected, place) {
            (true, _) => faults.write_protect(&piece, false),
            (false, Place::Both) if fault.is_write => faults
                .write_protect(&piece, false)
                .and_then(|()| faults.map(&piece, false)),
            (false, Place::Both) => faults.map(&piece, true),
            (false, Place::Memfd) => area.allocate(&piece).and_then(|()| faults.map(&piece, false)),
        };
        if let Err(error) = done {
            tracing::error!(%error, addr = fault.addr, "a page of managed memory cannot be mapped");
            let _ = faults.wake(&piece);
        }
        true
    }

    /// Kernels were stopped for these.
    fn note_interruption(&mut self, faults: &[Fault]) {
        let areas = faults
            .iter()
            .filter_map(|fault| Some(self.area_of(fault.addr)?.facts.addr));
        let areas: BTreeSet<u64> = areas.collect();
        for addr in areas {
            if let Some(area) = self.areas.get_mut(&addr) {
                area.num_interruptions += 1;
            }
        }
    }

    fn fetch(&mut self, device: &dyn Device, fault: Fault, pinned: &Pinned) -> Result<(), ServerError> {
        let faults = Arc::clone(&self.faults);
        let Some(area) = self.area_of_mut(fault.addr) else {
            return Ok(());
        };
        if area.num_interruptions > MOST_INTERRUPTIONS {
            let addr = area.facts.addr;
            tracing::warn!(
                addr,
                "managed memory that the program uses while kernels run; kernels reach it in the host's memory from now on"
            );
            self.fetch_all(device, addr)?;
            return self.give_up(device, pinned, addr);
        }
        let limits = area.on_device_around(fault.addr);
        let piece = area.piece(fault.addr, &limits);
        area.read(device, &piece)?;
        // As long as nobody has written, what is on the device holds.
        faults.map(&piece, !fault.is_write).map_err(os("UFFDIO_CONTINUE"))?;
        let place = if fault.is_write { Place::Memfd } else { Place::Both };
        area.places.insert(piece, place);
        Ok(())
    }

    /// Has all of an area in its memfd, and on the device as well.
    fn fetch_all(&mut self, device: &dyn Device, addr: u64) -> Result<(), ServerError> {
        let Some(area) = self.areas.get_mut(&addr) else {
            return Ok(());
        };
        let on_device: Vec<Range<u64>> = area.places.gaps(&area.range()).collect();
        for gap in on_device {
            let mut start = gap.start;
            while start < gap.end {
                let piece = start..gap.end.min(start + LONGEST_PIECE);
                start = piece.end;
                area.read(device, &piece)?;
                area.places.insert(piece, Place::Both);
            }
        }
        Ok(())
    }

    /// Leaves an area that its memfd has to its owner.
    fn give_up(&mut self, device: &dyn Device, pinned: &Pinned, addr: u64) -> Result<(), ServerError> {
        let Some(area) = self.areas.remove(&addr) else {
            return Ok(());
        };
        // The application may be gone.
        let _ = self.faults.unregister(&area.range());
        device.unmap_managed(addr, area.on_device_bytes())?;
        pinned.take_back(addr)
    }

    fn poison(&mut self, addr: u64) {
        let faults = Arc::clone(&self.faults);
        let Some(area) = self.area_of_mut(addr) else { return };
        let piece = area.piece(addr, &area.on_device_around(addr));
        if let Err(error) = faults.poison(&piece) {
            tracing::error!(%error, "the program waits for ever");
        }
    }
}

/// Whether managed memory is to move: where kernels have it nearer then, or as `HETCKPT_MANAGED_MEMORY` says (`device`,
/// `host`).
fn is_wanted(device: &dyn Device) -> bool {
    match std::env::var("HETCKPT_MANAGED_MEMORY").as_deref() {
        Ok("device") => true,
        Ok("host") => false,
        _ => device.has_far_host_memory(),
    }
}
