//! The binary form of a process's state.
//!
//! # Shape
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `hetstate` |
//! | 8 | 4 | [`ProcessState::format_version`], little-endian: readable without decoding the rest |
//! | 12 | 4 | 0 |
//! | 16 | … | [`ProcessState`], bincode 2, standard configuration |

use std::io::{self, BufReader, Read};

use bincode::error::DecodeError;

use crate::budget::Budget;
use crate::names::{FORMAT_VERSION, is_readable};
use crate::process::ProcessState;
use crate::queue::Work;

/// First bytes of the binary form.
pub const MAGIC: [u8; 8] = *b"hetstate";
const HEADER_BYTES: usize = 16;
/// What a state may take in memory beyond its size: its lists take more there than encoded. Real ones take a small part
/// of it.
const SPARE_BYTES: u64 = 192 << 20;
/// What no state can exceed that has no more bytes: none takes more than 48 in memory.
const SURELY_WITHIN_BYTES: usize = 4 << 20;

/// Why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Not a state, or cut off: damaged input.
    #[error("the bytes are not a process state")]
    NotAState,
    /// Written by another version.
    #[error("the state has format version {found}, this program reads version {known}")]
    Version {
        /// Version found.
        found: u32,
        /// Version known here.
        known: u32,
    },
    /// Damaged input.
    #[error("the state is damaged")]
    Decode(#[source] bincode::error::DecodeError),
    /// Bytes follow the state: damaged input.
    #[error("{bytes} bytes follow the state")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// A stopped launch that cannot be: damaged input, or the program's fault.
    #[error(
        "a launch of {grid:?} blocks of {block:?} threads in stream {stream} is beyond CUDA's limits, or lists blocks that it cannot have"
    )]
    Launch {
        /// The stream.
        stream: u64,
        /// Blocks, x first.
        grid: [u32; 3],
        /// Threads, x first.
        block: [u32; 3],
    },
    /// Something is on a device that the process does not have: damaged input.
    #[error("something is on device {device}, which the process does not have")]
    Device {
        /// Its index.
        device: u32,
    },
    /// More bytes than there are: damaged input.
    #[error("the sizes of {what} are too large together")]
    Sizes {
        /// Of what.
        what: &'static str,
    },
    /// Lists that take far more in memory than their bytes: hostile input.
    #[error("the state's {size_bytes} bytes would take more than {memory_bytes} in memory")]
    TooLarge {
        /// Its size.
        size_bytes: u64,
        /// What it may take.
        memory_bytes: u64,
    },
    /// A bug in this program.
    #[error("the state cannot be encoded")]
    Encode(#[source] bincode::error::EncodeError),
}

/// The binary form of `state`.
///
/// # Errors
/// [`CodecError::Encode`]; [`CodecError::Launch`], [`CodecError::Sizes`] and [`CodecError::TooLarge`] if it could not
/// be read.
pub fn encode(state: &ProcessState) -> Result<Vec<u8>, CodecError> {
    validate(state)?;
    let mut bytes = Vec::with_capacity(4096);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&state.format_version().to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bincode::encode_into_std_write(state, &mut bytes, bincode::config::standard()).map_err(CodecError::Encode)?;
    if bytes.len() > SURELY_WITHIN_BYTES {
        let size_bytes = bytes.len() as u64;
        decode_within(
            &bytes[HEADER_BYTES..],
            size_bytes,
            Budget::trial(memory_bytes(size_bytes), size_bytes).of_version(state.format_version()),
        )?;
    }
    Ok(bytes)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// All but [`CodecError::Encode`]; never panics, whatever the bytes.
pub fn decode(bytes: &[u8]) -> Result<ProcessState, CodecError> {
    decode_from(bytes, bytes.len() as u64)
}

/// As [`decode`], from `input`, which is to give `size_bytes`. It takes little more memory than that: [`memory_bytes`].
///
/// # Errors
/// As [`decode`]; [`CodecError::Decode`] also if `input` fails.
pub fn decode_from(mut input: impl Read, size_bytes: u64) -> Result<ProcessState, CodecError> {
    let mut header = [0; HEADER_BYTES];
    if input.read_exact(&mut header).is_err() || !header.starts_with(&MAGIC) {
        return Err(CodecError::NotAState);
    }
    let mut version = [0; 4];
    version.copy_from_slice(&header[8..12]);
    let found = u32::from_le_bytes(version);
    if !is_readable(found) {
        return Err(CodecError::Version {
            found,
            known: FORMAT_VERSION,
        });
    }
    let body = BufReader::new(input.take(size_bytes.saturating_sub(HEADER_BYTES as u64)));
    let budget = Budget::new(memory_bytes(size_bytes), size_bytes).of_version(found);
    let state = decode_within(body, size_bytes, budget)?;
    validate(&state).map(|()| state)
}

/// Most bytes that a state of `size_bytes` may take in memory.
#[must_use]
pub fn memory_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_add(SPARE_BYTES)
}

fn decode_within(mut body: impl Read, size_bytes: u64, budget: Budget) -> Result<ProcessState, CodecError> {
    // A second net, for what is decoded without regard to the budget.
    let config = bincode::config::standard().with_limit::<{ 1 << 42 }>();
    let state = bincode::decode_from_std_read_with_context(&mut body, config, budget);
    let state = state.map_err(|error| match error {
        DecodeError::LimitExceeded => CodecError::TooLarge {
            size_bytes,
            memory_bytes: memory_bytes(size_bytes),
        },
        error => CodecError::Decode(error),
    })?;
    let rest = io::copy(&mut body, &mut io::sink()).map_err(|inner| {
        let additional = 0;
        CodecError::Decode(DecodeError::Io { inner, additional })
    })?;
    match rest {
        0 => Ok(state),
        bytes => Err(CodecError::TrailingBytes { bytes }),
    }
}

/// Makes sure that numbers which others allocate and reckon by are possible ones.
fn validate(state: &ProcessState) -> Result<(), CodecError> {
    fn within(what: &'static str, mut sizes: impl Iterator<Item = u64>) -> Result<(), CodecError> {
        let total = sizes.try_fold(0u64, u64::checked_add);
        total.map(drop).ok_or(CodecError::Sizes { what })
    }
    within("mappings", state.mappings.iter().map(|m| m.size_bytes))?;
    within("allocations", state.allocations.iter().map(|a| a.size_bytes))?;
    within("pinned memory", state.pinned.iter().map(|p| p.size_bytes))?;
    let devices = (state.mappings.iter().map(|m| m.device))
        .chain(state.modules.iter().map(|m| m.device))
        .chain(state.streams.iter().map(|s| s.device))
        .chain(state.events.iter().map(|e| e.device))
        .chain(state.arrays.iter().map(|a| a.device))
        .chain(state.images.iter().map(|i| i.device));
    if let Some(device) = devices.max().filter(|&device| device as usize >= state.devices.len()) {
        return Err(CodecError::Device { device });
    }
    for stream in &state.streams {
        for item in &stream.work {
            if let Work::Resume(run) = &item.work
                && !run.is_possible()
            {
                let (stream, grid, block) = (stream.id, run.shape.grid, run.shape.block);
                return Err(CodecError::Launch { stream, grid, block });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace};
    use hetckpt_abi::image_object::{ImageHandle, ImageKind, ImageObject, Resource, Sampler};
    use hetckpt_abi::launch_shape::LaunchShape;

    use super::*;
    use crate::allocation::{Allocation, Mapping, Owner};
    use crate::array::{ArrayState, ImageState};
    use crate::command::{Data, Rows, StreamCommand, WaitingCommand};
    use crate::kernel_run::{KernelRun, ProbedKernel};
    use crate::memory_index::{ChunkRef, MemoryIndex, Piece};
    use crate::module::{ModuleState, PlacedVariable};
    use crate::process::{CaptureDevice, DeviceState};
    use crate::queue::{PendingCommand, Place, StreamState, WorkItem};
    use crate::summary::Summary;
    use crate::thread::{ResumePointRegisters, StoppedBlock, ThreadGroup};
    use crate::virtual_device::VirtualDevice;

    fn example() -> ProcessState {
        let stopped = StoppedBlock {
            block: 3,
            groups: vec![
                ThreadGroup {
                    resume_point: 1,
                    threads: vec![(0, 2), (5, 8)],
                    registers: vec![7; 5 * 12],
                },
                ThreadGroup {
                    resume_point: 4,
                    threads: vec![(2, 4)],
                    registers: vec![],
                },
            ],
            shared: vec![1; 32],
            local: vec![],
        };
        let run = KernelRun {
            probed_kernel: 0,
            shape: LaunchShape {
                grid: [10, 2, 1],
                block: [8, 1, 1],
                dynamic_shared_bytes: 16,
                cooperative: false,
                cluster: [0; 3],
            },
            params: vec![1, 2, 3],
            stopped: vec![stopped],
            not_started: vec![(4, 6), (8, 20)],
            in_step: false,
        };
        ProcessState {
            pid: 42,
            ring_version: 1,
            devices: vec![DeviceState {
                captured_on: CaptureDevice {
                    kind: "cpu".into(),
                    name: "x".into(),
                    driver: "y".into(),
                },
                virtual_device: VirtualDevice {
                    name: "v".into(),
                    uuid: [1; 16],
                    total_bytes: 1 << 40,
                    attributes: vec![(1, 1024), (10, 32)],
                },
            }],
            fault: 0,
            clock_ns: 77,
            mappings: vec![Mapping {
                addr: 0x2000_0000_0000,
                size_bytes: 2 << 20,
                device: 0,
            }],
            allocations: vec![Allocation {
                addr: 0x2000_0000_0000,
                size_bytes: 100,
                owner: Owner::Program,
            }],
            pinned: vec![],
            modules: vec![],
            arriving: vec![],
            probed_kernels: vec![ProbedKernel {
                name: "k".into(),
                text: "kernel \"k\" {\n  shared 16\n  resume rp0 entry bb0\nbb0:\n  ret\n}\n".into(),
                static_shared_bytes: 16,
                resume_points: vec![ResumePointRegisters {
                    resume_point: 1,
                    registers: vec![(0, 8), (3, 4)],
                }],
            }],
            streams: vec![StreamState {
                id: 0,
                device: 0,
                non_blocking: false,
                priority: 0,
                is_destroyed: false,
                submitted: 2,
                completed: 0,
                work: vec![
                    WorkItem {
                        work: Work::Resume(Box::new(run)),
                        reply: Some(3),
                        after: vec![],
                    },
                    WorkItem {
                        work: Work::Command(StreamCommand::CopyIn {
                            dst: Rows {
                                addr: 0x2000_0000_0000,
                                pitch: 1,
                                width: 1,
                                rows: 1,
                            },
                            data: Data::Bytes(vec![3]),
                        }),
                        reply: None,
                        after: vec![Place { stream: 7, number: 1 }],
                    },
                ],
            }],
            pending: vec![],
            host_functions_done: vec![4],
            events: vec![],
            memory: MemoryIndex {
                chunks: vec![ChunkRef {
                    addr: 0x2000_0000_0000,
                    piece: 0,
                }],
                pieces: vec![Piece {
                    offset_bytes: 0,
                    stored_bytes: 10,
                    raw_bytes: 20,
                    hash: [3; 32],
                }],
            },
            variables: vec![],
            arrays: vec![],
            images: vec![],
        }
    }

    #[test]
    fn variables_that_a_device_has_placed_make_version_3() {
        let mut state = example();
        assert_eq!(encode(&state).unwrap()[8], 2);
        state.variables.push(PlacedVariable {
            module: 4,
            name: "table".into(),
            is_pointed_at: true,
            bytes: vec![5; 6],
        });
        let mut bytes = encode(&state).unwrap();
        assert_eq!(bytes[8], 3);
        assert_eq!(decode(&bytes).unwrap(), state);
        bytes[8] = 2;
        assert!(matches!(decode(&bytes), Err(CodecError::TrailingBytes { .. })));
    }

    #[test]
    fn arrays_and_their_objects_make_version_4() {
        let shape = ArrayShape {
            size: [2, 3, 0],
            format: 0x20,
            channels: 1,
            flags: 2,
            levels: 0,
        };
        let resource = Resource::Array { array: 5, level: 0 };
        let texture = ImageObject::Texture {
            resource,
            sampler: Sampler {
                filter_mode: 1,
                ..Sampler::default()
            },
            view: None,
        };
        let image = |value, object| ImageState {
            value,
            device: 0,
            object,
        };
        let mut state = example();
        state.arrays.push(ArrayState {
            number: 5,
            device: 0,
            shape,
            bytes: vec![9; 24],
        });
        state.images = vec![image(1, texture), image(1, ImageObject::Surface { resource })];
        let copy = BoxCopy {
            dst: BoxPlace::Array {
                array: 5,
                level: 0,
                x_bytes: 0,
                y: 1,
                z: 0,
            },
            src: BoxPlace::Memory {
                addr: 0x2000_0000_0000,
                pitch: 8,
                slice_rows: 2,
            },
            size: shape.level(0).unwrap(),
        };
        state.streams[0].work[1].work = Work::Command(StreamCommand::CopyBox(Box::new(copy)));
        let mut bytes = encode(&state).unwrap();
        assert_eq!(bytes[8], 4);
        assert_eq!(decode(&bytes).unwrap(), state);
        assert_eq!(Summary::of(&state).restorable_on, ["cpu"], "what it was captured on");
        bytes[8] = 3;
        assert!(matches!(decode(&bytes), Err(CodecError::TrailingBytes { .. })));
        state.images[0].device = 1;
        assert!(matches!(encode(&state), Err(CodecError::Device { device: 1 })));
    }

    #[test]
    fn commands_for_arrays_that_are_held_back_make_version_4() {
        let image = ImageHandle {
            kind: ImageKind::Surface,
            value: 3,
        };
        for command in [
            WaitingCommand::DestroyArray { array: 5 },
            WaitingCommand::DestroyImage { image },
        ] {
            let mut state = example();
            state.pending.push(PendingCommand {
                command,
                reply: None,
                after: vec![],
            });
            let bytes = encode(&state).unwrap();
            assert_eq!(bytes[8], 4);
            assert_eq!(decode(&bytes).unwrap(), state);
        }
    }

    #[test]
    fn decoding_inverts_encoding() {
        let state = example();
        assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
    }

    #[test]
    fn summary_counts_blocks_and_threads() {
        let summary = Summary::of(&example());
        let kernel = &summary.kernels_in_flight[0];
        assert_eq!(
            (kernel.blocks_finished, kernel.blocks_paused, kernel.blocks_not_started),
            (5, 1, 14)
        );
        assert_eq!(
            kernel.resume_points.iter().map(|(&p, &n)| (p, n)).collect::<Vec<_>>(),
            [(1, 5), (4, 2)]
        );
        assert_eq!(kernel.threads_finished, 1);
        assert_eq!(summary.num_held_commands, 1);
        assert_eq!(summary.requires.threads_per_block, 8);
        assert_eq!(summary.requires.shared_bytes_per_block, 16 + 16);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let run_of = |state: &mut ProcessState, change: fn(&mut KernelRun)| {
            let Work::Resume(run) = &mut state.streams[0].work[0].work else {
                panic!()
            };
            change(run);
        };
        let changes: [fn(&mut KernelRun); 8] = [
            |run| run.shape.block = [u32::MAX; 3],
            |run| run.shape.block = [1024, 2, 1],
            |run| run.shape.block = [1, 1, 65],
            |run| run.shape.block[0] = 0,
            |run| run.shape.grid = [u32::MAX, 1, 1],
            |run| run.shape.grid[1] = 65_536,
            |run| run.not_started = vec![(0, u64::MAX), (0, u64::MAX)],
            |run| run.stopped[0].block = 20,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut state = example();
            run_of(&mut state, change);
            let mut bytes = vec![];
            bytes.extend(MAGIC);
            bytes.extend(u64::from(state.format_version()).to_le_bytes());
            bytes.extend(bincode::encode_to_vec(&state, bincode::config::standard()).unwrap());
            assert!(
                matches!(decode(&bytes), Err(CodecError::Launch { stream: 0, .. })),
                "{i}"
            );
            assert!(encode(&state).is_err(), "{i}");
        }
        let mut state = example();
        state.mappings = vec![state.mappings[0]; 2];
        state.mappings[0].size_bytes = u64::MAX;
        assert!(matches!(encode(&state), Err(CodecError::Sizes { what: "mappings" })));
    }

    /// The encoding of a state that ends with `count` events, of five bytes each, but has only so many that are
    /// `present`.
    fn with_events(count: u64, present: usize) -> Vec<u8> {
        let mut state = example();
        state.memory = MemoryIndex::default();
        let mut bytes = encode(&state).unwrap();
        // The lists of events, chunks and pieces, all of them empty.
        bytes.truncate(bytes.len() - 3);
        bytes.push(253);
        bytes.extend(count.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0].repeat(present));
        bytes.extend([0, 0]);
        bytes
    }

    #[test]
    fn few_bytes_do_not_ask_for_much_memory() {
        let few = with_events(1000, 1000);
        assert_eq!(decode(&few).unwrap().events.len(), 1000);
        for (count, present) in [(10_000_000, 10_000_000), (10_000_000, 1), (u64::MAX, 1), (1 << 58, 1)] {
            let bytes = with_events(count, present);
            let allocated = allocation_counter::measure(|| {
                let error = decode(&bytes).unwrap_err();
                assert!(matches!(error, CodecError::TooLarge { .. }), "{error:?}");
            });
            assert!(allocated.bytes_max < bytes.len() as u64 + (256 << 20), "{allocated:?}");
        }
    }

    #[test]
    fn bytes_take_the_memory_that_they_have() {
        let mut state = example();
        state.modules = vec![ModuleState {
            id: 1,
            device: 0,
            ptx: vec!["x".repeat(40 << 20)],
            machine_code: vec![vec![7; 60 << 20]],
            globals: vec![],
            kernels: vec!["k".into()],
        }];
        let bytes = encode(&state).unwrap();
        let allocated = allocation_counter::measure(|| assert!(decode(&bytes).unwrap() == state));
        assert!(allocated.bytes_max < bytes.len() as u64 + (8 << 20), "{allocated:?}");
        // More than there are.
        let cut = &bytes[..bytes.len() / 2];
        assert!(matches!(
            decode(cut),
            Err(CodecError::Decode(_) | CodecError::TooLarge { .. })
        ));
    }

    #[test]
    fn what_could_not_be_read_is_not_written() {
        let mut state = example();
        let event = crate::queue::EventState {
            id: 1,
            device: 0,
            timing: false,
            latest: None,
            time_ns: None,
        };
        state.events = vec![event; 5_000_000];
        let error = encode(&state).unwrap_err();
        assert!(matches!(error, CodecError::TooLarge { .. }), "{error:?}");
        state.events.truncate(1_600_000);
        encode(&state).unwrap();
    }

    #[test]
    fn newer_version_is_named() {
        let mut bytes = encode(&example()).unwrap();
        bytes[8] = 200;
        match decode(&bytes) {
            Err(CodecError::Version {
                found: 200,
                known: FORMAT_VERSION,
            }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cut_or_damaged_bytes_are_refused_or_decode_to_something() {
        let bytes = encode(&example()).unwrap();
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        for at in HEADER_BYTES..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                // Only that it returns: a flipped byte of a name is still a state; the files' hashes find that.
                if let Ok(state) = decode(&damaged) {
                    let _ = Summary::of(&state);
                }
            }
        }
    }
}
