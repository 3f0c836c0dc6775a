//! Copies and fills that the device's queues take, where they do.

use hetckpt_devices::device::{Fill, Transfer};
use hetckpt_ring::command::{Command, FillValue, Rows};

/// What a queue is given for the command; `None` if a thread must do it.
#[must_use]
pub fn transfer_of(command: &Command) -> Option<Transfer> {
    match *command {
        Command::Fill { ref dst, value, .. } => fill(dst, value),
        Command::Copy {
            ref dst,
            src,
            src_pitch,
            ..
        } => copy(dst, src, src_pitch),
        _ => None,
    }
}

/// The value of a fill as devices take it.
#[must_use]
pub fn fill_value(value: FillValue) -> Fill {
    match value {
        FillValue::U8(v) => Fill::U8(v),
        FillValue::U16(v) => Fill::U16(v),
        FillValue::U32(v) => Fill::U32(v),
    }
}

fn fill(dst: &Rows, value: FillValue) -> Option<Transfer> {
    let value = fill_value(value);
    let element = value.element_bytes();
    let fits = dst.rows == 1 || dst.pitch >= dst.width;
    if !fits || !dst.width.is_multiple_of(element) || !dst.addr.is_multiple_of(element) {
        return None;
    }
    let transfer = Transfer::Fill {
        dst: dst.addr,
        pitch_bytes: dst.pitch,
        value,
        width: dst.width / element,
        rows: dst.rows,
    };
    is_possible(&transfer).then_some(transfer)
}

fn copy(dst: &Rows, src: u64, src_pitch: u64) -> Option<Transfer> {
    let is_plain = dst.rows == 1 || (dst.pitch == dst.width && src_pitch == dst.width);
    let size_bytes = dst.width.checked_mul(dst.rows)?;
    let overlaps = dst.addr.abs_diff(src) < size_bytes;
    let dst = dst.addr;
    let transfer = Transfer::Copy { dst, src, size_bytes };
    (is_plain && !overlaps && is_possible(&transfer)).then_some(transfer)
}

/// The ranges of memory that it touches: address and size; `None` if they end beyond all addresses.
#[must_use]
pub fn ranges(transfer: &Transfer) -> Option<impl Iterator<Item = (u64, u64)> + use<>> {
    let (written, read) = match *transfer {
        Transfer::Copy { dst, src, size_bytes } => ((dst, size_bytes), Some((src, size_bytes))),
        Transfer::Fill {
            dst,
            pitch_bytes,
            value,
            width,
            rows,
        } => {
            let row = width.checked_mul(value.element_bytes())?;
            let span = rows.checked_sub(1)?.checked_mul(pitch_bytes)?.checked_add(row)?;
            ((dst, if rows == 1 { row } else { span }), None)
        }
    };
    let ranges = std::iter::once(written).chain(read);
    let fit = ranges.clone().all(|(addr, size)| addr.checked_add(size).is_some());
    fit.then_some(ranges)
}

/// It touches something, and no more than there can be.
fn is_possible(transfer: &Transfer) -> bool {
    ranges(transfer).is_some_and(|mut ranges| ranges.all(|(_, size)| size > 0))
}

#[cfg(test)]
mod tests {
    use hetckpt_ring::command::StreamId;

    use super::*;

    fn rows(addr: u64, pitch: u64, width: u64, rows: u64) -> Rows {
        Rows {
            addr,
            pitch,
            width,
            rows,
        }
    }

    fn copy_of(dst: Rows, src: u64, src_pitch: u64) -> Option<Transfer> {
        let stream = StreamId(0);
        transfer_of(&Command::Copy {
            stream,
            dst,
            src,
            src_pitch,
        })
    }

    fn fill_of(dst: Rows, value: FillValue) -> Option<Transfer> {
        let stream = StreamId(0);
        transfer_of(&Command::Fill { stream, dst, value })
    }

    #[test]
    fn dense_copies_go_to_the_queue() {
        let all = Transfer::Copy {
            dst: 4096,
            src: 0,
            size_bytes: 64,
        };
        assert_eq!(copy_of(rows(4096, 16, 16, 4), 0, 16), Some(all));
        assert_eq!(copy_of(rows(4096, 32, 16, 4), 0, 16), None, "rows apart");
        assert_eq!(copy_of(rows(4096, 16, 16, 4), 4095, 16), None, "they overlap");
        assert_eq!(copy_of(rows(4096, 16, 16, 0), 0, 16), None, "nothing");
        assert_eq!(copy_of(rows(4096, u64::MAX, u64::MAX, 2), 0, u64::MAX), None);
    }

    #[test]
    fn fills_in_whole_elements_go_to_the_queue() {
        let filled = fill_of(rows(4096, 64, 16, 2), FillValue::U32(7));
        let ranges: Vec<_> = filled.iter().filter_map(ranges).flatten().collect();
        assert_eq!(ranges, [(4096, 80)]);
        assert_eq!(
            fill_of(rows(4096, 64, 18, 2), FillValue::U32(7)),
            None,
            "half an element"
        );
        assert_eq!(fill_of(rows(4098, 64, 16, 2), FillValue::U32(7)), None, "not aligned");
        assert_eq!(fill_of(rows(4096, 8, 16, 2), FillValue::U8(7)), None, "rows overlap");
        assert_eq!(
            fill_of(rows(u64::MAX - 8, 16, 16, 1), FillValue::U8(7)),
            None,
            "too far"
        );
    }
}
