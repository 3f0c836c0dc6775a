//! What CRIU says to a page server: commands of a fixed size, behind some of them pages.
//!
//! # Source
//! CRIU, `criu/page-xfer.c` (`struct page_server_iov`, `encode_pm`, `encode_ps_cmd`) and `criu/include/pagemap.h`
//! (flags). All words are the machine's own.

use std::io::{self, Read};

use crate::image_messages::{IS_PRESENT, PAGE_BYTES};

/// Commands: the lower half of a command's first word. The upper half is flags.
const OPEN: u32 = 4;

const HAS_PARENT: u32 = 5;

const ADD: u32 = 6;

const CLOSE: u32 = 0x1023;

const FORCE_CLOSE: u32 = 0x1024;

const COMMAND_BITS: u32 = 16;

/// Kinds of image: the lowest byte of an image's number.
const OF_PROCESS: u64 = 1;

const OF_SHARED_MEMORY: u64 = 2;

const KIND_BITS: u32 = 8;

/// Flag of a row whose pages lie in an earlier dump.
const IN_PARENT: u32 = 1;

/// Bytes of a command up to CRIU 4.1.1, whose count of pages has four bytes, and of the first part of a later one.
const SHORT_BYTES: usize = 24;

/// What a later one has besides.
const REST_BYTES: usize = 8;

/// How long commands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Up to CRIU 4.1.1: command, count (four bytes each), address, image (eight bytes each).
    Short,
    /// Since CRIU 4.2: command, four bytes of padding, count, address, image (eight bytes each).
    Long,
}

/// Whose pages an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// A process's own.
    Process(u64),
    /// Those of shared memory, by its number.
    SharedMemory(u64),
}

/// What CRIU wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The next image begins. Answered by a byte: whether an earlier dump has it too.
    Open(Image),
    /// Asks whether an earlier dump has an image. Answered by a word.
    HasParent,
    /// A row of pages.
    Add(Row),
    /// All pages have been sent. Answered by a word: 0.
    Close,
}

/// A row of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it belongs.
    pub image: Image,
    /// Where it is mapped; of shared memory, where in it.
    pub address: u64,
    /// How many pages.
    pub count: u64,
    /// As in the image.
    pub flags: u32,
}

impl Image {
    /// Name of the image that lists its rows.
    pub fn name(self) -> String {
        match self {
            Self::Process(pid) => format!("pagemap-{pid}.img"),
            Self::SharedMemory(id) => format!("pagemap-shmem-{id}.img"),
        }
    }

    fn decode(number: u64) -> io::Result<Self> {
        match number & ((1 << KIND_BITS) - 1) {
            OF_PROCESS => Ok(Self::Process(number >> KIND_BITS)),
            OF_SHARED_MEMORY => Ok(Self::SharedMemory(number >> KIND_BITS)),
            kind => Err(nonsense(format!("an image of kind {kind}"))),
        }
    }
}

impl Row {
    /// Bytes that follow the command.
    pub fn stored_bytes(&self) -> u64 {
        match self.flags & IS_PRESENT {
            0 => 0,
            _ => self.count * PAGE_BYTES,
        }
    }

    /// Fails if there is no such memory.
    fn checked(self) -> io::Result<Self> {
        let size = self.count.checked_mul(PAGE_BYTES);
        let end = size.and_then(|size| self.address.checked_add(size));
        if end.is_none() || !self.address.is_multiple_of(PAGE_BYTES) {
            return Err(nonsense(format!("{} pages at {:#x}", self.count, self.address)));
        }
        match self.flags & IN_PARENT {
            0 => Ok(self),
            _ => Err(nonsense("pages of an earlier dump")),
        }
    }
}

/// The next command. `form` is what the first one that tells has shown.
///
/// The first command but [`Command::Close`] is for an image and has neither count nor address, so where a short one has
/// its image, which is never 0, a long one has 0.
pub fn read(input: &mut impl Read, form: &mut Option<Form>) -> io::Result<Command> {
    let mut short = [0; SHORT_BYTES];
    input.read_exact(&mut short)?;
    let first = word(&short, 0);
    let (command, flags) = (first & ((1 << COMMAND_BITS) - 1), first >> COMMAND_BITS);
    let form = match (*form, command) {
        (Some(form), _) => form,
        // The rest of it, if there is one, is not waited for: nothing comes behind.
        (None, CLOSE | FORCE_CLOSE) => return Ok(Command::Close),
        (None, _) => *form.insert(if long(&short, 16) == 0 { Form::Long } else { Form::Short }),
    };
    let (count, address, image) = match form {
        Form::Short => (u64::from(word(&short, 4)), long(&short, 8), long(&short, 16)),
        Form::Long => {
            let mut rest = [0; REST_BYTES];
            input.read_exact(&mut rest)?;
            (long(&short, 8), long(&short, 16), u64::from_ne_bytes(rest))
        }
    };
    match command {
        OPEN => Ok(Command::Open(Image::decode(image)?)),
        HAS_PARENT => Ok(Command::HasParent),
        ADD => Row {
            image: Image::decode(image)?,
            address,
            count,
            flags,
        }
        .checked()
        .map(Command::Add),
        CLOSE | FORCE_CLOSE => Ok(Command::Close),
        _ => Err(nonsense(format!("command {command}"))),
    }
}

/// The four bytes from `at` on.
fn word(bytes: &[u8; SHORT_BYTES], at: usize) -> u32 {
    let found = bytes[at..].first_chunk();
    found.map_or(0, |found| u32::from_ne_bytes(*found))
}

/// The eight bytes from `at` on.
fn long(bytes: &[u8; SHORT_BYTES], at: usize) -> u64 {
    let found = bytes[at..].first_chunk();
    found.map_or(0, |found| u64::from_ne_bytes(*found))
}

/// The error for bytes that no CRIU sends.
pub fn nonsense(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A command as CRIU sends it.
    pub fn encode(form: Form, command: Command) -> Vec<u8> {
        let number = |image| match image {
            Image::Process(id) => id << KIND_BITS | OF_PROCESS,
            Image::SharedMemory(id) => id << KIND_BITS | OF_SHARED_MEMORY,
        };
        let (first, count, address, image) = match command {
            Command::Open(image) => (OPEN, 0, 0, number(image)),
            Command::HasParent => (HAS_PARENT, 0, 0, number(Image::Process(1))),
            Command::Add(row) => (
                ADD | row.flags << COMMAND_BITS,
                row.count,
                row.address,
                number(row.image),
            ),
            Command::Close => (FORCE_CLOSE, 0, 0, 0),
        };
        let mut bytes = first.to_ne_bytes().to_vec();
        match form {
            Form::Short => bytes.extend(u32::try_from(count).unwrap().to_ne_bytes()),
            Form::Long => {
                bytes.extend([0; 4]);
                bytes.extend(count.to_ne_bytes());
            }
        }
        bytes.extend([address.to_ne_bytes(), image.to_ne_bytes()].concat());
        bytes
    }

    fn images() -> impl Strategy<Value = Image> {
        let ids = 0..u64::MAX >> KIND_BITS;
        prop_oneof![ids.clone().prop_map(Image::Process), ids.prop_map(Image::SharedMemory)]
    }

    fn commands() -> impl Strategy<Value = Command> {
        let rows = (images(), 0..1u64 << 40, any::<u32>(), 0..0x8000u32);
        prop_oneof![
            images().prop_map(Command::Open),
            Just(Command::HasParent),
            Just(Command::Close),
            rows.prop_map(|(image, page, count, flags)| Command::Add(Row {
                image,
                address: page * PAGE_BYTES,
                count: count.into(),
                flags: flags << 1,
            })),
        ]
    }

    proptest! {
        #[test]
        fn what_criu_of_either_form_says_is_understood(
            is_long in any::<bool>(), first in images(), rest in prop::collection::vec(commands(), 0..20)
        ) {
            let form = if is_long { Form::Long } else { Form::Short };
            let said = [vec![Command::Open(first)], rest].concat();
            let bytes: Vec<u8> = said.iter().flat_map(|&command| encode(form, command)).collect();
            let (mut input, mut found) = (bytes.as_slice(), None);
            for command in said {
                prop_assert_eq!(read(&mut input, &mut found).unwrap(), command);
                prop_assert_eq!(found, Some(form));
            }
            prop_assert!(read(&mut input, &mut found).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), form in 0usize..3) {
            let mut form = [None, Some(Form::Short), Some(Form::Long)][form];
            let mut input = bytes.as_slice();
            while let Ok(command) = read(&mut input, &mut form) {
                if let Command::Add(row) = command {
                    prop_assert!(row.address.checked_add(row.stored_bytes()).is_some());
                }
            }
        }
    }

    #[test]
    fn an_end_before_anything_else_is_understood() {
        for form in [Form::Short, Form::Long] {
            let bytes = encode(form, Command::Close);
            assert_eq!(read(&mut bytes.as_slice(), &mut None).unwrap(), Command::Close);
        }
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        let row = Row {
            image: Image::Process(1),
            address: 0x1000,
            count: 1,
            flags: IS_PRESENT,
        };
        let refused = |row| {
            let bytes = encode(Form::Long, Command::Add(row));
            read(&mut bytes.as_slice(), &mut Some(Form::Long)).is_err()
        };
        assert!(!refused(row));
        assert!(refused(Row { address: 1, ..row }));
        assert!(refused(Row { count: 1 << 52, ..row }));
        assert!(refused(Row {
            count: 1 << 51,
            address: 1 << 63,
            ..row
        }));
        assert!(refused(Row {
            flags: IN_PARENT,
            ..row
        }));
    }
}
