//! What a device shares with the host, found out by trying.

use std::time::{Duration, Instant};

use super::Limits;
use super::arena::Arena;
use super::buffers::DeviceBuffer;
use super::failure::Result;
use super::handles::{CommandQueue, Context, Program};
use super::host_memory::HostMemory;
use super::not_shared::{Finding, NotShared};
use super::pausing::PauseWord;
use super::program_form::{ProgramForm, helper_program};
use crate::device::{DEVICE_BASE, GRANULARITY};
use crate::error::DeviceError;

/// Kernels that try.
const TEXT: &str = "
__kernel void hk_address(__global ulong *arena, __global ulong *outside, ulong host, ulong base) {
    outside[0] = (ulong)arena;
    outside[1] = arena[0];
    arena[1] = 0x5eed;
    // Elsewhere the other memory is not there.
    if ((ulong)arena == base) *(__global ulong *)((__global uchar *)arena + (host - base)) = 0xfeed;
}

// Counts the groups that have seen the word change, that have found it changed already, and that have given up.
__kernel void hk_watch(__global const volatile uint *word, __global volatile uint *seen, uint limit) {
    if (seen[2] != 0) return;
    if (*word != 0) { atomic_inc(seen + 1); return; }
    for (uint i = 0; i < limit; i++)
        if (*word != 0) { atomic_inc(seen); return; }
    atomic_inc(seen + 2);
}
";

/// How long kernels watch after the change before it counts as not seen.
const LONG_ENOUGH: Duration = Duration::from_millis(60);
/// Times that it must not be seen, since the host may be slow for other reasons.
const MAX_UNSEEN: u32 = 2;
/// How long all multiprocessors get to begin before the change, at first: twice as long, up to [`LONG_ENOUGH`], after
/// each time that they began too late.
const HEAD_START: Duration = Duration::from_millis(3);
/// Times that a change must be seen.
const ROUNDS: u32 = 3;
/// Times that kernels may begin too late to see it.
const MAX_LATE: u32 = 8;
/// The most looks at the word.
const MAX_LIMIT: u32 = 1 << 28;

/// The kernels, built.
pub(super) struct SelfTest {
    program: Program,
    queue: CommandQueue,
    num_groups: usize,
    first_limit: u32,
}

impl SelfTest {
    pub fn new(context: &Context, limits: &Limits, form: ProgramForm) -> std::result::Result<Self, DeviceError> {
        let program = form.create(context, &helper_program(TEXT))?;
        program.build(context.device, "-cl-std=CL1.2")?;
        Ok(Self {
            program,
            queue: context.queue()?,
            // All multiprocessors are to be busy while the host writes; drivers of CPUs hand out many groups at once.
            num_groups: limits.num_multiprocessors as usize * 64,
            // Some milliseconds, so that most changes are seen the first time.
            first_limit: if limits.is_cpu { 1 << 24 } else { 1 << 14 },
        })
    }

    /// Tries whether kernels find the arena where the host has it, see what the host has written there, leave what the
    /// host sees, and reach the host's other memory.
    pub fn shares_memory(&self, context: &Context, arena: &Arena) -> std::result::Result<(), NotShared> {
        let outside = DeviceBuffer::zeroed(context, true, 16, &self.queue)?;
        let other = HostMemory::zeroed(64).map_err(NotShared::NoMemory)?;
        arena.map(context, DEVICE_BASE, GRANULARITY)?;
        arena.write(DEVICE_BASE, &[0x11; 8])?;
        self.run_address(arena, &outside, &other)?;
        let mut words = [0; 16];
        outside.read(&self.queue, &mut words)?;
        let (at, content) = words.split_at(8);
        let mut left = [0; 8];
        arena.read(DEVICE_BASE + 8, &mut left)?;
        let mut reached = [0; 8];
        other.read(0, &mut reached);
        arena.unmap(DEVICE_BASE, GRANULARITY)?;
        let facts = [
            (at == DEVICE_BASE.to_le_bytes(), Finding::Elsewhere),
            (content == [0x11; 8], Finding::HostsWritesUnseen),
            (left == 0x5eed_u64.to_le_bytes(), Finding::KernelsWritesUnseen),
            (reached == 0xfeed_u64.to_le_bytes(), Finding::HostsMemoryUnreached),
        ];
        match facts.iter().find(|(holds, _)| !holds) {
            Some((_, found)) => Err(NotShared::Found(*found)),
            None => Ok(()),
        }
    }

    fn run_address(&self, arena: &Arena, outside: &DeviceBuffer, other: &HostMemory) -> Result<()> {
        let mut kernel = self.program.kernel("hk_address")?;
        kernel.set_buffer(0, arena.buffers().next())?;
        kernel.set_buffer(1, Some(&outside.mem))?;
        kernel.set_value(2, &(other.at() as u64).to_ne_bytes())?;
        kernel.set_value(3, &DEVICE_BASE.to_ne_bytes())?;
        #[allow(unsafe_code, reason = "starts a kernel")]
        // SAFETY: the kernel writes to the first words of three pieces of memory that are there.
        let event = unsafe { self.queue.launch(&kernel, &[1; 3], &[1; 3], &[]) }?;
        event.wait()
    }

    /// Tries whether running kernels see the pause word change. The word is as before afterwards.
    pub fn sees_host_writes(&self, context: &Context, is_shared: bool, word: &PauseWord) -> Result<bool> {
        let (mut limit, mut head_start) = (self.first_limit, HEAD_START);
        // Rounds in which kernels saw the change; did not, though they had time; began after it.
        let (mut rounds, mut unseen, mut late) = (0, 0, 0);
        while rounds < ROUNDS {
            let (watched, [seen, _, gave_up]) = self.watch(context, is_shared, word, limit, head_start)?;
            if gave_up > 0 {
                unseen += u32::from(watched > LONG_ENOUGH);
                limit *= 4;
            } else if seen > 0 {
                rounds += 1;
            } else {
                late += 1;
                head_start = LONG_ENOUGH.min(head_start * 2);
            }
            if limit > MAX_LIMIT || unseen >= MAX_UNSEEN || late > MAX_LATE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Changes the word while kernels watch it: how long they ran from then on, and their counts.
    fn watch(
        &self,
        context: &Context,
        is_shared: bool,
        word: &PauseWord,
        limit: u32,
        head_start: Duration,
    ) -> Result<(Duration, [u32; 3])> {
        let seen = DeviceBuffer::zeroed(context, is_shared, 16, &self.queue)?;
        let mut kernel = self.program.kernel("hk_watch")?;
        kernel.set_buffer(0, Some(word.mem()))?;
        kernel.set_buffer(1, Some(&seen.mem))?;
        kernel.set_value(2, &limit.to_ne_bytes())?;
        #[allow(unsafe_code, reason = "starts a kernel")]
        // SAFETY: the kernel reads the word and counts in the three words of `seen`; it ends by itself.
        let event = unsafe { self.queue.launch(&kernel, &[self.num_groups, 1, 1], &[1; 3], &[]) }?;
        self.queue.flush()?;
        // The event could tell when they have begun, but drivers keep who asks it waiting until they have ended
        // (rusticl).
        std::thread::sleep(head_start);
        let asked = Instant::now();
        let told = word
            .set(true)
            .and_then(|told| told.map_or(Ok(()), |event| event.wait()));
        let ended = event.wait();
        let watched = asked.elapsed();
        let reset = word
            .set(false)
            .and_then(|told| told.map_or(Ok(()), |event| event.wait()));
        told.and(ended).and(reset)?;
        let mut counts = [0; 12];
        seen.read(&self.queue, &mut counts)?;
        let count = |i: usize| u32::from_le_bytes([counts[i], counts[i + 1], counts[i + 2], counts[i + 3]]);
        Ok((watched, [count(0), count(4), count(8)]))
    }
}
