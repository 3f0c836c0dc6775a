//! Tests of the page server, with a thread in the part of CRIU.

use hetckpt_ring::failure_code::Code;
use std::fs;

use super::*;
use crate::image_messages::{IS_PRESENT, PAGE_BYTES};
use crate::images::Images;
use crate::memory_sink::sinks::{Full, Shelf};
use crate::page_protocol::tests::encode;

const PROCESS: Image = Image::Process(7);
const SHARED: Image = Image::SharedMemory(9);

fn row(image: Image, address: u64, count: u64) -> Command {
    Command::Add(Row {
        image,
        address,
        count,
        flags: IS_PRESENT,
    })
}

fn pages(count: u64, byte: u8) -> Vec<u8> {
    vec![byte; usize::try_from(count * PAGE_BYTES).unwrap()]
}

/// Sends bytes and waits for an answer of so many zeros.
fn ask(mut socket: &UnixStream, bytes: &[u8], answer_bytes: usize) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::new(Code::CriuDump, format!("CRIU: {e}"));
    socket.write_all(bytes).map_err(failed)?;
    let mut answer = vec![1; answer_bytes];
    socket.read_exact(&mut answer).map_err(failed)?;
    assert!(answer.iter().all(|&byte| byte == 0));
    Ok(())
}

/// As [`while_serving`], with `criu` from when it sends pages.
fn serving(
    folder: &Path,
    taker: &mut dyn MemorySink,
    criu: impl FnOnce(&UnixStream) -> Result<(), Failure> + Send,
) -> Result<Sizes, Failure> {
    while_serving(
        folder,
        |_| Ok(DeviceStreams::default()),
        taker,
        |sockets| {
            let mut plugin = &sockets.go_ahead;
            plugin.write_all(b"?").unwrap();
            plugin.read_exact(&mut [0]).unwrap();
            criu(&sockets.pages)
        },
    )
}

#[test]
fn what_fails_before_the_dump_begins_is_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |text: &'static str| move |_: &mut dyn MemorySink| Err(Failure::new(Code::NotStopped, text));
    // The plugin hears no answer.
    let failure = while_serving(folder.path(), fails("kernels"), &mut Shelf::default(), |sockets| {
        let mut plugin = &sockets.go_ahead;
        plugin.write_all(b"?").unwrap();
        assert_eq!(plugin.read(&mut [0]).unwrap(), 0);
        Err(Failure::new(Code::CriuDump, "plugin"))
    });
    assert_eq!(failure.unwrap_err().message, "kernels");
    // CRIU does not come so far, or has no plugin.
    let failure = while_serving(folder.path(), fails("asked"), &mut Shelf::default(), |_| {
        Err(Failure::new(Code::CriuDump, "options"))
    });
    assert_eq!(failure.unwrap_err().message, "options");
    let failure = while_serving(folder.path(), fails("asked"), &mut Shelf::default(), |sockets| {
        ask(&sockets.pages, &encode(Form::Long, Command::HasParent), 4)
    });
    assert!(failure.unwrap_err().notes[0].contains("plugin"));
}

#[test]
fn images_are_those_that_criu_would_have_written() {
    for form in [Form::Short, Form::Long] {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::default();
        serving(folder.path(), &mut shelf, |socket| {
            let say = |command| encode(form, command);
            ask(socket, &say(Command::HasParent), 4)?;
            ask(socket, &say(Command::Open(PROCESS)), 1)?;
            let first = [say(row(PROCESS, 0x1000, 2)), pages(2, 1)].concat();
            ask(socket, &first, 0)?;
            let second = [say(row(PROCESS, 0x9000, 300)), pages(300, 2)].concat();
            ask(socket, &second, 0)?;
            ask(socket, &say(Command::HasParent), 4)?;
            ask(socket, &say(Command::Open(SHARED)), 1)?;
            ask(socket, &[say(row(SHARED, 0, 1)), pages(1, 3)].concat(), 0)?;
            ask(socket, &say(Command::Open(Image::Process(8))), 1)?;
            ask(socket, &say(Command::Close), 4)
        })
        .unwrap();
        let expected = [
            // Cut where the address is a multiple of a section's length.
            (
                "pages-1.img".to_owned(),
                vec![[pages(2, 1), pages(0x100 - 9, 2)].concat(), pages(300 - (0x100 - 9), 2)],
            ),
            ("pages-2.img".to_owned(), vec![pages(1, 3)]),
            ("pages-3.img".to_owned(), vec![vec![]]),
        ];
        assert_eq!(shelf.0, expected.into());
        let images = Images(folder.path());
        let rows = |name: &str| {
            let image = images.image(name, PAGEMAP_MAGIC).unwrap();
            let mut messages = image.messages().map(Result::unwrap);
            let head = PagemapHead::decode(messages.next().unwrap()).unwrap();
            let rows: Vec<_> = messages.map(|row| PagemapEntry::decode(row).unwrap()).collect();
            (head.pages_id, rows)
        };
        let entry = |address, count| PagemapEntry {
            address,
            short_count: u32::try_from(count).unwrap(),
            flags: IS_PRESENT,
            count,
        };
        let (number, found) = rows("pagemap-7.img");
        assert_eq!((number, found), (1, vec![entry(0x1000, 2), entry(0x9000, 300)]));
        assert_eq!(rows("pagemap-shmem-9.img"), (2, vec![entry(0, 1)]));
        assert_eq!(rows("pagemap-8.img"), (3, vec![]));
        // CRIU insists on these fields, also where they are 0.
        let image = images.image("pagemap-shmem-9.img", PAGEMAP_MAGIC).unwrap();
        let row = image.messages().nth(1).unwrap().unwrap();
        assert_eq!(row, [0x08, 0, 0x10, 1, 0x20, 4, 0x28, 1]);
    }
}

#[test]
fn who_ends_early_tells_why() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |end: Result<(), Failure>| {
        let open = encode(Form::Long, Command::Open(PROCESS));
        let criu = |socket: &UnixStream| {
            ask(socket, &open, 1)?;
            ask(socket, &encode(Form::Long, row(PROCESS, 0x1000, 2)), 0)?;
            end
        };
        serving(folder.path(), &mut Shelf::default(), criu).unwrap_err()
    };
    assert_eq!(serve(Err(Failure::new(Code::CriuDump, "killed"))).message, "killed");
    assert!(serve(Ok(())).notes[0].contains("before it had given all memory"));
}

#[test]
fn what_cannot_be_taken_ends_criu_and_is_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let failure = serving(folder.path(), &mut Full, |socket| {
        ask(socket, &encode(Form::Long, Command::Open(PROCESS)), 1)?;
        // More than a socket holds.
        ask(socket, &pages(1000, 1), 0)?;
        Ok(())
    })
    .unwrap_err();
    assert_eq!(failure.code, Code::ConnectionBroke);
}

#[test]
fn what_no_criu_says_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let of_another = encode(Form::Long, row(SHARED, 0, 1));
    let refused = |first: Vec<u8>, second: &[u8]| {
        serving(folder.path(), &mut Shelf::default(), |socket| {
            ask(socket, &first, 1)?;
            ask(socket, second, 1)
        })
        .unwrap_err()
    };
    let open = encode(Form::Long, Command::Open(PROCESS));
    for failure in [
        refused(open.clone(), &of_another),
        refused(of_another.clone(), &[]),
        refused(open, &[0xff; 32]),
    ] {
        assert!(failure.message.contains("not understood"), "{failure}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().count() <= 1);
}
