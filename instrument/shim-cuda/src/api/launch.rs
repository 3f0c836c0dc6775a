//! Kernel launches.

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_ring::reply::{KernelDescription, KernelParam};

use crate::graph::operation::{Launch, Operation};
use crate::guard::Current;
use crate::handles::Handle;
use crate::host_functions::{HostFn, HostFunction};
use crate::library::Kernel;
use crate::log;
use crate::pointers::{HostMemory, In};
use crate::result::{CuResult, Outcome};
use crate::result_table;
use crate::session::Session;

use super::kernel::find;
use super::launch_config::LaunchConfig;
use super::occupancy::blocks_per_multiprocessor;

entry_points! {
    context cuLaunchKernel "cuLaunchKernel" 4000
        (kernel: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
         params: In<u64>, extra: In<u64>) => launch, cuLaunchKernel_ptsz 7000;
    context cuLaunchKernelEx "cuLaunchKernelEx" 11060
        (config: In<LaunchConfig>, kernel: Handle, params: In<u64>, extra: In<u64>) => launch_with_config, cuLaunchKernelEx_ptsz 11060;
    context cuLaunchCooperativeKernel "cuLaunchCooperativeKernel" 9000
        (kernel: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
         params: In<u64>) => launch_cooperative, cuLaunchCooperativeKernel_ptsz 9000;
    context cuLaunchHostFunc "cuLaunchHostFunc" 10000
        (stream: Handle, function: Option<HostFn>, argument: u64) => launch_host_function, cuLaunchHostFunc_ptsz 10000;
}

/// Largest packed parameters that CUDA allows.
const MAX_PARAM_BYTES: usize = 32_764;

/// `CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK`.
const MAX_REGISTERS_PER_BLOCK: u32 = 12;
const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;

/// A launch as asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The kernel.
    pub kernel: Handle,
    /// How many threads.
    pub shape: LaunchShape,
    /// Where; of no use to a graph's node.
    pub stream: Handle,
    /// Parameters, each by its address.
    pub params: In<u64>,
    /// Or all of them in a buffer (`CU_LAUNCH_PARAM_*`).
    pub extra: In<u64>,
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn launch(
    current: Current,
    kernel: Handle,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    dynamic_shared_bytes: u32,
    stream: Handle,
    params: In<u64>,
    extra: In<u64>,
) -> Outcome {
    let shape = LaunchShape {
        dynamic_shared_bytes,
        ..LaunchShape::new([gx, gy, gz], [bx, by, bz])
    };
    run(
        &current,
        &Request {
            kernel,
            shape,
            stream,
            params,
            extra,
        },
    )
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn launch_cooperative(
    current: Current,
    kernel: Handle,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    dynamic_shared_bytes: u32,
    stream: Handle,
    params: In<u64>,
) -> Outcome {
    let shape = LaunchShape {
        dynamic_shared_bytes,
        cooperative: true,
        ..LaunchShape::new([gx, gy, gz], [bx, by, bz])
    };
    let extra = In::NULL;
    run(
        &current,
        &Request {
            kernel,
            shape,
            stream,
            params,
            extra,
        },
    )
}

fn launch_with_config(
    current: Current,
    config: In<LaunchConfig>,
    kernel: Handle,
    params: In<u64>,
    extra: In<u64>,
) -> Outcome {
    let config = config.get()?;
    let shape = config.shape()?;
    let stream = config.stream;
    run(
        &current,
        &Request {
            kernel,
            shape,
            stream,
            params,
            extra,
        },
    )
}

/// What is asked for, if the kernel can be launched like that.
pub fn prepare(session: &Session, request: &Request) -> Outcome<Launch> {
    let kernel = find(session, request.kernel)?;
    let resolved = kernel.resolve(&session.device)?;
    let description = resolved.description();
    if let Some(reason) = &description.refused {
        log::failure(&format!("kernel {} cannot be run: {reason}", description.name));
        return Err(CuResult::NOT_SUPPORTED);
    }
    check_shape(session, &kernel, request, description)
        .inspect_err(|result| note_refusal(&kernel.name, &request.shape, *result))?;
    Ok(Launch {
        function: request.kernel,
        kernel: resolved.id(),
        shape: request.shape,
        params: pack(&description.params, request.params, request.extra)?.into(),
    })
}

fn run(current: &Current, request: &Request) -> Outcome {
    let session = current.session;
    let stream = current.stream(request.stream)?;
    let launch = prepare(session, request)?;
    let captured = session
        .captures
        .record(&session.graphs, stream, || Ok(Operation::Launch(launch.clone())));
    if let Some(captured) = captured {
        return captured;
    }
    let command = launch.into_command(stream);
    if session.is_launch_blocking {
        session.call(command).map(|_| ())
    } else {
        session.device.send(command)
    }
}

/// Says which kernel was not launched: many programs do not look at the result of a launch.
fn note_refusal(kernel: &str, shape: &LaunchShape, result: CuResult) {
    let name =
        result_table::describe(result.0).map_or_else(String::new, |(name, _)| name.to_string_lossy().into_owned());
    let LaunchShape {
        grid,
        block,
        dynamic_shared_bytes: shared,
        ..
    } = shape;
    let text = format!(
        "kernel {kernel} was not launched: {name} ({}), for {grid:?} blocks of {block:?} threads with {shared} bytes of dynamic \
         shared memory each",
        result.0
    );
    log::note_of(&format!("launch of {kernel}"), &text);
}

/// Refuses what the device that the program sees could not run.
fn check_shape(session: &Session, kernel: &Kernel, request: &Request, description: &KernelDescription) -> Outcome {
    let within = |numbers: [u32; 3], attributes: [u32; 3]| {
        numbers
            .iter()
            .zip(attributes)
            .all(|(&n, number)| n >= 1 && n <= session.device.attribute_u32(number))
    };
    let shape = &request.shape;
    if !within(shape.block, [2, 3, 4]) || !within(shape.grid, [5, 6, 7]) {
        return Err(CuResult::INVALID_VALUE);
    }
    let threads = shape.threads_per_block();
    if threads > session.device.attribute_u32(1).into() {
        return Err(CuResult::INVALID_VALUE);
    }
    if threads > description.max_threads_per_block.into() {
        let registers = threads.saturating_mul(description.num_registers.into());
        let has_registers = registers <= session.device.attribute_u32(MAX_REGISTERS_PER_BLOCK).into();
        // Numba's tests expect it so of a kernel's bounds.
        return Err(match has_registers {
            true => CuResult::INVALID_VALUE,
            false => CuResult::LAUNCH_OUT_OF_RESOURCES,
        });
    }
    if shape.dynamic_shared_bytes > kernel.max_dynamic_shared(&session.device, description.static_shared_bytes) {
        return Err(CuResult::INVALID_VALUE);
    }
    if shape.cooperative {
        let shared = shape.dynamic_shared_bytes.into();
        let resident = blocks_per_multiprocessor(session, request.kernel, threads as u32, shared)?;
        let limit = u64::from(resident) * u64::from(session.device.attribute_u32(16));
        if shape.num_blocks() > limit {
            return Err(CuResult::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// The parameters as one buffer: from the program's list of pointers, or from its own buffer.
fn pack(layout: &[KernelParam], params: In<u64>, extra: In<u64>) -> Outcome<Vec<u8>> {
    let size = layout
        .iter()
        .map(|param| param.offset.saturating_add(param.size) as usize)
        .max()
        .unwrap_or(0);
    if size > MAX_PARAM_BYTES {
        return Err(CuResult::INVALID_VALUE);
    }
    let mut packed = vec![0; size];
    if !extra.is_null() {
        let given = extra_buffer(extra)?;
        let length = given.len().min(size);
        packed[..length].copy_from_slice(&given[..length]);
        return Ok(packed);
    }
    for (index, param) in layout.iter().enumerate() {
        let value = params.nth(index)?;
        if value == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let (offset, length) = (param.offset as usize, param.size as usize);
        packed[offset..offset + length].copy_from_slice(HostMemory::bytes(value, length));
    }
    Ok(packed)
}

/// `{1, buffer, 2, &size, 0}` in any order.
fn extra_buffer<'a>(extra: In<u64>) -> Outcome<&'a [u8]> {
    let (mut buffer, mut size) = (0, 0);
    for index in (0..).step_by(2) {
        match extra.nth(index)? {
            EXTRA_END => break,
            EXTRA_BUFFER => buffer = extra.nth(index + 1)?,
            EXTRA_SIZE => {
                let bytes = HostMemory::bytes(extra.nth(index + 1)?, 8);
                size = bytes.iter().rev().fold(0, |size, &byte| size << 8 | u64::from(byte));
            }
            _ => return Err(CuResult::INVALID_VALUE),
        }
    }
    let size = usize::try_from(size)
        .ok()
        .filter(|&size| size <= MAX_PARAM_BYTES)
        .ok_or(CuResult::INVALID_VALUE)?;
    if buffer == 0 && size > 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    Ok(HostMemory::bytes(buffer, size))
}

fn launch_host_function(current: Current, stream: Handle, function: Option<HostFn>, argument: u64) -> Outcome {
    let stream = current.stream(stream)?;
    let function = function.ok_or(CuResult::INVALID_VALUE)?;
    let function = HostFunction::Function(function, argument as usize);
    let session = current.session;
    let captured = session
        .captures
        .record(&session.graphs, stream, || Ok(Operation::HostFunction(function)));
    captured.unwrap_or_else(|| session.host_functions.enqueue(&session.device, stream, function))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LAYOUT: [KernelParam; 3] = [
        KernelParam { offset: 0, size: 8 },
        KernelParam { offset: 8, size: 1 },
        KernelParam { offset: 12, size: 4 },
    ];

    fn address<T>(value: &T) -> u64 {
        std::ptr::from_ref(value).expose_provenance() as u64
    }

    const PACKED: [u8; 16] = [8, 7, 6, 5, 4, 3, 2, 1, 0x2a, 0, 0, 0, 4, 3, 2, 1];

    #[test]
    fn packs_parameters_at_their_offsets() {
        let (a, b, c) = (0x0102_0304_0506_0708_u64, 0x2a_u8, 0x0102_0304_u32);
        let pointers = [address(&a), address(&b), address(&c)];
        assert_eq!(pack(&LAYOUT, In::from_slice(&pointers), In::NULL).unwrap(), PACKED);
        assert_eq!(pack(&LAYOUT, In::NULL, In::NULL), Err(CuResult::INVALID_VALUE));
        assert_eq!(pack(&[], In::NULL, In::NULL).unwrap(), [0_u8; 0]);
    }

    #[test]
    fn takes_a_packed_buffer() {
        let size = 16_u64;
        let extra = [EXTRA_BUFFER, address(&PACKED), EXTRA_SIZE, address(&size), EXTRA_END];
        assert_eq!(pack(&LAYOUT, In::NULL, In::from_slice(&extra)).unwrap(), PACKED);
        let wrong = [9, 9, EXTRA_END];
        assert_eq!(
            pack(&LAYOUT, In::NULL, In::from_slice(&wrong)),
            Err(CuResult::INVALID_VALUE)
        );
    }
}
