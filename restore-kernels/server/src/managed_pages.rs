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
#![allow(unsafe_code, reason = "maps memfds, and makes holes in them")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::eventfd::EventFd;
use nix::unistd::{Whence, lseek64};
use parking_lot::Mutex;
use rangemap::RangeMap;

use hetckpt_devices::device::Device;
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::userfaultfd::{Fault, Modes, Userfaultfd};

use crate::error::ServerError;
use crate::pinned::Pinned;

/// What comes at once, at least, and begins at a multiple of this.
const PIECE_BYTES: u64 = 64 << 10;
/// What comes at most where the application goes on where the last piece has ended.
const LONGEST_PIECE: u64 = 64 << 20;
/// Pages of so much are made at once, before they are written to; of more, by the threads that write to them.
const POPULATED_BYTES: u64 = 1 << 20;
/// What managed memory leaves on the device for what kernels and drivers need besides.
const ROOM_BYTES: u64 = 512 << 20;
/// After kernels have not stopped for it, it is not to begin again so soon.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The device's own memory comes in pieces of this.
const DEVICE_GRANULARITY: u64 = 2 << 20;
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

struct Area {
    facts: PinnedArea,
    memfd: OwnedFd,
    /// All of the memfd.
    window: Window,
    /// Where what is not on the device alone is, by addresses.
    places: RangeMap<u64, Place>,
    /// Where the last piece that a fault was about ended, and its length.
    last_piece: (u64, u64),
    /// How often kernels were stopped for it.
    num_interruptions: u32,
}

/// Where content is that is not on the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memfd,
    Both,
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
        let mut area = Area {
            facts,
            window: Window::new(&memfd, facts.size_bytes)?,
            memfd,
            places: RangeMap::new(),
            last_piece: (0, 0),
            num_interruptions: 0,
        };
        area.places.insert(area.range(), Place::Memfd);
        let (requested_bytes, free_bytes) = (area.on_device_bytes(), device.describe().free_bytes);
        if free_bytes < requested_bytes.saturating_add(ROOM_BYTES) {
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

impl Area {
    fn range(&self) -> Range<u64> {
        self.facts.addr..self.facts.addr + self.facts.size_bytes
    }

    fn on_device_bytes(&self) -> u64 {
        self.facts.size_bytes.next_multiple_of(DEVICE_GRANULARITY)
    }

    /// What is only on the device around an address that is.
    fn on_device_around(&self, addr: u64) -> Range<u64> {
        let all = self.range();
        let before = self.places.overlapping(&(all.start..addr)).next_back();
        let after = self.places.overlapping(&(addr..all.end)).next();
        let start = before.map_or(all.start, |(range, _)| range.end);
        start..after.map_or(all.end, |(range, _)| range.start)
    }

    /// What a fault at `addr` is about, of `limits`, in which it lies.
    fn piece(&mut self, addr: u64, limits: &Range<u64>) -> Range<u64> {
        let start = (addr - addr % PIECE_BYTES).max(limits.start);
        let (last_end, last_length) = self.last_piece;
        let most = match start == last_end {
            true => (last_length * 2).clamp(PIECE_BYTES, LONGEST_PIECE),
            false => PIECE_BYTES,
        };
        let end = (start + most).next_multiple_of(PIECE_BYTES).min(limits.end);
        self.last_piece = (end, end - start);
        start..end
    }

    /// Brings what is not on the device there.
    fn bring(&mut self, faults: &Userfaultfd, device: &dyn Device) -> Result<(), DeviceError> {
        let failed = |call: &'static str| {
            move |errno: Errno| DeviceError::Driver {
                call,
                reason: errno.to_string(),
            }
        };
        while let Some((range, place)) = self.places.iter().next().map(|(range, &place)| (range.clone(), place)) {
            if place == Place::Memfd {
                faults
                    .write_protect(&range, true)
                    .map_err(failed("UFFDIO_WRITEPROTECT"))?;
                self.write(device, &range)?;
            }
            self.make_hole(&range).map_err(failed("fallocate"))?;
            self.places.remove(range.clone());
            // Who has waited for a write finds that nothing is there.
            faults
                .write_protect(&range, false)
                .and_then(|()| faults.wake(&range))
                .map_err(failed("UFFDIO_WRITEPROTECT"))?;
        }
        Ok(())
    }

    /// Copies what the memfd has in `range` to the device; the rest becomes zero there.
    fn write(&self, device: &dyn Device, range: &Range<u64>) -> Result<(), DeviceError> {
        let base = self.facts.addr;
        let (mut at, end) = (range.start - base, range.end - base);
        while at < end {
            let seek =
                |whence| lseek64(&self.memfd, at.cast_signed(), whence).map(|found| found.cast_unsigned().min(end));
            let data = match seek(Whence::SeekData) {
                Ok(data) => data,
                Err(Errno::ENXIO) => end,
                Err(_) => at,
            };
            if data > at {
                device.zero(base + at, data - at)?;
                at = data;
                continue;
            }
            let hole = seek(Whence::SeekHole).unwrap_or(end);
            device.write(base + at, self.window.bytes(at, hole - at))?;
            at = hole;
        }
        Ok(())
    }

    /// Copies what is on the device into the memfd.
    fn read(&mut self, device: &dyn Device, range: &Range<u64>) -> Result<(), ServerError> {
        let (offset, length) = (range.start - self.facts.addr, range.end - range.start);
        if length <= POPULATED_BYTES {
            self.window.populate(offset, length)?;
        }
        Ok(device.read(range.start, self.window.bytes_mut(offset, length))?)
    }

    /// Has the memfd have the pages.
    fn allocate(&self, range: &Range<u64>) -> Result<(), Errno> {
        let (offset, length) = self.in_memfd(range);
        fallocate(self.memfd.as_fd(), FallocateFlags::empty(), offset, length)
    }

    /// Takes the pages from the memfd, and from whoever has mapped them.
    fn make_hole(&self, range: &Range<u64>) -> Result<(), Errno> {
        let (offset, length) = self.in_memfd(range);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(self.memfd.as_fd(), flags, offset, length)
    }

    fn in_memfd(&self, range: &Range<u64>) -> (i64, i64) {
        let offset = range.start - self.facts.addr;
        (offset.cast_signed(), (range.end - range.start).cast_signed())
    }
}

/// A mapping of a whole memfd, at an address of the system's choice.
struct Window {
    addr: *mut u8,
    size_bytes: usize,
}

// SAFETY: plain memory; who may touch it when is a matter of the lock that it lies under.
unsafe impl Send for Window {}

impl Window {
    fn new(memfd: &OwnedFd, size_bytes: u64) -> Result<Self, ServerError> {
        let size = size_bytes as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the system's choice.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, memfd.as_raw_fd(), 0) };
        if got == libc::MAP_FAILED {
            return Err(os("mmap of managed memory")(Errno::last()));
        }
        Ok(Self {
            addr: got.cast(),
            size_bytes: size,
        })
    }

    /// Has the memfd have these pages, which are mapped here then.
    fn populate(&self, offset: u64, length: u64) -> Result<(), ServerError> {
        let (at, length) = self.at(offset, length);
        // SAFETY: pages of this mapping, whose content stays.
        let result = unsafe { libc::madvise(at.cast(), length, libc::MADV_POPULATE_WRITE) };
        Errno::result(result)
            .map(|_| ())
            .map_err(os("madvise of managed memory"))
    }

    fn at(&self, offset: u64, length: u64) -> (*mut u8, usize) {
        let (offset, length) = (offset as usize, length as usize);
        assert!(
            offset <= self.size_bytes && length <= self.size_bytes - offset,
            "a piece lies in its area"
        );
        (self.addr.wrapping_add(offset), length)
    }

    /// What the application may write to at any time but what it is held from.
    fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        let (at, length) = self.at(offset, length);
        // SAFETY: in bounds of the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    fn bytes_mut(&mut self, offset: u64, length: u64) -> &mut [u8] {
        let (at, length) = self.at(offset, length);
        // SAFETY: as above; the application has no such page mapped until it is told of it.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.addr.cast(), self.size_bytes) };
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

fn os(call: &'static str) -> impl Fn(Errno) -> ServerError {
    move |errno| ServerError::Os {
        call,
        source: errno.into(),
    }
}
