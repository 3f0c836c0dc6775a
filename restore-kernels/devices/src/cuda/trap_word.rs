//! Where kernels say that they have trapped: a word of host memory. A real trap would take the device's memory from the
//! program, with all that kernels have printed, and a failed assertion's message.

use std::sync::atomic::Ordering;

use hetckpt_abi::launch_control::TRAP_WORD_ADDRESS_AT;

use super::driver::Result;
use super::handles::{Pinned, Stream};

const WORD_BYTES: usize = size_of::<u64>();

/// The word, and behind it its address as kernels have it.
pub(super) struct TrapWord(Pinned);

impl TrapWord {
    pub fn new() -> Result<Self> {
        let mut memory = Pinned::new(2 * WORD_BYTES)?;
        // With unified addresses the device has pinned memory where the host has it.
        let addr = memory.bytes().as_ptr().expose_provenance() as u64;
        memory.bytes_mut()[WORD_BYTES..].copy_from_slice(&addr.to_le_bytes());
        Ok(Self(memory))
    }

    /// Starts telling the kernels whose control blocks lie in an arena where it is.
    pub fn tell(&self, arena: u64, stream: &Stream) -> Result<()> {
        self.0
            .send_part(WORD_BYTES, arena + TRAP_WORD_ADDRESS_AT, WORD_BYTES, stream)
    }

    /// True if the launch with this control block, which has ended, has trapped. It is asked once: the control block
    /// may be another launch's next.
    pub fn take(&self, control: u64) -> bool {
        let word = self.0.first_word();
        // Each launch asks, and hardly one has trapped: a load costs less than an exchange.
        word.load(Ordering::Acquire) == control
            && word
                .compare_exchange(control, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}
