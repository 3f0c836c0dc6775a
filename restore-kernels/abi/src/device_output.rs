//! What kernels print: a ring of records in device memory, a variable of each module that calls `vprintf` or
//! `__assertfail`. Kernels append, the driver library takes.
//!
//! A record holds the number of its reservation plus one, written last, so that a reader sees which are whole; the
//! address of the format string, 0 for a failed assertion; and the arguments as `vprintf` gets them, each with its
//! natural alignment. A failed assertion has instead the addresses of message, file and function, then line, block and
//! thread index (seven `u32`).

/// Start of the variable's name; the size of a record follows.
pub const NAME: &str = "__hetckpt_output_";

/// `u32`: records reserved so far.
pub const TAKEN: u32 = 0;
/// `u32`: records the reader is done with.
pub const PRINTED: u32 = 4;
/// `u32`: calls that found no room.
pub const LOST: u32 = 8;
/// Offset of the first record.
pub const HEADER_BYTES: u32 = 64;

/// In a record, `u32`: its number plus one.
pub const NUMBER: u32 = 0;
/// In a record, `u64`: the format string's address.
pub const FORMAT: u32 = 8;
/// In a record: the arguments.
pub const ARGUMENTS: u32 = 16;

/// Size of a failed assertion's record.
pub const ASSERT_BYTES: u32 = ARGUMENTS + 3 * 8 + 7 * 4;

/// Bytes for all records together; NVIDIA's drivers have as much by default (`CU_LIMIT_PRINTF_FIFO_SIZE`).
const RECORDS_BYTES: u32 = 1 << 20;
/// Sizes a record can have: powers of two, so that numbers can wrap.
const RECORD_SIZES: std::ops::RangeInclusive<u32> = 32..=512;

/// The size of records that have room for `content_bytes`.
#[must_use]
pub fn record_bytes(content_bytes: u32) -> u32 {
    content_bytes
        .next_power_of_two()
        .clamp(*RECORD_SIZES.start(), *RECORD_SIZES.end())
}

/// Number of records in a buffer, a power of two.
#[must_use]
pub fn num_records(record_bytes: u32) -> u32 {
    RECORDS_BYTES / record_bytes
}

/// Size of a buffer, header included.
#[must_use]
pub fn buffer_bytes() -> u32 {
    HEADER_BYTES + RECORDS_BYTES
}

/// Name of a buffer with such records.
#[must_use]
pub fn name(record_bytes: u32) -> String {
    format!("{NAME}{record_bytes}")
}

/// The size of a buffer's records, from its name; `None` for any other variable.
#[must_use]
pub fn record_bytes_of(name: &str) -> Option<u32> {
    let size: u32 = name.strip_prefix(NAME)?.parse().ok()?;
    (RECORD_SIZES.contains(&size) && size.is_power_of_two()).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_long_records_are() {
        for content in [16, 33, 68, 272] {
            let size = record_bytes(content);
            assert!(size >= content && num_records(size).is_power_of_two());
            assert_eq!(record_bytes_of(&name(size)), Some(size));
        }
        for other in [
            "__hetckpt_output_",
            "__hetckpt_output_48",
            "__hetckpt_output_0",
            "output",
        ] {
            assert_eq!(record_bytes_of(other), None);
        }
    }
}
