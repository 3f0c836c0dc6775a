//! What an image is, and which PTX in it a device takes, or whether it has machine code for the device.

use crate::decompress;
use crate::entry::{Entry, FATBIN_MAGIC, Kind, entries};
use crate::error::FatbinError;

/// The forms in which programs hand over a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// A fatbin without its wrapper.
    Fatbin,
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
}

/// Tells the form of an image by its first bytes.
///
/// # Errors
/// [`FatbinError::NotAnImage`].
pub fn image_kind(image: &[u8]) -> Result<ImageKind, FatbinError> {
    if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Ok(ImageKind::Fatbin);
    }
    if image.starts_with(b"\x7fELF") {
        return Ok(ImageKind::Cubin);
    }
    let is_text = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let start = image
        .iter()
        .position(|b| !b.is_ascii_whitespace())
        .unwrap_or(image.len());
    match image.get(start) {
        Some(b'.' | b'/') if image.iter().take(64).take_while(|b| **b != 0).all(is_text) => Ok(ImageKind::Ptx),
        _ => Err(FatbinError::NotAnImage {
            first_bytes: image.iter().take(4).copied().collect(),
        }),
    }
}

/// PTX found in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPtx {
    /// The text, without zeros at its end.
    pub text: String,
    /// Compute capability it is for, times ten plus minor; `None` if the image is bare PTX (see its `.target`).
    pub arch: Option<u32>,
    /// Options given at compilation.
    pub options: String,
}

/// The PTX in an image for a device of compute capability `device` (times ten plus minor): the one for the highest
/// architecture that the device has. An architecture-specific one (`sm_90a`) counts only on exactly that device.
///
/// # Errors
/// [`FatbinError::NoPtx`] if there is none (an image with cubins only); else what is wrong with the image.
pub fn find_ptx(image: &[u8], device: u32) -> Result<FoundPtx, FatbinError> {
    let none = |ptx, cubins| FatbinError::NoPtx { device, ptx, cubins };
    match image_kind(image)? {
        ImageKind::Ptx => {
            let text = decompress::text(image.to_vec())?;
            Ok(FoundPtx {
                text,
                arch: None,
                options: String::new(),
            })
        }
        ImageKind::Cubin => Err(none(Vec::new(), Vec::new())),
        ImageKind::Fatbin => {
            let all = entries(image)?;
            let best = best_ptx(&all, device);
            let archs = |kind| all.iter().filter(|e| e.kind == kind).map(|e| e.arch).collect();
            found(best.ok_or_else(|| none(archs(Kind::Ptx), archs(Kind::Cubin)))?)
        }
    }
}

/// The PTX in an image for the lowest architecture above `device`, where [`find_ptx`] finds none. What is made of it
/// for another device than NVIDIA's does not know the difference; PTX for one architecture or family alone is not meant
/// for any other.
///
/// # Errors
/// As [`find_ptx`].
pub fn find_newer_ptx(image: &[u8], device: u32) -> Result<FoundPtx, FatbinError> {
    if image_kind(image)? != ImageKind::Fatbin {
        return find_ptx(image, device);
    }
    let all = entries(image)?;
    let is_newer = |entry: &&Entry<'_>| {
        let is_bound = entry.is_arch_specific || entry.is_family_specific;
        entry.kind == Kind::Ptx && entry.arch > device && !is_bound
    };
    match all.iter().filter(is_newer).min_by_key(|entry| entry.arch) {
        None => find_ptx(image, device),
        Some(entry) => found(entry),
    }
}

/// Whether the image has machine code that a GPU of compute capability `device` (times ten plus minor) runs: made for
/// the same major and no higher minor number, or, where it is for one architecture alone (`sm_90a`), for exactly this
/// one. Of a bare cubin only the driver knows.
///
/// # Errors
/// What is wrong with the image.
pub fn has_cubin(image: &[u8], device: u32) -> Result<bool, FatbinError> {
    match image_kind(image)? {
        ImageKind::Ptx => Ok(false),
        ImageKind::Cubin => Ok(true),
        ImageKind::Fatbin => {
            let all = entries(image)?;
            Ok(best_cubin(&all, device).is_some())
        }
    }
}

/// Whether the image has machine code for a GPU of compute capability `device` that was compiled for a newer
/// architecture than the PTX that [`find_ptx`] finds: it may be another program then, made from other source.
///
/// # Errors
/// What is wrong with the image.
pub fn has_cubin_newer_than_ptx(image: &[u8], device: u32) -> Result<bool, FatbinError> {
    if image_kind(image)? != ImageKind::Fatbin {
        return Ok(false);
    }
    let all = entries(image)?;
    let ptx = best_ptx(&all, device).map(rank);
    Ok(best_cubin(&all, device).is_some_and(|cubin| ptx.is_none_or(|ptx| ptx < rank(cubin))))
}

/// The PTX that a GPU of compute capability `device` takes: for the highest architecture that it has.
pub(crate) fn best_ptx<'a, 'b>(all: &'a [Entry<'b>], device: u32) -> Option<&'a Entry<'b>> {
    let fits = |entry: &&Entry<'_>| entry.kind == Kind::Ptx && suits(entry, device);
    all.iter().filter(fits).max_by_key(|entry| rank(entry))
}

/// The cubin that a GPU of compute capability `device` takes: made for the same major number.
pub(crate) fn best_cubin<'a, 'b>(all: &'a [Entry<'b>], device: u32) -> Option<&'a Entry<'b>> {
    let fits = |entry: &&Entry<'_>| entry.kind == Kind::Cubin && entry.arch / 10 == device / 10 && suits(entry, device);
    all.iter().filter(fits).max_by_key(|entry| rank(entry))
}

fn found(entry: &Entry<'_>) -> Result<FoundPtx, FatbinError> {
    Ok(FoundPtx {
        text: decompress::ptx(entry)?,
        arch: Some(entry.arch),
        options: entry.options.trim().to_owned(),
    })
}

fn suits(entry: &Entry<'_>, device: u32) -> bool {
    match (entry.is_arch_specific, entry.is_family_specific) {
        (true, _) => entry.arch == device,
        (_, true) => entry.arch <= device && entry.arch / 10 == device / 10,
        _ => entry.arch <= device,
    }
}

fn rank(entry: &Entry<'_>) -> (u32, bool) {
    (entry.arch, entry.is_arch_specific || entry.is_family_specific)
}
