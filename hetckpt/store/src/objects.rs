//! The files or objects of a store, whichever of the two they are.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use crate::error::StoreError;
use crate::folder::{Folder, Found};
use crate::location::{Location, shown};
use crate::remote::{Patience, Remote};
use crate::watch::Watch;

/// Bytes that are read or written at a time.
pub(crate) const PIECE: usize = 1 << 20;

/// A store's files or objects. Their names are `KEY/NAME`.
pub(crate) enum Objects {
    /// In a folder.
    Folder(Folder),
    /// In an object store.
    Remote(Box<Remote>),
}

impl Objects {
    /// Opens those at `location`. Nothing is asked of an object store yet.
    pub(crate) fn open(location: &Location, patience: Patience) -> Result<Self, StoreError> {
        match location {
            Location::Folder(root) => Ok(Self::Folder(Folder { root: root.clone() })),
            Location::Remote(url) => {
                Remote::open(url, location.name(), patience).map(|remote| Self::Remote(Box::new(remote)))
            }
        }
    }

    /// What is in the small object `name`, if it is there.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::Folder(folder) => folder.get(name),
            Self::Remote(remote) => Ok(remote.get(name)?.map(|(bytes, _)| bytes)),
        }
    }

    /// The same of many, in their order.
    pub(crate) fn get_all(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        match self {
            Self::Folder(folder) => names.iter().map(|name| folder.get(name)).collect(),
            Self::Remote(remote) => remote.get_all(names),
        }
    }

    /// Writes the small object `name`, in the place of what has that name.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Folder(folder) => folder.put(name, bytes),
            Self::Remote(remote) => remote.put(name, bytes),
        }
    }

    /// The jobs' folders.
    pub(crate) fn folders(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Folder(folder) => folder.folders(),
            Self::Remote(remote) => remote.folders(),
        }
    }

    /// What is in a job's folder.
    pub(crate) fn list(&self, job: &str) -> Result<Vec<Found>, StoreError> {
        match self {
            Self::Folder(folder) => folder.list(job),
            Self::Remote(remote) => remote.list(job),
        }
    }

    /// Removes the object `name`, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Folder(folder) => folder.remove(name),
            Self::Remote(remote) => remote.remove(name),
        }
    }

    /// Size of the object `name`, bytes, if it is there.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Folder(folder) => match folder.open(name) {
                Ok((_, bytes)) => Ok(Some(bytes)),
                Err(StoreError::Folder { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Self::Remote(remote) => remote.size(name),
        }
    }

    /// Writes what `produce` writes, about `bytes` if that is known, as the object `name`; it has the name when it is
    /// complete. `note` is told the id of an upload in parts before the first part.
    pub(crate) fn write<T: Send>(
        &self,
        name: &str,
        bytes: Option<u64>,
        watch: &mut Watch<'_>,
        note: impl FnOnce(&str) -> Result<(), StoreError>,
        produce: impl FnOnce(&mut dyn Write) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        match self {
            Self::Folder(folder) => {
                let mut produced = None;
                folder.write(name, |file| {
                    let mut out = Watched {
                        inner: file,
                        watch,
                        done: 0,
                    };
                    let made = produce(&mut out);
                    watch.look()?;
                    produced = Some(made?);
                    Ok(())
                })?;
                produced.ok_or(StoreError::Interrupted)
            }
            Self::Remote(remote) => remote.write(name, bytes, watch, note, |out| produce(out)),
        }
    }

    /// The bytes of a range of the object `name`, all of them. Several threads may ask at once.
    pub(crate) fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        match self {
            Self::Folder(folder) => {
                let (file, _) = folder.open(name)?;
                let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
                let read = file.read_exact_at(&mut bytes, range.start);
                read.map_err(|source| StoreError::Folder {
                    action: "read",
                    path: folder.path(name),
                    source,
                })?;
                Ok(bytes.into())
            }
            Self::Remote(remote) => remote.read_range(name, range),
        }
    }

    /// Reads the object `name` of `bytes` and gives them to `consume`.
    pub(crate) fn read<T: Send>(
        &self,
        name: &str,
        bytes: u64,
        watch: &mut Watch<'_>,
        consume: impl FnOnce(&mut dyn Read) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        match self {
            Self::Folder(folder) => {
                let (mut file, _) = folder.open(name)?;
                let consumed = consume(&mut Watched {
                    inner: &mut file,
                    watch,
                    done: 0,
                });
                watch.look()?;
                consumed
            }
            Self::Remote(remote) => remote.read(name, bytes, watch, |stored| consume(stored)),
        }
    }
}

/// The store at `url`.
pub(crate) fn locate(url: &str) -> Result<Location, StoreError> {
    Location::parse(url).map_err(|source| StoreError::Url {
        url: shown(url),
        source,
    })
}

/// A file through which whoever waits sees what is done, and ends it.
struct Watched<'a, 'w, F> {
    inner: &'a mut F,
    watch: &'a mut Watch<'w>,
    done: u64,
}

impl<F> Watched<'_, '_, F> {
    fn count(&mut self, bytes: usize) -> std::io::Result<usize> {
        self.done += bytes as u64;
        let watched = self.watch.done(self.done);
        watched.map_err(|_| std::io::Error::other("interrupted"))?;
        Ok(bytes)
    }
}

impl<F: Write> Write for Watched<'_, '_, F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.count(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<F: Read> Read for Watched<'_, '_, F> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(out)?;
        self.count(read)
    }
}
