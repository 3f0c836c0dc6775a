//! A dump's memory, from a CRIU that says whatever it likes.

use std::io::{Read, Write};
use std::net::Shutdown;

use hetckpt_archive::part_pipeline::PART_BYTES;
use hetckpt_archive::sections::Sections;
use hetckpt_criu::device_streams::DeviceStreams;
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_criu::page_server::while_serving;
use hetckpt_report::failure::Failure;

/// Takes all memory, which has no section that is empty or too long.
struct Sink {
    taken_bytes: u64,
}

impl MemorySink for Sink {
    fn take(&mut self, _: &str, content: &mut dyn Sections) -> Result<(), Failure> {
        let mut number = 0;
        loop {
            let mut section = vec![];
            if content.read_to_end(&mut section).is_err() {
                return Ok(());
            }
            // An image without pages has one that is.
            assert!(section.len() <= PART_BYTES && (number == 0 || !section.is_empty()));
            self.taken_bytes += section.len() as u64;
            number += 1;
            match content.next_section() {
                Ok(true) => {}
                _ => return Ok(()),
            }
        }
    }
}

/// What CRIU says is taken, or refused, to its end.
pub fn page_server(data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = Sink { taken_bytes: 0 };
    let devices = |_: &mut dyn MemorySink| Ok(DeviceStreams::default());
    let _ = while_serving(folder.path(), devices, &mut sink, |sockets| {
        let (mut go_ahead, mut pages) = (&sockets.go_ahead, &sockets.pages);
        if go_ahead
            .write_all(b"?")
            .and_then(|()| go_ahead.read_exact(&mut [0]))
            .is_ok()
        {
            // It may be refused amid.
            let _ = pages.write_all(data);
        }
        let _ = pages.shutdown(Shutdown::Write);
        Ok(())
    });
    assert!(sink.taken_bytes <= data.len() as u64);
}
