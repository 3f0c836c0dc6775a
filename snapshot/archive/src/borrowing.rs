//! What an archive has in others: opening these, and finding, unpacking and copying what is borrowed from them.

use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::ArchiveError;
use crate::manifest::{Borrowed, Encoding, MemberEntry, Parent, Part};
use crate::memory_source::{MemberPlace, PartPlace};
use crate::reader::{Archive, InFile, Member, Stored};

impl<'a> Member<'a> {
    /// Those of its own parts that have some of the `size` bytes at `start`.
    fn parts_of(&self, start: u64, size: u64) -> impl Iterator<Item = (InFile, &'a Part)> {
        let end = start.saturating_add(size);
        let after = self.places.partition_point(|place| place.start <= start);
        let first = after.saturating_sub(1);
        let parts = self.places.iter().copied().zip(&self.entry.parts).skip(first);
        parts.take_while(move |(place, _)| place.start < end)
    }
}

impl Archive {
    /// The archives that this one borrows from, opened.
    ///
    /// # Errors
    /// [`ArchiveError::NoParent`], [`ArchiveError::OtherParent`].
    pub fn parents(&self) -> Result<&[Self], ArchiveError> {
        if let Some(parents) = self.parents.get() {
            return Ok(parents);
        }
        let listed = self.manifest().index.parents.iter();
        let opened: Vec<Self> = listed
            .map(|parent| self.open_parent(parent))
            .collect::<Result<_, _>>()?;
        Ok(self.parents.get_or_init(|| opened))
    }

    fn open_parent(&self, listed: &Parent) -> Result<Self, ArchiveError> {
        // A link to it may lie elsewhere.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let parent = path.parent().unwrap_or(Path::new("")).join(&listed.file);
        match Self::open(&parent) {
            Ok(opened) if opened.manifest_hash() == listed.manifest.to_hex().as_str() => Ok(opened),
            Ok(_) => Err(ArchiveError::OtherParent {
                path: self.path.clone(),
                parent,
            }),
            Err(source) => Err(ArchiveError::NoParent {
                path: self.path.clone(),
                parent,
                source: Box::new(source),
            }),
        }
    }

    /// The archive and its member that bytes are borrowed from, which has them.
    fn lender(&self, borrowed: &Borrowed) -> Result<(&Self, Member<'_>), ArchiveError> {
        let found = self.parents()?.get(borrowed.parent as usize);
        let member = found.and_then(|parent| Some((parent, parent.locate(&borrowed.member).ok()?)));
        let has_them = |member: &Member<'_>| {
            let last = member.places.last().zip(member.entry.parts.last());
            let own = last.map_or(0, |(place, part)| place.start.saturating_add(part.raw_bytes));
            let end = borrowed.offset_bytes.checked_add(borrowed.size_bytes);
            member.entry.encoding == Encoding::Stored && end.is_some_and(|end| end <= own)
        };
        member
            .filter(|(_, member)| has_them(member))
            .ok_or_else(|| ArchiveError::Damaged {
                path: self.path.clone(),
                what: format!("it borrows what `{}` of another archive does not have", borrowed.member),
            })
    }

    /// Where the bytes of a member that is stored as it is lie: in this archive's file, which is number 0, and in those
    /// of [`Self::parents`], from 1 on.
    ///
    /// # Errors
    /// As [`Self::parents`]; [`ArchiveError::Damaged`] if one does not have what is borrowed from it.
    pub fn place(&self, member: Member<'_>) -> Result<MemberPlace, ArchiveError> {
        let own = member.parts().map(|(offset_bytes, part)| PartPlace {
            file: 0,
            offset_bytes,
            size_bytes: part.stored_bytes,
        });
        let mut parts: Vec<PartPlace> = own.collect();
        for borrowed in &member.entry.borrowed {
            let (_, lent) = self.lender(borrowed)?;
            let (start, size) = (borrowed.offset_bytes, borrowed.size_bytes);
            parts.extend(lent.parts_of(start, size).map(|(place, part)| {
                let before = start.saturating_sub(place.start);
                let end = part.stored_bytes.min(start + size - place.start);
                PartPlace {
                    file: borrowed.parent + 1,
                    offset_bytes: place.offset + before,
                    size_bytes: end - before,
                }
            }));
        }
        Ok(MemberPlace { parts })
    }

    /// Writes what a member has in another archive to `out`; the parts that it lies in must have their hashes.
    pub(crate) fn unpack_borrowed(
        &self,
        borrowed: &Borrowed,
        out: &mut impl Write,
        target: &Path,
    ) -> Result<(), ArchiveError> {
        let (parent, member) = self.lender(borrowed)?;
        let mut out = Window {
            inner: out,
            before: 0,
            left: borrowed.size_bytes,
        };
        for (place, part) in member.parts_of(borrowed.offset_bytes, borrowed.size_bytes) {
            // Of the first one the end, of the last one the beginning.
            out.before = borrowed.offset_bytes.saturating_sub(place.start);
            parent.unpack_part(member.entry, place.offset, part, &mut out, target)?;
        }
        Ok(())
    }

    /// A member's own part, to be copied.
    pub(crate) fn whole_part<'a>(&'a self, member: Member<'a>, number: usize) -> Lent<'a> {
        let (place, part) = (member.places[number], &member.entry.parts[number]);
        Lent {
            archive: self,
            member: member.entry,
            part,
            is_whole: true,
            bytes: self.stored(place.offset, part),
        }
    }

    /// What a member has in another archive, to be copied in parts.
    pub(crate) fn lent<'a>(&'a self, borrowed: &Borrowed) -> Result<Vec<Lent<'a>>, ArchiveError> {
        let (parent, member) = self.lender(borrowed)?;
        let (start, size) = (borrowed.offset_bytes, borrowed.size_bytes);
        let lent = member.parts_of(start, size).map(|(place, part)| {
            let before = start.saturating_sub(place.start);
            let left = part.stored_bytes.min(start + size - place.start) - before;
            let is_whole = left == part.stored_bytes;
            if !is_whole {
                parent.unpack_part(member.entry, place.offset, part, &mut io::sink(), parent.path())?;
            }
            Ok(Lent {
                archive: parent,
                member: member.entry,
                part,
                is_whole,
                bytes: Stored {
                    backing: &parent.backing,
                    position: place.offset + before,
                    left,
                },
            })
        });
        lent.collect()
    }
}

/// Bytes of a part as they are stored: all of them, or some of a part that has its hash.
pub(crate) struct Lent<'a> {
    archive: &'a Archive,
    member: &'a MemberEntry,
    part: &'a Part,
    is_whole: bool,
    pub(crate) bytes: Stored<'a>,
}

impl Lent<'_> {
    /// How many are left.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.bytes.left
    }

    /// How many bytes of the member are in them.
    pub(crate) fn raw_bytes(&self) -> u64 {
        match self.is_whole {
            true => self.part.raw_bytes,
            false => self.bytes.left,
        }
    }

    /// Fails unless the `copy` of them is right.
    pub(crate) fn ensure_right(&self, copy: &Part) -> Result<(), ArchiveError> {
        match !self.is_whole || copy.blake3 == self.part.blake3 {
            true => Ok(()),
            false => Err(self.archive.damaged(self.member, "does not have its hash")),
        }
    }
}

impl Read for Lent<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buf)
    }
}

/// Passes some of the bytes on that come.
struct Window<'a, W> {
    inner: &'a mut W,
    /// Bytes to come before them.
    before: u64,
    /// Bytes to pass on.
    left: u64,
}

impl<W: Write> Write for Window<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = usize::try_from(self.before).map_or(bytes.len(), |before| before.min(bytes.len()));
        self.before -= skipped as u64;
        let rest = &bytes[skipped..];
        let count = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
        self.inner.write_all(&rest[..count])?;
        self.left -= count as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
