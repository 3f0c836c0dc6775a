//! Where a dump's memory goes if not into the folder of images, and why it may come to an end early.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use hetckpt_archive::sections::Sections;
use hetckpt_report::failure::Failure;

/// Who wants a dump's memory.
pub trait MemorySink {
    /// Takes the content of the file that would be called `name` in the folder of images, all that `content` gives.
    fn take(&mut self, name: &str, content: &mut dyn Sections) -> Result<(), Failure>;

    /// Sees to it that what was taken so far is on the disk, if it lies in a file.
    fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// A file to whose end devices' servers may write memory by themselves, while nothing else is taken.
    fn file(&mut self) -> Result<Option<BorrowedFd<'_>>, Failure> {
        Ok(None)
    }

    /// All servers have captured, into the folder `images`. Gives the sizes of memory files that stand in that file
    /// instead, by name.
    fn devices_done(&mut self, _images: &Path) -> Result<Sizes, Failure> {
        Ok(Sizes::new())
    }
}

/// Sizes of memory files that were taken, by name.
pub type Sizes = BTreeMap<String, u64>;

/// Why there is no more to come.
pub enum Broken {
    /// CRIU is gone, or does not listen: it tells itself why.
    Ended,
    /// Something else.
    Failed(Failure),
}

/// Where memory comes from.
pub trait MemorySource {
    /// Reads on; 0 at the end of a section.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken>;

    /// Begins the next section ([`Sections`]); false if there is none.
    fn next_section(&mut self) -> Result<bool, Broken> {
        Ok(false)
    }
}

/// Has `taker` take all that `source` gives. What has gone wrong in reading it is the reason for what has gone wrong in
/// taking it.
pub fn hand_over(taker: &mut dyn MemorySink, name: &str, source: &mut dyn MemorySource) -> Result<(), Broken> {
    let mut content = Content { source, broken: None };
    let taken = taker.take(name, &mut content);
    match content.broken {
        Some(broken) => Err(broken),
        None => taken.map_err(Broken::Failed),
    }
}

struct Content<'a> {
    source: &'a mut dyn MemorySource,
    broken: Option<Broken>,
}

impl Content<'_> {
    fn noted<T>(&mut self, result: Result<T, Broken>) -> io::Result<T> {
        result.map_err(|broken| {
            self.broken = Some(broken);
            io::Error::other("there is no more to come")
        })
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.source.fill(buffer);
        self.noted(result)
    }
}

impl Sections for Content<'_> {
    fn next_section(&mut self) -> io::Result<bool> {
        let result = self.source.next_section();
        self.noted(result)
    }
}

/// Takers for tests.
#[cfg(test)]
pub mod sinks {
    use std::collections::BTreeMap;

    use hetckpt_ring::failure_code::Code;

    use super::*;

    /// Keeps what it is given, section by section.
    #[derive(Default)]
    pub struct Shelf(pub BTreeMap<String, Vec<Vec<u8>>>);

    impl MemorySink for Shelf {
        fn take(&mut self, name: &str, content: &mut dyn Sections) -> Result<(), Failure> {
            let failed = |e: io::Error| Failure::new(Code::CannotWrite, e.to_string());
            let mut sections = vec![];
            loop {
                let mut taken = vec![];
                content.read_to_end(&mut taken).map_err(failed)?;
                sections.push(taken);
                if !content.next_section().map_err(failed)? {
                    break;
                }
            }
            self.0.insert(name.to_owned(), sections);
            Ok(())
        }
    }

    /// Takes nothing.
    pub struct Full;

    impl MemorySink for Full {
        fn take(&mut self, _: &str, _: &mut dyn Sections) -> Result<(), Failure> {
            Err(Failure::new(Code::ConnectionBroke, "the connection broke"))
        }
    }
}
