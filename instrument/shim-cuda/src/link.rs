//! Linking at run time. Nothing is compiled here: what comes out holds what went in, and is translated when it is
//! loaded. One input that is an image is its own result. Others are put one behind the other, which only
//! [`crate::image`] understands.
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`MAGIC`], little-endian |
//! | 4 | `u32` number of parts |
//! | 8 | for each part: `u64` length, then its bytes |

use crate::result::{CuResult, Outcome};

/// How several parts begin: no other image does.
pub const MAGIC: u32 = u32::from_le_bytes(*b"\x01hkl");

/// `CUjitInputType`, those that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Machine code.
    Cubin,
    /// PTX text.
    Ptx,
    /// A fat binary.
    FatBinary,
    /// An object of the host, with device code in it.
    Object,
    /// A static library of such objects.
    Library,
}

impl Input {
    /// By number; NVVM's IR is not taken.
    pub fn from_number(number: u32) -> Outcome<Self> {
        match number {
            0 => Ok(Self::Cubin),
            1 => Ok(Self::Ptx),
            2 => Ok(Self::FatBinary),
            3 => Ok(Self::Object),
            4 => Ok(Self::Library),
            5 => Err(CuResult::NOT_SUPPORTED),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
}

/// What is being linked.
#[derive(Debug, Default)]
pub struct Linking {
    parts: Vec<Vec<u8>>,
    /// A part is no image by itself.
    has_host_files: bool,
    /// It stays as it is until the linking is forgotten: the program has its address.
    result: Option<Box<[u8]>>,
}

impl Linking {
    /// Takes an input.
    pub fn add(&mut self, kind: Input, bytes: &[u8]) -> Outcome {
        if self.result.is_some() || bytes.is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        let mut part = bytes.to_vec();
        if kind == Input::Ptx {
            // With or without the text's end, or more.
            let end = part.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            part.truncate(end);
            part.push(0);
        }
        self.has_host_files |= matches!(kind, Input::Object | Input::Library);
        self.parts.push(part);
        Ok(())
    }

    /// The result.
    pub fn complete(&mut self) -> Outcome<&[u8]> {
        if self.parts.is_empty() && self.result.is_none() {
            return Err(CuResult::INVALID_VALUE);
        }
        let mut parts = std::mem::take(&mut self.parts);
        let has_host_files = self.has_host_files;
        let result = self.result.get_or_insert_with(|| match parts.pop() {
            Some(only) if parts.is_empty() && !has_host_files => only.into_boxed_slice(),
            last => joined(parts.into_iter().chain(last).collect()).into_boxed_slice(),
        });
        Ok(result)
    }
}

fn joined(parts: Vec<Vec<u8>>) -> Vec<u8> {
    let mut all = MAGIC.to_le_bytes().to_vec();
    all.extend((parts.len() as u32).to_le_bytes());
    for part in parts {
        all.extend((part.len() as u64).to_le_bytes());
        all.extend(part);
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::image;

    #[test]
    fn what_goes_in_comes_out() {
        let mut one = Linking::default();
        assert_eq!(one.complete().err(), Some(CuResult::INVALID_VALUE));
        one.add(Input::Ptx, b".version 8.0\0\0").unwrap();
        assert_eq!(one.complete().unwrap(), b".version 8.0\0");
        assert_eq!(one.complete().unwrap(), b".version 8.0\0", "twice");
        assert_eq!(one.add(Input::Ptx, b"x"), Err(CuResult::INVALID_VALUE));

        let mut two = Linking::default();
        two.add(Input::Ptx, b".version 8.0").unwrap();
        two.add(Input::Ptx, b"// more").unwrap();
        let result = two.complete().unwrap();
        let parts = image::parts(result.as_ptr().expose_provenance() as u64).unwrap();
        let parts: Vec<&[u8]> = parts.into_iter().map(image::Part::bytes).collect();
        assert_eq!(parts, [b".version 8.0".as_slice(), b"// more"]);

        let mut library = Linking::default();
        library.add(Input::Library, b"!<arch>\nmembers").unwrap();
        let result = library.complete().unwrap();
        let parts = image::parts(result.as_ptr().expose_provenance() as u64).unwrap();
        let parts: Vec<&[u8]> = parts.into_iter().map(image::Part::bytes).collect();
        assert_eq!(parts, [b"!<arch>\nmembers"]);
        assert_eq!(Input::from_number(5), Err(CuResult::NOT_SUPPORTED));
    }
}
