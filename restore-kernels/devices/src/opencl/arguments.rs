//! A launch's arguments, in the order that the program names.

use hetckpt_abi::opencl_program::{Argument, OpenClProgram};

use super::failure::Result;
use super::handles::{Kernel, Mem};
use crate::control::BlockShape;
use crate::device::{DEVICE_BASE, Launch};

/// Local memory that a kernel takes at least, since OpenCL has none of size 0.
pub(super) const MIN_SHARED_BYTES: u32 = 16;

/// What arguments are made of.
pub(super) struct Values<'a> {
    pub launch: &'a Launch,
    pub shape: &'a BlockShape,
    /// The buffers that back device memory, as many as the kernel is built for.
    pub arena: &'a [&'a Mem],
    pub counts: &'a Mem,
    pub pause: &'a Mem,
    /// What a look at it costs, where they are counted.
    pub look_price: u32,
    pub clock: &'a Mem,
    /// Groups that go on as their slots say.
    pub num_resumed: u32,
    pub resumed: Option<&'a Mem>,
    pub resumed_slots: Option<&'a Mem>,
    pub turned_away: &'a Mem,
    pub stopped: Option<&'a Mem>,
    pub num_stopped: u32,
}

/// Bytes of local memory that a launch of `program` takes.
pub(super) fn local_bytes(program: &OpenClProgram, shape: &BlockShape) -> u64 {
    let of = |argument: &Argument| match argument {
        Argument::Shared => u64::from(whole_words(shape.shared_bytes)),
        Argument::Lanes { bytes_per_thread } => u64::from(*bytes_per_thread) * u64::from(shape.threads),
        _ => 0,
    };
    program.arguments.iter().map(of).sum()
}

/// Sets all arguments.
pub(super) fn set(kernel: &mut Kernel, program: &OpenClProgram, values: &Values<'_>) -> Result<()> {
    for (index, argument) in (0u32..).zip(&program.arguments) {
        set_one(kernel, index, argument, values)?;
    }
    let behind = (program.arguments.len() as u32..).zip(&values.arena[1..]);
    for (index, buffer) in behind {
        kernel.set_buffer(index, Some(buffer))?;
    }
    Ok(())
}

fn set_one(kernel: &mut Kernel, index: u32, argument: &Argument, values: &Values<'_>) -> Result<()> {
    match argument {
        Argument::Arena => kernel.set_buffer(index, values.arena.first().copied()),
        Argument::ArenaBase => kernel.set_value(index, &DEVICE_BASE.to_ne_bytes()),
        Argument::Params { size_bytes } => {
            let mut params = values.launch.params.to_vec();
            params.resize(*size_bytes as usize, 0);
            kernel.set_value(index, &params)
        }
        Argument::Shared => kernel.set_local(index, whole_words(values.shape.shared_bytes) as usize),
        Argument::DynamicSharedBytes => {
            kernel.set_value(index, &values.launch.shape.dynamic_shared_bytes.to_ne_bytes())
        }
        Argument::Lanes { bytes_per_thread } => kernel.set_local(
            index,
            whole_words(bytes_per_thread.saturating_mul(values.shape.threads)) as usize,
        ),
        Argument::Counts => kernel.set_buffer(index, Some(values.counts)),
        Argument::Pause => kernel.set_buffer(index, Some(values.pause)),
        Argument::LookPrice => kernel.set_value(index, &values.look_price.to_ne_bytes()),
        Argument::HostClock => kernel.set_buffer(index, Some(values.clock)),
        Argument::Grid => {
            let [x, y, z] = values.launch.shape.grid;
            let words = [x, y, z, values.num_resumed].map(u32::to_ne_bytes);
            kernel.set_value(index, words.as_flattened())
        }
        Argument::Resumed => kernel.set_buffer(index, values.resumed),
        Argument::ResumedSlots => kernel.set_buffer(index, values.resumed_slots),
        Argument::TurnedAway => kernel.set_buffer(index, Some(values.turned_away)),
        Argument::Stopped => kernel.set_buffer(index, values.stopped),
        Argument::NumStopped => kernel.set_value(index, &values.num_stopped.to_ne_bytes()),
    }
}

/// A size of local memory that has whole 16 bytes, and some.
fn whole_words(bytes: u32) -> u32 {
    bytes.max(MIN_SHARED_BYTES).next_multiple_of(16)
}
