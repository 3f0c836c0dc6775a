//! The request to stop, and what must be laid out before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::CudaInner;
use super::arena::{Arenas, Scratch};
use super::driver::{self, DriverError, Result};
use super::flight::{Flight, Prepared};
use super::handles::Context;
use super::transfer::Transfers;
use crate::control::ControlWords;
use crate::device::RunningLaunch as _;

const WORD_BYTES: u64 = size_of::<u32>() as u64;

/// What launching and pausing share.
pub(super) struct Pausing {
    pub is_paused: bool,
    pub arenas: Arenas,
    pub scratch: Scratch,
    /// Launches under way, by queue, in order.
    pub flights: BTreeMap<u64, VecDeque<Arc<Flight>>>,
}

impl Pausing {
    /// Drops launches that are over.
    pub fn forget_done(&mut self) {
        self.flights.retain(|_, queue| {
            while queue.front().is_some_and(|flight| flight.is_done()) {
                queue.pop_front();
            }
            !queue.is_empty()
        });
    }

    /// A control block that no launch uses.
    pub fn take_control(&mut self, device: &CudaInner) -> Result<u64> {
        for control in device.returned_controls.lock().drain(..) {
            self.arenas.give_back(control);
        }
        self.arenas.take(&device.context)
    }

    /// Enters a launch behind the others of its queue.
    pub fn add(&mut self, queue: u64, flight: Arc<Flight>) {
        self.forget_known_done(queue).push_back(flight);
    }

    /// Drops launches of a queue that are known to be over; returns the others.
    pub fn forget_known_done(&mut self, queue: u64) -> &mut VecDeque<Arc<Flight>> {
        let flights = self.flights.entry(queue).or_default();
        while flights.front().is_some_and(|first| first.is_known_done()) {
            flights.pop_front();
        }
        flights
    }

    /// Tells all launches under way to stop. What they will need is laid out first, then the control blocks say where
    /// it is, then the pause words are set: copies on one stream, seen in this order.
    pub fn request(&mut self, transfers: &Transfers, context: &Context) -> Result<()> {
        if self.is_paused {
            return Ok(());
        }
        self.forget_done();
        let queues: Vec<Vec<Arc<Flight>>> = self
            .flights
            .values()
            .map(|queue| queue.iter().cloned().collect())
            .collect();
        let mut controls = Vec::new();
        for queue in &queues {
            self.prepare(queue, transfers, context, &mut controls)?;
        }
        self.arenas.write(&controls)?;
        self.arenas.set_pause(true)?;
        self.is_paused = true;
        Ok(())
    }

    /// Lays out memory for the launches of one queue. They run one after another, so the blocks that can stop part-way
    /// are those on the device when the request is seen, and slots can be shared. Adds what their control blocks are to
    /// say to `controls`.
    fn prepare(
        &mut self,
        queue: &[Arc<Flight>],
        transfers: &Transfers,
        context: &Context,
        controls: &mut Vec<(u64, ControlWords)>,
    ) -> Result<()> {
        let launches = || queue.iter().flat_map(|flight| flight.launches.as_slice());
        let slot_stride = launches().map(|l| l.plan.shape.slot().stride).max().unwrap_or(0);
        // While one launch ends the next may begin.
        let resident: Vec<u64> = launches().map(|l| l.plan.max_resident).collect();
        let num_slots = resident.windows(2).map(|two| two[0] + two[1]).max();
        let num_slots = num_slots.unwrap_or(0).max(resident.first().copied().unwrap_or(0));
        let too_many = |_| DriverError {
            call: "reserving slots",
            code: driver::INVALID_VALUE,
        };
        let num_slots = u32::try_from(num_slots).map_err(too_many)?;
        let slots = self
            .scratch
            .take(transfers, context, u64::from(num_slots) * slot_stride)?;
        let slot_counter = self.scratch.take(transfers, context, 4)?;
        for flight in queue {
            let size = flight.num_list_words() * WORD_BYTES;
            let lists = self.scratch.take(transfers, context, size)?;
            let mut block_slot = lists;
            for launched in flight.launches.as_slice() {
                let words = ControlWords {
                    num_slots,
                    slot_counter,
                    block_slot,
                    entry_bits: block_slot + launched.plan.num_blocks * WORD_BYTES,
                    slots,
                    slot_stride,
                    ..launched.words
                };
                controls.push((launched.control, words));
                block_slot += launched.plan.num_list_words() * WORD_BYTES;
            }
            *flight.prepared.lock() = Some(Prepared {
                lists,
                slots,
                slot_stride,
            });
        }
        Ok(())
    }

    /// Lets launches run again. Those that were told to stop have been waited for.
    pub fn end(&mut self, transfers: &Transfers, context: &Context) -> Result<()> {
        if !self.is_paused {
            return Ok(());
        }
        let flights: Vec<Arc<Flight>> = self.flights.values().flatten().cloned().collect();
        for flight in &flights {
            // One that nobody waits for any more must not find its memory gone.
            flight.wait_for_end()?;
        }
        self.forget_done();
        self.scratch.reset(transfers, context)?;
        self.arenas.set_pause(false)?;
        self.is_paused = false;
        Ok(())
    }
}
