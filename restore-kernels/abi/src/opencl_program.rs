//! What a kernel written as OpenCL C takes, and where it leaves what is left of a launch.
//!
//! Blocks are numbered by their linear index in the program's grid (32 bits). An ordinary launch has the program's
//! grid; a continuation has one dimension, and its group `i` is block `resumed[i]`: the first of them go on as their
//! slots say, the others start at the entry.
//!
//! The host sets the pause word while kernels run. A group looks at it before it does anything: if it is set, the group
//! counts itself in [`count::TURNED_AWAY`], which is also where in the list of blocks turned away it puts its block.
//! Later, threads stop in one of two ways ([`Stops`]), which are counted in [`count::STOPPED`]. The host zeroes the
//! counts before a launch; if both are 0 after it, all blocks have finished.
//!
//! Where kernels do not see what the host writes while they run, a program *counts* its looks at the pause word
//! ([`OpenClProgram::counts_looks`]): each adds the launch's [`Argument::LookPrice`], and the word says stop from
//! [`looks::STOP`] on. The host sets it to [`looks::FULL`] while nothing runs. So all launches stop after a while,
//! those queued behind are turned away, and the host goes on with them or does not.
//!
//! Threads may find the places full. They then go on, and try again at their next probe.

/// An argument of a generated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// `__global uchar *`: the buffer that backs device memory, or the first of them
    /// ([`OpenClProgram::with_memory_in`]).
    Arena,
    /// `ulong`: the device address of its first byte.
    ArenaBase,
    /// A structure by value: the parameter buffer, filled up to this size.
    Params {
        /// Size of the structure in bytes.
        size_bytes: u32,
    },
    /// `__local`: static and dynamic shared memory, up to a multiple of 16 bytes and at least 16.
    Shared,
    /// `uint`: size of dynamic shared memory in bytes.
    DynamicSharedBytes,
    /// `__local`: room for exchange between lanes.
    Lanes {
        /// Size in bytes for each thread of a block.
        bytes_per_thread: u32,
    },
    /// `__global uint *`: [`count::NUM`] words.
    Counts,
    /// `__global const volatile uint *`: not 0 = stop at the next probe.
    Pause,
    /// `uint`: what a look at the pause word costs. Only programs that count them take it, and their pause word is
    /// `__global volatile uint *`.
    LookPrice,
    /// `__global const volatile ulong *`: nanoseconds of the host's clock, which the host writes there again and again
    /// while such kernels run. OpenCL C has no clock.
    HostClock,
    /// `uint4`: the program's grid, x first, and how many groups of a continuation go on as their slots say.
    Grid,
    /// `__global const uint *`: block of each group of a continuation; null for an ordinary launch.
    Resumed,
    /// `__global const uchar *`: slots ([`crate::launch_control::SlotLayout`]) of the groups that go on; null if there
    /// are none.
    ResumedSlots,
    /// `__global uint *`: blocks that were turned away; room for one a group.
    TurnedAway,
    /// `__global uchar *`: what has stopped ([`Stops`]).
    Stopped,
    /// `uint`: room there, in slots or records.
    NumStopped,
}

/// Words of [`Argument::Counts`].
pub mod count {
    /// Blocks turned away.
    pub const TURNED_AWAY: usize = 0;
    /// Slots or records taken.
    pub const STOPPED: usize = 1;
    /// Not 0: a thread trapped.
    pub const TRAPPED: usize = 2;
    /// Number of words.
    pub const NUM: usize = 4;
}

/// Values of a pause word that counts looks.
pub mod looks {
    /// From here on it says stop.
    pub const STOP: u32 = 1 << 31;
    /// What can be spent until then: prices from 1 to [`most`] of it are possible.
    pub const BUDGET: u32 = 1 << 27;
    /// The word when nothing has been spent.
    pub const FULL: u32 = STOP - BUDGET;

    /// The highest price where `threads` may look at the same time: the word must not overflow before one of them has
    /// set it back to [`STOP`].
    #[must_use]
    pub const fn most(threads: u32) -> u32 {
        let most = STOP / (if threads < 16 { 16 } else { threads });
        if most == 0 { 1 } else { most }
    }
}

/// How a program that counts looks does that. Once the word says stop it stays so: a read may be out of date, which
/// costs an addition that is taken back, but an addition never is.
pub const STOP_ASKED: &str = "\
// Kernels do not see the host's writes: they stop after so many looks.
static uint stop_asked(__global volatile uint *pause, uint look_price)
{
    if (*pause >> 31) return 1;
    if (!(atomic_add(pause, look_price) >> 31)) return 0;
    atomic_xchg(pause, 1u << 31);
    return 1;
}

";

/// How threads stop after their block has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// Each on its own: kernels whose threads do not wait for one another. Takes [`RecordLayout`]s; a thread of a
    /// started block that has none has finished.
    Threads,
    /// The block as a whole. Takes slots ([`crate::launch_control::SlotLayout`]) with the block's index where shared
    /// memory is claimed otherwise.
    Blocks,
}

/// Layout of a record of one stopped thread: u32 block, u32 thread (linear index in the block), u32 resume point, u32
/// 0, then registers as a register area for one thread ([`crate::thread_state::ThreadStateLayout`]), then the local
/// frame. Registers that are not live at the resume point are undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Offset of the registers.
    pub registers: u64,
    /// Offset of the local frame.
    pub local: u64,
    /// Size, a multiple of 16.
    pub stride: u64,
}

impl RecordLayout {
    /// The layout for `bytes_per_thread` of saved registers and local frames of `local_bytes`.
    #[must_use]
    pub fn new(bytes_per_thread: u32, local_bytes: u32) -> Self {
        let up = |n: u64| n.next_multiple_of(16);
        let registers = 16;
        let local = up(registers + u64::from(bytes_per_thread));
        Self {
            registers,
            local,
            stride: up(local + u64::from(local_bytes)),
        }
    }
}

/// What the device must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// `cl_khr_fp64`.
    pub fp64: bool,
    /// `cl_khr_int64_base_atomics`.
    pub int64_base_atomics: bool,
    /// `cl_khr_int64_extended_atomics`.
    pub int64_extended_atomics: bool,
    /// `CL_FP_DENORM` for `float`.
    pub f32_subnormals: bool,
    /// `CL_FP_DENORM` for `double`.
    pub f64_subnormals: bool,
    /// Built with `-cl-fp32-correctly-rounded-divide-sqrt`.
    pub correctly_rounded_divide_sqrt: bool,
}

impl Requirements {
    /// All that any kernel can need.
    pub const ALL: Self = Self {
        fp64: true,
        int64_base_atomics: true,
        int64_extended_atomics: true,
        f32_subnormals: true,
        f64_subnormals: true,
        correctly_rounded_divide_sqrt: true,
    };

    /// What they are called where users read of them.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            (self.fp64, "cl_khr_fp64"),
            (self.int64_base_atomics, "cl_khr_int64_base_atomics"),
            (self.int64_extended_atomics, "cl_khr_int64_extended_atomics"),
            (self.f32_subnormals, "subnormal numbers of type float"),
            (self.f64_subnormals, "subnormal numbers of type double"),
            (
                self.correctly_rounded_divide_sqrt,
                "correctly rounded division and square roots of type float",
            ),
        ];
        all.into_iter()
            .filter(|&(is_needed, _)| is_needed)
            .map(|(_, name)| name)
            .collect()
    }
}

/// What a program's text has before its first access to device memory, by `GLOBAL`, and its kernel, which names
/// `MORE_ARENAS` behind its last argument. [`OpenClProgram::with_memory_in`] puts something else in its place.
pub const MEMORY_IN_ONE_BUFFER: &str = "\
#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
";

/// A kernel as OpenCL C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenClProgram {
    /// The program's text.
    pub text: String,
    /// Name of the kernel in it.
    pub entry: String,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
    /// What it needs beyond OpenCL C 1.2's core.
    pub requires: Requirements,
    /// How its threads stop.
    pub stops: Stops,
    /// It orders accesses for other blocks, too (PTX `membar.gl`, acquire and release): in OpenCL C 2.0 and later, by
    /// fences of device scope; in OpenCL C 1.2, which has none, by fences of the block.
    pub orders_for_device: bool,
}

impl OpenClProgram {
    /// The program for device memory that lies in `num` buffers of `1 << shift` bytes, the last of which may be
    /// smaller: an access takes the bits above `shift` of its distance from [`Argument::ArenaBase`] for the buffer's
    /// number. The buffers behind the first are arguments behind all others, in order. For one buffer that is the
    /// program as it is.
    #[must_use]
    pub fn with_memory_in(&self, num: u32, shift: u32) -> Self {
        if num < 2 {
            return self.clone();
        }
        let more: Vec<String> = (1..num).map(|i| format!("arena_{i}")).collect();
        let declared: String = more.iter().map(|name| format!(", __global uchar *{name}")).collect();
        let choices: String = (1..num).map(|i| format!("which == {i}u ? arena_{i} : ")).collect();
        let text = format!(
            "// Device memory lies in {num} buffers of 1 << {shift} bytes.\n\
             #define MORE_ARENAS {declared}\n\
             #define GLOBAL(type, address) (*(__global type *)arena_at((address) - arena_base, arena, {}))\n\
             __global uchar *arena_at(ulong at, __global uchar *arena{declared}) {{\n    \
                 const uint which = (uint)(at >> {shift});\n    \
                 return ({choices}arena) + (at & ((1ul << {shift}) - 1));\n\
             }}\n\n",
            more.join(", ")
        );
        Self {
            text: text + &self.text,
            ..self.clone()
        }
    }

    /// True if it counts its looks at the pause word.
    #[must_use]
    pub fn counts_looks(&self) -> bool {
        self.arguments.contains(&Argument::LookPrice)
    }

    /// True if its kernels look at the host's clock.
    #[must_use]
    pub fn reads_clock(&self) -> bool {
        self.arguments.contains(&Argument::HostClock)
    }

    /// True if groups can be told their blocks.
    #[must_use]
    pub fn takes_resumed(&self) -> bool {
        self.arguments.contains(&Argument::Resumed)
    }
}
