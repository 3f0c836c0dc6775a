//! Records as kernels write them.

use hetckpt_abi::device_output as layout;

use super::format::DeviceStrings;

/// A buffer's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Records reserved so far.
    pub taken: u32,
    /// Calls that found no room.
    pub lost: u32,
}

impl Header {
    pub fn new(bytes: &[u8]) -> Self {
        Self {
            taken: u32_at(bytes, layout::TAKEN),
            lost: u32_at(bytes, layout::LOST),
        }
    }
}

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'b> {
    /// A call of `printf`.
    Printed {
        /// Address of the format string.
        format: u64,
        /// The arguments, and what lay behind them.
        arguments: &'b [u8],
    },
    /// A failed assertion.
    Asserted(Assertion),
}

/// A failed assertion.
#[derive(Debug, PartialEq, Eq)]
pub struct Assertion {
    /// Addresses of message, file name and function's name.
    strings: [u64; 3],
    line: u32,
    block: [u32; 3],
    thread: [u32; 3],
}

impl<'b> Record<'b> {
    /// The record numbered `number`, if a kernel has written it.
    pub fn written(bytes: &'b [u8], number: u32) -> Option<Self> {
        if u32_at(bytes, layout::NUMBER) != number.wrapping_add(1) {
            return None;
        }
        let arguments = bytes.get(layout::ARGUMENTS as usize..)?;
        let format = u64_at(bytes, layout::FORMAT);
        if format != 0 {
            return Some(Self::Printed { format, arguments });
        }
        let words = |at: u32| [0, 4, 8].map(|i| u32_at(arguments, at + i));
        Some(Self::Asserted(Assertion {
            strings: [0, 8, 16].map(|at| u64_at(arguments, at)),
            line: u32_at(arguments, 24),
            block: words(28),
            thread: words(40),
        }))
    }
}

impl Assertion {
    /// What CUDA prints.
    pub fn message(&self, device: &impl DeviceStrings) -> String {
        let text = |addr| {
            let string = device.string(addr).unwrap_or_else(|| b"?".to_vec());
            String::from_utf8_lossy(&string).into_owned()
        };
        let [message, file, function] = self.strings.map(text);
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        let line = self.line;
        format!(
            "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed."
        )
    }
}

fn u32_at(bytes: &[u8], at: u32) -> u32 {
    let found = bytes.get(at as usize..).and_then(|b| b.first_chunk());
    found.map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: u32) -> u64 {
    let found = bytes.get(at as usize..).and_then(|b| b.first_chunk());
    found.map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Strings;
    impl DeviceStrings for Strings {
        fn string(&self, addr: u64) -> Option<Vec<u8>> {
            (addr < 100).then(|| format!("s{addr}").into_bytes())
        }
    }

    #[test]
    fn only_the_record_that_is_due_counts() {
        let mut bytes = [0; 32];
        bytes[0] = 8;
        bytes[8] = 1;
        assert!(
            matches!(Record::written(&bytes, 7), Some(Record::Printed { format: 1, arguments }) if arguments.len() == 16)
        );
        assert_eq!(Record::written(&bytes, 8), None);
        assert_eq!(Record::written(&[0; 8], u32::MAX), None);
    }

    #[test]
    fn an_assertion_is_told_as_cuda_tells_it() {
        let mut bytes = vec![0; 128];
        for (at, value) in [
            (0, 1),
            (16, 10),
            (24, 200),
            (32, 12),
            (40, 77),
            (44, 1),
            (48, 2),
            (52, 3),
            (56, 4),
            (60, 5),
            (64, 6),
        ] {
            bytes[at] = value;
        }
        let Some(Record::Asserted(failed)) = Record::written(&bytes, 0) else {
            panic!("no assertion");
        };
        let expected = "?:77: s12: block: [1,2,3], thread: [4,5,6] Assertion `s10` failed.";
        assert_eq!(failed.message(&Strings), expected);
    }
}
