//! What an archive has in others: opening these, and finding what is borrowed from them.

use std::io::{self, Write};
use std::path::Path;

use crate::error::ArchiveError;
use crate::limits::MAX_PARTS;
use crate::manifest::{Borrowed, Encoding, MemberEntry, Parent, Part, Run};
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

    /// True if its own parts have those bytes, and, if it is compressed, these are whole parts.
    fn has(&self, borrowed: &Borrowed) -> bool {
        let ends = |(place, part): (&InFile, &Part)| place.start.saturating_add(part.raw_bytes);
        let own = self.places.last().zip(self.entry.parts.last()).map_or(0, ends);
        let Some(end) = borrowed.offset_bytes.checked_add(borrowed.size_bytes) else {
            return false;
        };
        let is_start = |at| self.places.binary_search_by_key(&at, |place| place.start).is_ok();
        match self.entry.encoding {
            Encoding::Stored => end <= own,
            Encoding::Zstd => is_start(borrowed.offset_bytes) && (end == own || is_start(end)),
        }
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

    /// The archive and its member that bytes are borrowed from for `borrower`, which has them.
    fn lender(&self, borrower: &MemberEntry, borrowed: &Borrowed) -> Result<(&Self, Member<'_>), ArchiveError> {
        let found = self.parents()?.get(borrowed.parent as usize);
        let member = found.and_then(|parent| Some((parent, parent.locate(&borrowed.member).ok()?)));
        member
            .filter(|(_, member)| member.entry.encoding == borrower.encoding && member.has(borrowed))
            .ok_or_else(|| ArchiveError::Damaged {
                path: self.path.clone(),
                what: format!("it borrows what `{}` of another archive does not have", borrowed.member),
            })
    }

    /// What a member is made of, in its order.
    ///
    /// # Errors
    /// As [`Self::parents`]; [`ArchiveError::Damaged`] if one does not have what is borrowed from it.
    pub(crate) fn stretches<'a>(&'a self, member: Member<'a>) -> Result<Vec<Stretch<'a>>, ArchiveError> {
        let mut stretches = vec![];
        for run in member.entry.runs() {
            match run {
                Run::Own(number) => {
                    let (place, part) = (member.places[number], &member.entry.parts[number]);
                    stretches.push(Stretch {
                        archive: self,
                        file: 0,
                        member: member.entry,
                        part,
                        place,
                        before: 0,
                        size: part.raw_bytes,
                    });
                }
                Run::Borrowed(borrowed) => {
                    let (parent, lent) = self.lender(member.entry, borrowed)?;
                    let (start, size) = (borrowed.offset_bytes, borrowed.size_bytes);
                    stretches.extend(lent.parts_of(start, size).map(|(place, part)| {
                        // Of the first one the end, of the last one the beginning.
                        let before = start.saturating_sub(place.start);
                        let end = part.raw_bytes.min(start + size - place.start);
                        Stretch {
                            archive: parent,
                            file: borrowed.parent + 1,
                            member: lent.entry,
                            part,
                            place,
                            before,
                            size: end - before,
                        }
                    }));
                }
            }
            // Each borrowed range may name all parts of a lender.
            if stretches.len() > MAX_PARTS {
                return Err(self.damaged(member.entry, "is made of too many pieces"));
            }
        }
        Ok(stretches)
    }

    /// Where the bytes of a member that is stored as it is lie: in this archive's file, which is number 0, and in those
    /// of [`Self::parents`], from 1 on.
    ///
    /// # Errors
    /// As [`Self::parents`]; [`ArchiveError::Damaged`] if one does not have what is borrowed from it.
    pub fn place(&self, member: Member<'_>) -> Result<MemberPlace, ArchiveError> {
        let stretches = self.stretches(member)?;
        let parts = stretches.iter().map(|stretch| PartPlace {
            file: stretch.file,
            offset_bytes: stretch.place.offset + stretch.before,
            size_bytes: stretch.size,
        });
        Ok(MemberPlace { parts: parts.collect() })
    }
}

/// Bytes of a member that lie in one part, of its archive or of one that this borrows from.
pub(crate) struct Stretch<'a> {
    archive: &'a Archive,
    /// Number of the archive: 0, or that of a parent and one.
    pub(crate) file: u32,
    /// The member that has the part.
    pub(crate) member: &'a MemberEntry,
    pub(crate) part: &'a Part,
    pub(crate) place: InFile,
    /// Bytes of the part, unpacked, that come before them.
    before: u64,
    /// How many they are, unpacked.
    pub(crate) size: u64,
}

impl<'a> Stretch<'a> {
    /// True if it is all of the part.
    pub(crate) fn is_whole(&self) -> bool {
        self.size == self.part.raw_bytes
    }

    /// Writes it to `out`, which errors call `target`; the part must have its hash.
    pub(crate) fn unpack(&self, out: &mut impl Write, target: &Path) -> Result<(), ArchiveError> {
        let Self {
            archive, member, part, ..
        } = self;
        if self.is_whole() {
            return archive.unpack_part(member, self.place.offset, part, out, target);
        }
        let mut out = Window {
            inner: out,
            before: self.before,
            left: self.size,
        };
        archive.unpack_part(member, self.place.offset, part, &mut out, target)
    }

    /// Its bytes as they are stored.
    pub(crate) fn stored(&self) -> Stored<'a> {
        Stored {
            backing: &self.archive.backing,
            position: self.place.offset + self.before,
            left: match self.is_whole() {
                true => self.part.stored_bytes,
                // Of what is stored as it is.
                false => self.size,
            },
        }
    }

    /// As [`Self::stored`], to be copied: what is not a whole part, and so has no hash of its own, is part of one that
    /// has its hash.
    pub(crate) fn checked(&self) -> Result<Stored<'a>, ArchiveError> {
        if !self.is_whole() {
            self.unpack(&mut io::sink(), self.archive.path())?;
        }
        Ok(self.stored())
    }

    /// Fails unless the `copy` of it is right.
    pub(crate) fn ensure_right(&self, copy: &Part) -> Result<(), ArchiveError> {
        match !self.is_whole() || copy.blake3 == self.part.blake3 {
            true => Ok(()),
            false => Err(self.archive.damaged(self.member, "does not have its hash")),
        }
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
