//! Commands that are held back: from the ring's words to the snapshot's, and back.

use hetckpt_ring::command::{
    ArrayId, Chunk, Command, DeviceIndex, EventId, FillValue, KernelId, LaunchCommand, ModuleId, Payload, Rows,
    StreamId,
};
use hetckpt_state::command as state;

use crate::error::ServerError;

/// A command of a stream in the snapshot's words; `data` are bytes that have been taken out of its chunk.
///
/// # Errors
/// [`ServerError::WrongMoment`] for a command that belongs in no stream.
pub fn of_stream(command: &Command, data: Option<&[u8]>) -> Result<state::StreamCommand, ServerError> {
    Ok(match command {
        Command::Launch(launch) => state::StreamCommand::Launch(state::Launch {
            module: launch.kernel.module.0,
            kernel: launch.kernel.index,
            shape: launch.shape,
            params: launch.params.to_vec(),
        }),
        Command::CopyIn { dst, data: payload, .. } => state::StreamCommand::CopyIn {
            dst: rows(*dst),
            data: match (data, payload) {
                (Some(bytes), _) => state::Data::Bytes(bytes.to_vec()),
                (None, Payload::Inline(bytes)) => state::Data::Bytes(bytes.clone()),
                (None, Payload::Staged(chunk)) => state::Data::Chunk(self::chunk(*chunk)),
            },
        },
        Command::CopyOut { src, chunk, .. } => state::StreamCommand::CopyOut {
            src: rows(*src),
            chunk: self::chunk(*chunk),
        },
        Command::Copy {
            dst, src, src_pitch, ..
        } => state::StreamCommand::Copy {
            dst: rows(*dst),
            src: *src,
            src_pitch: *src_pitch,
        },
        Command::Fill { dst, value, .. } => state::StreamCommand::Fill {
            dst: rows(*dst),
            value: match *value {
                FillValue::U8(value) => state::FillValue::U8(value),
                FillValue::U16(value) => state::FillValue::U16(value),
                FillValue::U32(value) => state::FillValue::U32(value),
            },
        },
        Command::FreeAsync { addr, .. } => state::StreamCommand::Free { addr: *addr },
        Command::EventRecord { event, .. } => state::StreamCommand::RecordEvent { event: event.0 },
        Command::StreamWaitEvent { event, .. } => state::StreamCommand::WaitEvent { event: event.0 },
        Command::HostFunction { id, .. } => state::StreamCommand::HostFunction { id: *id },
        Command::CopyBox { copy, .. } => state::StreamCommand::CopyBox(copy.clone()),
        _ => {
            return Err(ServerError::WrongMoment(
                "a stream holds a command that is none of streams",
            ));
        }
    })
}

/// The inverse, in the stream `stream`; `None` if there is nothing left to do.
#[must_use]
pub fn in_stream(command: state::StreamCommand, stream: u64) -> Option<Command> {
    let stream = StreamId(stream);
    Some(match command {
        state::StreamCommand::Nothing => return None,
        state::StreamCommand::Launch(launch) => Command::Launch(LaunchCommand {
            stream,
            kernel: KernelId {
                module: ModuleId(launch.module),
                index: launch.kernel,
            },
            shape: launch.shape,
            params: launch.params.into(),
        }),
        state::StreamCommand::CopyIn { dst, data } => Command::CopyIn {
            stream,
            dst: ring_rows(dst),
            data: match data {
                state::Data::Chunk(chunk) => Payload::Staged(ring_chunk(chunk)),
                // Here they may be more than a record of the ring holds.
                state::Data::Bytes(bytes) => Payload::Inline(bytes),
            },
        },
        state::StreamCommand::CopyOut { src, chunk } => Command::CopyOut {
            stream,
            src: ring_rows(src),
            chunk: ring_chunk(chunk),
        },
        state::StreamCommand::Copy { dst, src, src_pitch } => Command::Copy {
            stream,
            dst: ring_rows(dst),
            src,
            src_pitch,
        },
        state::StreamCommand::Fill { dst, value } => Command::Fill {
            stream,
            dst: ring_rows(dst),
            value: match value {
                state::FillValue::U8(value) => FillValue::U8(value),
                state::FillValue::U16(value) => FillValue::U16(value),
                state::FillValue::U32(value) => FillValue::U32(value),
            },
        },
        state::StreamCommand::Free { addr } => Command::FreeAsync { addr, stream },
        state::StreamCommand::RecordEvent { event } => Command::EventRecord {
            event: EventId(event),
            stream,
        },
        state::StreamCommand::WaitEvent { event } => Command::StreamWaitEvent {
            stream,
            event: EventId(event),
        },
        state::StreamCommand::HostFunction { id } => Command::HostFunction { stream, id },
        state::StreamCommand::CopyBox(copy) => Command::CopyBox { stream, copy },
    })
}

/// A command that waits for streams in the snapshot's words.
///
/// # Errors
/// [`ServerError::WrongMoment`] for a command that waits for none.
pub fn of_waiting(command: &Command) -> Result<state::WaitingCommand, ServerError> {
    Ok(match command {
        Command::Synchronize { device } => state::WaitingCommand::Synchronize { device: device.0 },
        Command::StreamSynchronize { stream } => state::WaitingCommand::SynchronizeStream { stream: stream.0 },
        // Whoever waits with a time in mind asks for it if the answer has none.
        Command::EventSynchronize { event } | Command::EventSynchronizeElapsed { end: event, .. } => {
            state::WaitingCommand::SynchronizeEvent { event: event.0 }
        }
        Command::Free { addr } => state::WaitingCommand::Free { addr: *addr },
        Command::UnregisterHost { addr } => state::WaitingCommand::UnregisterHost { addr: *addr },
        Command::ModuleUnload { module } => state::WaitingCommand::UnloadModule { module: module.0 },
        Command::Reset { device } => state::WaitingCommand::Reset { device: device.0 },
        Command::Exit => state::WaitingCommand::Exit,
        Command::ArrayDestroy { array } => state::WaitingCommand::DestroyArray { array: array.0 },
        Command::ImageDestroy { image } => state::WaitingCommand::DestroyImage { image: *image },
        _ => {
            return Err(ServerError::WrongMoment(
                "a command waits that does not wait for streams",
            ));
        }
    })
}

/// The inverse.
#[must_use]
pub fn waiting(command: state::WaitingCommand) -> Command {
    match command {
        state::WaitingCommand::Synchronize { device } => Command::Synchronize {
            device: DeviceIndex(device),
        },
        state::WaitingCommand::SynchronizeStream { stream } => Command::StreamSynchronize {
            stream: StreamId(stream),
        },
        state::WaitingCommand::SynchronizeEvent { event } => Command::EventSynchronize { event: EventId(event) },
        state::WaitingCommand::Free { addr } => Command::Free { addr },
        state::WaitingCommand::UnregisterHost { addr } => Command::UnregisterHost { addr },
        state::WaitingCommand::UnloadModule { module } => Command::ModuleUnload {
            module: ModuleId(module),
        },
        state::WaitingCommand::Reset { device } => Command::Reset {
            device: DeviceIndex(device),
        },
        state::WaitingCommand::Exit => Command::Exit,
        state::WaitingCommand::DestroyArray { array } => Command::ArrayDestroy { array: ArrayId(array) },
        state::WaitingCommand::DestroyImage { image } => Command::ImageDestroy { image },
    }
}

fn rows(rows: Rows) -> state::Rows {
    state::Rows {
        addr: rows.addr,
        pitch: rows.pitch,
        width: rows.width,
        rows: rows.rows,
    }
}

fn ring_rows(rows: state::Rows) -> Rows {
    Rows {
        addr: rows.addr,
        pitch: rows.pitch,
        width: rows.width,
        rows: rows.rows,
    }
}

fn chunk(chunk: Chunk) -> state::Chunk {
    state::Chunk {
        index: chunk.index,
        length: chunk.length,
    }
}

fn ring_chunk(chunk: state::Chunk) -> Chunk {
    Chunk {
        index: chunk.index,
        length: chunk.length,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use hetckpt_abi::array::{BoxCopy, BoxPlace, BoxSize};
    use hetckpt_abi::image_object::{ImageHandle, ImageKind};
    use hetckpt_abi::launch_shape::LaunchShape;
    use hetckpt_state::command::{Data, StreamCommand, WaitingCommand};

    const ROWS: state::Rows = state::Rows {
        addr: 1,
        pitch: 2,
        width: 3,
        rows: 4,
    };
    const CHUNK: state::Chunk = state::Chunk { index: 5, length: 6 };
    const COPY: BoxCopy = BoxCopy {
        dst: BoxPlace::Array {
            array: 1,
            level: 2,
            x_bytes: 3,
            y: 4,
            z: 5,
        },
        src: BoxPlace::Memory {
            addr: 6,
            pitch: 7,
            slice_rows: 8,
        },
        size: BoxSize {
            width_bytes: 9,
            rows: 10,
            slices: 11,
        },
    };

    #[test]
    fn commands_of_streams_come_back() {
        let launch = state::Launch {
            module: 7,
            kernel: 8,
            shape: LaunchShape {
                grid: [9, 10, 11],
                block: [12, 13, 14],
                dynamic_shared_bytes: 15,
                cooperative: true,
                cluster: [2, 1, 1],
            },
            params: vec![16, 17],
        };
        let fill = |value| StreamCommand::Fill { dst: ROWS, value };
        let copy_in = |data| StreamCommand::CopyIn { dst: ROWS, data };
        for stored in [
            StreamCommand::Launch(launch),
            copy_in(Data::Bytes(vec![18])),
            copy_in(Data::Chunk(CHUNK)),
            StreamCommand::CopyOut {
                src: ROWS,
                chunk: CHUNK,
            },
            StreamCommand::Copy {
                dst: ROWS,
                src: 19,
                src_pitch: 20,
            },
            fill(state::FillValue::U8(21)),
            fill(state::FillValue::U16(22)),
            fill(state::FillValue::U32(23)),
            StreamCommand::Free { addr: 24 },
            StreamCommand::RecordEvent { event: 25 },
            StreamCommand::WaitEvent { event: 26 },
            StreamCommand::HostFunction { id: 27 },
            StreamCommand::CopyBox(Box::new(COPY)),
        ] {
            let command = in_stream(stored.clone(), 70).unwrap();
            assert_eq!(crate::commands::stream_of(&command), Some(70));
            assert_eq!(of_stream(&command, None).unwrap(), stored);
        }
        assert!(in_stream(StreamCommand::Nothing, 70).is_none());
    }

    #[test]
    fn waiting_commands_come_back() {
        let image = ImageHandle {
            kind: ImageKind::Surface,
            value: 9,
        };
        for stored in [
            WaitingCommand::Synchronize { device: 1 },
            WaitingCommand::SynchronizeStream { stream: 2 },
            WaitingCommand::SynchronizeEvent { event: 3 },
            WaitingCommand::Free { addr: 4 },
            WaitingCommand::UnregisterHost { addr: 5 },
            WaitingCommand::UnloadModule { module: 6 },
            WaitingCommand::Reset { device: 7 },
            WaitingCommand::Exit,
            WaitingCommand::DestroyArray { array: 8 },
            WaitingCommand::DestroyImage { image },
        ] {
            assert_eq!(of_waiting(&waiting(stored)).unwrap(), stored);
        }
    }
}
