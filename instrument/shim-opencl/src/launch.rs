//! Running kernels over a range of work-items.

use std::sync::Arc;

use crate::buffer::Memory;
use crate::command::Command;
use crate::context::check_same;
use crate::cuda::{self, Launch};
use crate::device::Limits;
use crate::handles::{self, Handle};
use crate::kernel::{Kernel, Value};
use crate::pointers::{In, Out};
use crate::ptx_text::{LOCAL_ALIGNMENT, NDRANGE_BYTES};
use crate::queue::{Queue, Waits, enqueue};
use crate::status::{Outcome, Status};
use crate::worker::Work;

entry_points! {
    status clEnqueueNDRangeKernel
        (queue: Handle, kernel: Handle, dimensions: u32, offset: In<usize>, global: In<usize>, local: In<usize>,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => run;
    status clEnqueueTask
        (queue: Handle, kernel: Handle, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => task;
}

const COMMAND_NDRANGE: u32 = 0x11F0;
const COMMAND_TASK: u32 = 0x11F1;
/// Groups whose size is ours to choose are no larger: more of them can be stopped, and run, on their own.
const CHOSEN_GROUP: usize = 256;

/// A range of work-items; sides beyond its dimensions are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    dimensions: u32,
    offset: [usize; 3],
    global: [usize; 3],
    local: [usize; 3],
}

/// What a kernel allows and wants.
#[derive(Clone, Copy, Debug)]
struct Groups {
    limits: Limits,
    max_group: usize,
    required: Option<[usize; 3]>,
}

impl Range {
    fn new(dimensions: u32, offset: In<usize>, global: In<usize>, local: In<usize>, groups: &Groups) -> Outcome<Self> {
        if !(1..=3).contains(&dimensions) {
            return Err(Status::INVALID_WORK_DIMENSION);
        }
        let read = |values: In<usize>, rest: usize| -> Outcome<[usize; 3]> {
            let mut all = [rest; 3];
            for (axis, value) in all.iter_mut().enumerate().take(dimensions as usize) {
                *value = values.nth(axis)?;
            }
            Ok(all)
        };
        let global = read(global, 1).map_err(|_| Status::INVALID_GLOBAL_WORK_SIZE)?;
        if global.contains(&0) {
            return Err(Status::INVALID_GLOBAL_WORK_SIZE);
        }
        let offset = if offset.is_null() { [0; 3] } else { read(offset, 0)? };
        if offset
            .iter()
            .zip(&global)
            .any(|(offset, size)| offset.checked_add(*size).is_none())
        {
            return Err(Status::INVALID_GLOBAL_OFFSET);
        }
        let local = if local.is_null() {
            groups.choose(global)?
        } else {
            read(local, 1)?
        };
        groups.check(local, global, dimensions)?;
        Ok(Self {
            dimensions,
            offset,
            global,
            local,
        })
    }

    /// The hidden parameter.
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NDRANGE_BYTES);
        for word in self.offset.into_iter().chain([self.dimensions as usize]) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Groups {
    /// A size for groups: along each axis as much as divides the range and is left of what a group may have.
    ///
    /// # Errors
    /// If the kernel requires a size: the program must give it then (OpenCL 1.2, `clEnqueueNDRangeKernel`).
    fn choose(&self, global: [usize; 3]) -> Outcome<[usize; 3]> {
        if self.required.is_some() {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        let mut left = self.max_group.min(self.limits.group).min(CHOSEN_GROUP);
        let mut local = [1; 3];
        for axis in 0..3 {
            // Ranges of more than one dimension are better served by groups that are not all in one row.
            let is_line = global[axis + 1..].iter().all(|&side| side == 1);
            let most = if is_line { left } else { left.min(16) };
            let most = most.min(self.limits.group_sides[axis]).min(global[axis]);
            let side = (1..=most)
                .rev()
                .find(|&side| global[axis].is_multiple_of(side))
                .unwrap_or(1);
            local[axis] = side;
            left /= side;
        }
        Ok(local)
    }

    fn check(&self, local: [usize; 3], global: [usize; 3], dimensions: u32) -> Outcome {
        let dimensions = dimensions as usize;
        if local.contains(&0) || self.required.is_some_and(|required| required != local) {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        if local
            .iter()
            .zip(&self.limits.group_sides)
            .any(|(side, most)| side > most)
        {
            return Err(Status::INVALID_WORK_ITEM_SIZE);
        }
        let is_whole = local
            .iter()
            .zip(&global)
            .take(dimensions)
            .all(|(side, all)| all.is_multiple_of(*side));
        let size: usize = local.iter().product();
        if !is_whole || size > self.max_group || size > self.limits.group {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        let mut grid = global.iter().zip(&local).zip(&self.limits.grid_sides);
        if grid.any(|((all, side), most)| all / side > *most) {
            return Err(Status::INVALID_GLOBAL_WORK_SIZE);
        }
        Ok(())
    }
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn run(
    queue: Handle,
    kernel: Handle,
    dimensions: u32,
    offset: In<usize>,
    global: In<usize>,
    local: In<usize>,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, kernel) = find(queue, kernel)?;
    let range = Range::new(dimensions, offset, global, local, &groups(&kernel)?)?;
    let waits = Waits {
        count: num_waits,
        events,
        event,
        is_blocking: false,
    };
    let command = command(&kernel, range)?;
    enqueue(&queue, waits, COMMAND_NDRANGE, Work::Device(command))
}

fn task(queue: Handle, kernel: Handle, num_waits: u32, events: In<Handle>, event: Out<Handle>) -> Outcome {
    let (queue, kernel) = find(queue, kernel)?;
    let range = Range {
        dimensions: 1,
        offset: [0; 3],
        global: [1; 3],
        local: [1; 3],
    };
    groups(&kernel)?.check(range.local, range.global, 1)?;
    let waits = Waits {
        count: num_waits,
        events,
        event,
        is_blocking: false,
    };
    let command = command(&kernel, range)?;
    enqueue(&queue, waits, COMMAND_TASK, Work::Device(command))
}

fn find(queue: Handle, kernel: Handle) -> Outcome<(Arc<Queue>, Arc<Kernel>)> {
    let queue = handles::get::<Queue>(queue)?;
    let kernel = handles::get::<Kernel>(kernel)?;
    check_same(&queue.context, &kernel.program.context)?;
    Ok((queue, kernel))
}

fn groups(kernel: &Kernel) -> Outcome<Groups> {
    let required = kernel.code.declaration.required_group;
    Ok(Groups {
        limits: Limits::of(cuda::driver()?),
        max_group: kernel.code.max_group,
        required: required.map(|size| size.map(|side| side as usize)),
    })
}

/// The launch of a kernel with the arguments it has now.
fn command(kernel: &Kernel, range: Range) -> Outcome<Command> {
    let arguments = kernel.arguments()?;
    let mut params = Vec::with_capacity(arguments.len() + 1);
    let mut keep: Vec<Arc<Memory>> = Vec::new();
    let mut shared_bytes = 0_usize;
    for argument in arguments {
        params.push(match argument {
            Value::Bytes(bytes) => bytes,
            Value::Buffer(None) => 0_u64.to_ne_bytes().to_vec(),
            Value::Buffer(Some(memory)) => {
                let memory = memory.upgrade().ok_or(Status::INVALID_MEM_OBJECT)?;
                let addr = memory.addr();
                keep.push(memory);
                addr.to_ne_bytes().to_vec()
            }
            Value::Local(size_bytes) => {
                let at = shared_bytes as u64;
                let next = shared_bytes
                    .checked_add(size_bytes)
                    .and_then(|end| end.checked_next_multiple_of(LOCAL_ALIGNMENT));
                shared_bytes = next.ok_or(Status::OUT_OF_RESOURCES)?;
                at.to_ne_bytes().to_vec()
            }
        });
    }
    params.push(range.to_bytes());
    let most = Limits::of(cuda::driver()?).local_bytes;
    if kernel.code.local_bytes + shared_bytes as u64 > most {
        return Err(Status::OUT_OF_RESOURCES);
    }
    let number = |n: usize| u32::try_from(n).map_err(|_| Status::INVALID_GLOBAL_WORK_SIZE);
    let mut launch = Launch {
        function: kernel.code.function,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: number(shared_bytes)?,
        params,
    };
    for axis in 0..3 {
        launch.grid[axis] = number(range.global[axis] / range.local[axis])?;
        launch.block[axis] = number(range.local[axis])?;
    }
    Ok(Command::Launch {
        launch,
        _keep: keep,
        _code: kernel.executable.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: Groups = Groups {
        limits: Limits {
            group: 1024,
            group_sides: [1024, 1024, 64],
            grid_sides: [0x7fff_ffff, 65_535, 65_535],
            local_bytes: 49_152,
        },
        max_group: 1024,
        required: None,
    };

    #[test]
    fn a_chosen_group_divides_the_range() {
        for (global, local) in [
            ([1 << 20, 1, 1], [256, 1, 1]),
            ([1000, 1, 1], [250, 1, 1]),
            ([7919, 1, 1], [1, 1, 1]),
            ([64, 64, 1], [16, 16, 1]),
            ([3, 640, 480], [3, 16, 5]),
            ([1, 1, 4096], [1, 1, 64]),
        ] {
            assert_eq!(GROUPS.choose(global), Ok(local), "{global:?}");
            assert_eq!(GROUPS.check(local, global, 3), Ok(()), "{global:?}");
        }
    }

    #[test]
    fn a_wrong_group_has_its_own_error() {
        let check = |local, global| GROUPS.check(local, global, 3);
        assert_eq!(check([3, 1, 1], [8, 1, 1]), Err(Status::INVALID_WORK_GROUP_SIZE));
        assert_eq!(check([64, 64, 1], [64, 64, 1]), Err(Status::INVALID_WORK_GROUP_SIZE));
        assert_eq!(check([1, 1, 128], [1, 1, 128]), Err(Status::INVALID_WORK_ITEM_SIZE));
        assert_eq!(check([1, 1, 1], [1, 1 << 20, 1]), Err(Status::INVALID_GLOBAL_WORK_SIZE));
        let required = Groups {
            required: Some([8, 4, 1]),
            ..GROUPS
        };
        assert_eq!(
            required.check([4, 8, 1], [64, 64, 1], 2),
            Err(Status::INVALID_WORK_GROUP_SIZE)
        );
        assert_eq!(required.choose([64, 64, 1]), Err(Status::INVALID_WORK_GROUP_SIZE));
        assert_eq!(required.check([8, 4, 1], [64, 64, 1], 2), Ok(()));
        // In one dimension the second side is 1, whatever was given.
        assert_eq!(
            required.check([8, 1, 1], [64, 1, 1], 1),
            Err(Status::INVALID_WORK_GROUP_SIZE)
        );
    }

    #[test]
    fn the_hidden_parameter_has_its_size() {
        let range = Range {
            dimensions: 2,
            offset: [1, 2, 0],
            global: [4, 4, 1],
            local: [2, 2, 1],
        };
        let bytes = range.to_bytes();
        assert_eq!((bytes.len(), bytes[0], bytes[8], bytes[24]), (NDRANGE_BYTES, 1, 2, 2));
    }
}
