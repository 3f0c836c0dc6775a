//! What an image was compiled for.

use std::collections::BTreeSet;

use object::elf::FileHeader64;
use object::read::elf::FileHeader as _;

use crate::decompress::text;
use crate::entry::{Entry, Kind, entries};
use crate::locate::{ImageKind, image_kind};

/// What an image was compiled for, in the words of nvcc's `-gencode` option: `sm_90` for machine code, `compute_90` for
/// PTX, with `a` or `f` behind it where it is for this architecture or its family alone. Empty where nothing tells.
#[must_use]
pub fn targets(image: &[u8]) -> BTreeSet<String> {
    let found: Option<BTreeSet<String>> = match image_kind(image) {
        Ok(ImageKind::Cubin) => of_cubin(image).map(|target| [target].into()),
        Ok(ImageKind::Ptx) => of_ptx(image).map(|target| [target].into()),
        Ok(ImageKind::Fatbin) => entries(image).ok().map(|all| all.iter().filter_map(of_entry).collect()),
        Err(_) => None,
    };
    found.unwrap_or_default()
}

fn of_entry(entry: &Entry<'_>) -> Option<String> {
    let kind = match entry.kind {
        Kind::Cubin => "sm",
        Kind::Ptx => "compute",
        Kind::Other(_) => return None,
    };
    let suffix = match (entry.is_arch_specific, entry.is_family_specific) {
        (true, _) => "a",
        (_, true) => "f",
        _ => "",
    };
    Some(format!("{kind}_{}{suffix}", entry.arch))
}

/// The version of the ELF file's ABI tells where its flags have the architecture, as LLVM's `BinaryFormat/ELF.h` has
/// it: up to 7 in the lowest byte, from 8 on in the one above. Only compilers up to CUDA 12.9 mark code that is for one
/// architecture alone.
fn of_cubin(cubin: &[u8]) -> Option<String> {
    let header = FileHeader64::<object::Endianness>::parse(cubin).ok()?;
    let flags = header.e_flags(header.endian().ok()?).0;
    let (arch, is_arch_specific) = match header.e_ident().abi_version {
        ..=7 => (flags & 0xff, flags & 0x800 != 0),
        _ => (flags >> 8 & 0xff, flags & 0x8 != 0),
    };
    (arch > 0).then(|| format!("sm_{arch}{}", if is_arch_specific { "a" } else { "" }))
}

fn of_ptx(image: &[u8]) -> Option<String> {
    let text = text(image.to_vec()).ok()?;
    target_of_ptx(&text).map(|target| format!("compute_{target}"))
}

/// The target of a PTX text: what stands behind `.target sm_`, as `90a`.
#[must_use]
pub fn target_of_ptx(text: &str) -> Option<&str> {
    let (_, behind) = text.split_once(".target")?;
    let name = behind.trim_start().strip_prefix("sm_")?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric());
    Some(end.map_or(name, |end| &name[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a cubin.
    fn cubin(abi_version: u8, flags: u32) -> Vec<u8> {
        let mut header = vec![0; 64];
        header[..9].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 51, abi_version]);
        header[16..24].copy_from_slice(&[2, 0, 190, 0, 1, 0, 0, 0]);
        header[48..52].copy_from_slice(&flags.to_le_bytes());
        header[52..54].copy_from_slice(&64u16.to_le_bytes());
        header
    }

    #[test]
    fn cubins_and_texts_tell_what_they_are_for() {
        let only = |image: &[u8]| targets(image).into_iter().collect::<Vec<_>>();
        assert_eq!(only(&cubin(7, 0x5a_055a)), ["sm_90"]);
        assert_eq!(only(&cubin(7, 0x5a_0d5a)), ["sm_90a"]);
        assert_eq!(only(&cubin(8, 0x600_6402)), ["sm_100"]);
        assert_eq!(only(&cubin(8, 0x600_640a)), ["sm_100a"]);
        assert_eq!(
            only(b".version 8.0\n.target sm_90a, debug\n.address_size 64\n"),
            ["compute_90a"]
        );
        assert!(only(b".version 8.0\n").is_empty());
        assert!(only(b"").is_empty() && only(b"\x7fELF").is_empty());
    }
}
