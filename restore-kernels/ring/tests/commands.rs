//! Commands and answers survive encoding, and hostile bytes are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_ring::command::{
    Chunk, Command, DeviceIndex, Envelope, EventId, FillValue, KernelId, LaunchCommand, ModuleId, Payload, Rows,
    SlotId, StreamFlags, StreamId,
};
use hetckpt_ring::error::RingError;
use hetckpt_ring::layout::{CHUNK_BYTES, MAX_INLINE_BYTES, MAX_RECORD_BYTES};
use hetckpt_ring::reply::{GlobalDescription, KernelDescription, KernelParam, ModuleDescription};
use proptest::prelude::*;

fn chunk() -> impl Strategy<Value = Chunk> {
    (0_u32..64, 0..=CHUNK_BYTES as u32).prop_map(|(index, length)| Chunk { index, length })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..=MAX_INLINE_BYTES).prop_map(Payload::Inline),
        chunk().prop_map(Payload::Staged)
    ]
}

fn rows() -> impl Strategy<Value = Rows> {
    any::<[u64; 4]>().prop_map(|[addr, pitch, width, rows]| Rows {
        addr,
        pitch,
        width,
        rows,
    })
}

fn value() -> impl Strategy<Value = FillValue> {
    prop_oneof![
        any::<u8>().prop_map(FillValue::U8),
        any::<u16>().prop_map(FillValue::U16),
        any::<u32>().prop_map(FillValue::U32)
    ]
}

fn launch() -> impl Strategy<Value = LaunchCommand> {
    let shape = any::<([u32; 3], [u32; 3], u32, bool)>();
    (
        any::<(u64, u64, u32)>(),
        shape,
        prop::collection::vec(any::<u8>(), 0..32_764),
    )
        .prop_map(
            |((stream, module, index), (grid, block, dynamic_shared_bytes, cooperative), params)| LaunchCommand {
                stream: StreamId(stream),
                kernel: KernelId {
                    module: ModuleId(module),
                    index,
                },
                shape: LaunchShape {
                    dynamic_shared_bytes,
                    cooperative,
                    ..LaunchShape::new(grid, block)
                },
                params: params.into(),
            },
        )
}

fn command() -> impl Strategy<Value = Command> {
    let id = any::<u64>;
    prop_oneof![
        Just(Command::Synchronize { device: DeviceIndex(3) }),
        Just(Command::Reset {
            device: DeviceIndex::FIRST
        }),
        launch().prop_map(Command::Launch),
        (id(), any::<u32>(), payload()).prop_map(|(m, part, data)| Command::ModuleData {
            module: ModuleId(m),
            part,
            data
        }),
        (id(), id(), chunk()).prop_map(|(m, offset, chunk)| Command::ModuleDescribe {
            module: ModuleId(m),
            offset,
            chunk
        }),
        (id(), rows(), payload()).prop_map(|(s, dst, data)| Command::CopyIn {
            stream: StreamId(s),
            dst,
            data
        }),
        (id(), rows(), chunk()).prop_map(|(s, src, chunk)| Command::CopyOut {
            stream: StreamId(s),
            src,
            chunk
        }),
        (id(), rows(), id(), id()).prop_map(|(s, dst, src, src_pitch)| {
            let stream = StreamId(s);
            Command::Copy {
                stream,
                dst,
                src,
                src_pitch,
            }
        }),
        (id(), rows(), value()).prop_map(|(s, dst, value)| Command::Fill {
            stream: StreamId(s),
            dst,
            value
        }),
        (id(), any::<(bool, i32)>()).prop_map(|(s, (non_blocking, priority))| Command::StreamCreate {
            device: DeviceIndex::FIRST,
            stream: StreamId(s),
            flags: StreamFlags { non_blocking, priority }
        }),
        (id(), id()).prop_map(|(a, b)| Command::EventElapsed {
            start: EventId(a),
            end: EventId(b)
        }),
        (id(), id()).prop_map(|(a, b)| Command::EventSynchronizeElapsed {
            start: EventId(a),
            end: EventId(b)
        }),
        (id(), "[a-z_]{0,40}", id()).prop_map(|(module, name, addr)| Command::ModulePlace {
            module: ModuleId(module),
            name,
            addr
        }),
        (id(), id(), any::<i32>()).prop_map(|(addr, size_bytes, fd)| Command::RegisterHost { addr, size_bytes, fd }),
    ]
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(reply in prop::option::of(0_u32..256), command in command()) {
        let envelope = Envelope { reply: reply.map(SlotId), command };
        prop_assert_eq!(Envelope::decode(&envelope.encode().unwrap()).unwrap(), envelope);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::decode(&bytes);
        let _ = ModuleDescription::decode(&bytes);
    }

    #[test]
    fn descriptions_survive_encoding(names in prop::collection::vec("[a-zA-Z_0-9]{0,40}", 0..20)) {
        let kernels = names.iter().map(|name| KernelDescription {
            name: name.clone(),
            params: vec![KernelParam { offset: 0, size: 8 }; name.len()],
            static_shared_bytes: 1,
            local_bytes: 2,
            max_threads_per_block: 1024,
            num_registers: 32,
            ptx_version: 80,
            refused: (name.len() % 2 == 1).then(|| name.clone()),
        });
        let globals = names.iter().map(|name| GlobalDescription { name: name.clone(), addr: 1 << 45, size_bytes: 4 });
        let description = ModuleDescription { kernels: kernels.collect(), globals: globals.collect() };
        prop_assert_eq!(ModuleDescription::decode(&description.encode().unwrap()).unwrap(), description);
    }
}

#[test]
fn a_length_that_lies_costs_no_memory() {
    // An inline payload that claims 2^60 bytes.
    let honest = Envelope {
        reply: None,
        command: Command::ModuleData {
            module: ModuleId(1),
            part: 0,
            data: Payload::Inline(vec![1, 2, 3]),
        },
    };
    let mut bytes = honest.encode().unwrap();
    let length_at = bytes.len() - 4;
    assert_eq!(bytes[length_at], 3);
    bytes.splice(length_at..=length_at, [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x10]);
    assert!(matches!(Envelope::decode(&bytes), Err(RingError::Decode { .. })));
}

#[test]
fn bytes_behind_a_command_are_refused() {
    let mut bytes = Envelope {
        reply: None,
        command: Command::MemoryInfo {
            device: DeviceIndex::FIRST,
        },
    }
    .encode()
    .unwrap();
    bytes.push(0);
    assert!(matches!(Envelope::decode(&bytes), Err(RingError::Decode { .. })));
}

#[test]
fn a_command_too_large_for_the_ring_is_refused_by_its_sender() {
    let data = Payload::Inline(vec![0; MAX_RECORD_BYTES]);
    let envelope = Envelope {
        reply: None,
        command: Command::ModuleData {
            module: ModuleId(1),
            part: 0,
            data,
        },
    };
    assert!(matches!(envelope.encode(), Err(RingError::TooLarge { .. })));
}
