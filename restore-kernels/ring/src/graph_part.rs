//! Parts of graphs: launches, copies and fills that come one after another in a stream. The application encodes a part
//! once, and sends it whole each time it launches the graph, so the server need keep nothing for it.
//!
//! Such a record of the ring has words at fixed places, little-endian:
//!
//! | offset | what |
//! |---|---|
//! | 0 | `u64` stream |
//! | 8 | `u64` graph |
//! | 16 | `u32` part |
//! | 20 | `u32` 0 |
//! | 24 | steps: commands, encoded with bincode 2, one behind another |
//!
//! A step follows the one before it, unless a [`Command::StepAfter`] stands before it (protocol version 10).

use std::sync::Arc;

use crate::command::{self, Command, Envelope, GraphId, StreamId};
use crate::error::RingError;
use crate::layout::MAX_RECORD_BYTES;

/// Steps of a part at most.
const MAX_STEPS: usize = 1024;
/// Where the steps begin in a record.
const STEPS: usize = 24;
/// What a part may take; the record's header comes before it.
const MAX_BYTES: usize = MAX_RECORD_BYTES - 8 - STEPS;
/// What the first part of several may take: the device begins with it while the next is on its way.
const MAX_FIRST_BYTES: usize = 8 << 10;
/// What the second may take, of many.
const MAX_SECOND_BYTES: usize = 64 << 10;
/// Less than this is not many.
const MANY_BYTES: usize = 128 << 10;

/// A launch, copy or fill of a part.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it does.
    pub command: Command,
    /// The steps that have ended when it begins, by their places in the part; each place is before its own.
    pub after: Vec<u32>,
}

impl Step {
    /// One that follows the step at `place - 1`.
    #[must_use]
    pub fn in_row(command: Command, place: usize) -> Self {
        Self {
            command,
            after: previous(place),
        }
    }
}

fn previous(place: usize) -> Vec<u32> {
    place.checked_sub(1).map(|before| before as u32).into_iter().collect()
}

/// True if a part may have this step.
#[must_use]
pub fn is_step(command: &Command) -> bool {
    matches!(
        command,
        Command::Launch(_) | Command::Copy { .. } | Command::Fill { .. }
    )
}

/// Encodes `steps` as parts, as few as there can be. Their stream is left out. Places in [`Step::after`] are those in
/// `steps`; what stands in another part, a step follows anyway.
///
/// # Errors
/// [`RingError::TooLarge`] for a step that is larger than a part may be.
pub fn encode(steps: impl IntoIterator<Item = Step>) -> Result<Vec<Arc<[u8]>>, RingError> {
    let encode = |step: Step| -> Result<_, RingError> {
        let command = in_stream(step.command, StreamId::LEGACY_DEFAULT);
        Ok((command::encode(&command, "step of a graph")?, step.after))
    };
    let steps = steps.into_iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    let is_many = steps.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() > MANY_BYTES;
    let (mut parts, mut part, mut num_steps, mut first) = (Vec::new(), Vec::new(), 0, 0);
    for (place, (bytes, after)) in (0_u32..).zip(steps) {
        let in_part = |first: u32| after.iter().filter_map(|before| before.checked_sub(first)).collect();
        let mut edges = edges(in_part(first), num_steps)?;
        let size = edges.len() + bytes.len();
        if size > MAX_BYTES {
            return Err(RingError::TooLarge {
                what: "step of a graph",
                size_bytes: size as u64,
                limit_bytes: MAX_BYTES as u64,
            });
        }
        let limit = match parts.len() {
            0 => MAX_FIRST_BYTES,
            1 if is_many => MAX_SECOND_BYTES,
            _ => MAX_BYTES,
        };
        if num_steps == MAX_STEPS || (num_steps > 0 && part.len() + size > limit) {
            parts.push(Arc::from(std::mem::take(&mut part)));
            (num_steps, first) = (0, place);
            edges.clear();
        }
        part.extend(edges);
        part.extend(bytes);
        num_steps += 1;
    }
    if num_steps > 0 {
        parts.push(part.into());
    }
    Ok(parts)
}

/// What says that the step at `place` comes after these; nothing if that is the one before.
fn edges(after: Vec<u32>, place: usize) -> Result<Vec<u8>, RingError> {
    if after == previous(place) {
        return Ok(Vec::new());
    }
    command::encode(&Command::StepAfter { steps: after }, "edges of a graph")
}

/// The steps of a part, in `stream`; any bytes may be given.
///
/// # Errors
/// [`RingError::Decode`], also if there is what can be no step, or a step comes after itself or a later one.
pub fn decode(mut part: &[u8], stream: StreamId) -> Result<Vec<Step>, RingError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut edges = None;
    while !part.is_empty() {
        let (command, used) = command::decode_first::<Command, MAX_BYTES>(part, "step of a graph")?;
        let place = steps.len();
        part = part.split_at(used).1;
        match command {
            Command::StepAfter { steps: after }
                if edges.is_none() && after.iter().all(|&before| (before as usize) < place) =>
            {
                edges = Some(after);
            }
            command if is_step(&command) && place < MAX_STEPS => steps.push(Step {
                command: in_stream(command, stream),
                after: edges.take().unwrap_or_else(|| previous(place)),
            }),
            _ => {
                return Err(RingError::Decode {
                    what: "part of a graph",
                    reason: format!("step {place} cannot be one"),
                });
            }
        }
    }
    Ok(steps)
}

/// Appends the body of a record to `record`.
pub fn encode_record(stream: StreamId, (graph, part): (GraphId, u32), steps: &[u8], record: &mut Vec<u8>) {
    record.extend_from_slice(&stream.0.to_le_bytes());
    record.extend_from_slice(&graph.0.to_le_bytes());
    record.extend_from_slice(&u64::from(part).to_le_bytes());
    record.extend_from_slice(steps);
}

/// The command that a record's body is; any bytes may be given.
///
/// # Errors
/// [`RingError::Decode`].
pub fn decode_record(body: &[u8]) -> Result<Envelope, RingError> {
    let bad = |reason: String| RingError::Decode {
        what: "part of a graph",
        reason,
    };
    let too_short = || bad(format!("{} bytes are too few", body.len()));
    let (fixed, steps) = body.split_first_chunk::<STEPS>().ok_or_else(too_short)?;
    let (words, _) = fixed.as_chunks::<8>();
    let [stream, graph, part] = [0, 1, 2].map(|at: usize| u64::from_le_bytes(words[at]));
    let part = u32::try_from(part).map_err(|_| bad(format!("there is no part {part:#x}")))?;
    let command = Command::GraphPart {
        stream: StreamId(stream),
        graph: GraphId(graph),
        part,
        steps: steps.into(),
    };
    Ok(Envelope { reply: None, command })
}

/// The step in the stream that is `wanted`.
#[must_use]
pub fn in_stream(mut step: Command, wanted: StreamId) -> Command {
    match &mut step {
        Command::Launch(launch) => launch.stream = wanted,
        Command::Copy { stream, .. } | Command::Fill { stream, .. } => *stream = wanted,
        _ => {}
    }
    step
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_abi::launch_shape::LaunchShape;
    use proptest::prelude::*;

    use super::*;
    use crate::command::{FillValue, KernelId, LaunchCommand, ModuleId, Rows};

    fn launch(stream: StreamId, param_bytes: usize) -> Command {
        Command::Launch(LaunchCommand {
            stream,
            kernel: KernelId {
                module: ModuleId(3),
                index: 4,
            },
            shape: LaunchShape {
                grid: [5, 1, 1],
                block: [6, 1, 1],
                dynamic_shared_bytes: 0,
                cooperative: false,
                cluster: [0; 3],
            },
            params: vec![7; param_bytes].into(),
        })
    }

    fn fill(stream: StreamId) -> Command {
        Command::Fill {
            stream,
            dst: Rows::range(8, 9),
            value: FillValue::U8(1),
        }
    }

    fn row(commands: impl IntoIterator<Item = Command>) -> Vec<Step> {
        let places = commands.into_iter().zip(0..);
        places.map(|(command, place)| Step::in_row(command, place)).collect()
    }

    #[test]
    fn branches_come_back() {
        let stream = StreamId(64);
        let steps = |after: &[&[u32]]| {
            let steps = after.iter().map(|&after| Step {
                command: fill(stream),
                after: after.to_vec(),
            });
            steps.collect::<Vec<_>>()
        };
        let diamond = steps(&[&[], &[0], &[0], &[1, 2], &[]]);
        let parts = encode(diamond.clone()).unwrap();
        assert_eq!(decode(&parts[0], stream).unwrap(), diamond);
        assert!(parts[0].len() > encode(row((0..5).map(|_| fill(stream)))).unwrap()[0].len());
        let edges = |steps: &[u32]| {
            let after = Command::StepAfter { steps: steps.to_vec() };
            command::encode(&after, "edges").unwrap()
        };
        let first = encode(row([fill(stream)])).unwrap();
        for wrong in [
            [edges(&[0]), first[0].to_vec()].concat(),
            [edges(&[]), edges(&[]), first[0].to_vec()].concat(),
        ] {
            decode(&wrong, stream).unwrap_err();
        }
    }

    #[test]
    fn steps_follow_what_other_parts_have() {
        let stream = StreamId(64);
        let mut steps = row((0..MAX_STEPS + 2).map(|_| fill(stream)));
        steps[MAX_STEPS].after = vec![3];
        steps[MAX_STEPS + 1].after = vec![3, MAX_STEPS as u32];
        let parts = encode(steps).unwrap();
        let second = decode(&parts[1], stream).unwrap();
        assert_eq!(second, row([fill(stream), fill(stream)]));
    }

    #[test]
    fn steps_come_back_in_another_stream() {
        let (made_for, wanted) = (StreamId(70), StreamId(80));
        let steps = |stream| row([launch(stream, 16), fill(stream), launch(stream, 0)]);
        let parts = encode(steps(made_for)).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!(decode(&parts[0], wanted).unwrap(), steps(wanted));
        assert_eq!(parts, encode(steps(wanted)).unwrap(), "the stream makes no difference");
        assert!(encode([]).unwrap().is_empty());
    }

    #[test]
    fn parts_are_as_large_as_records_allow() {
        let stream = StreamId(64);
        let counted = |launches: usize, param_bytes| {
            let parts = encode(row((0..launches).map(|_| launch(stream, param_bytes)))).unwrap();
            let counted = parts.iter().map(|part| decode(part, stream).unwrap().len());
            counted.collect::<Vec<_>>()
        };
        assert_eq!(counted(20, 20_000), [1, 3, 13, 3]);
        assert_eq!(counted(6, 20_000), [1, 5]);
        assert_eq!(counted(40, 1000), [8, 32], "the first one is short");
        assert_eq!(counted(100, 16), [100]);
        let many = encode(row((0..MAX_STEPS + 1).map(|_| fill(stream)))).unwrap();
        assert_eq!(many.len(), 2);
        assert!(encode(row([launch(stream, MAX_RECORD_BYTES)])).is_err());
    }

    #[test]
    fn other_commands_are_no_steps() {
        let other = command::encode(&Command::Exit, "command").unwrap();
        decode(&other, StreamId(64)).unwrap_err();
    }

    #[test]
    fn records_come_back() {
        let mut record = Vec::new();
        encode_record(StreamId(70), (GraphId(5), 6), &[7; 9], &mut record);
        let command = Command::GraphPart {
            stream: StreamId(70),
            graph: GraphId(5),
            part: 6,
            steps: Arc::new([7; 9]),
        };
        assert_eq!(decode_record(&record).unwrap().command, command);
        decode_record(&record[..STEPS - 1]).unwrap_err();
        record[23] = 1;
        decode_record(&record).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (decode(&bytes, StreamId(64)), decode_record(&bytes));
        }
    }
}
