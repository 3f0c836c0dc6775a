//! Tests with fatbins made by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;

use crate::entry::{Compression, FATBIN_MAGIC, Kind, entries};
use crate::error::FatbinError;
use crate::locate::{ImageKind, find_newer_ptx, find_ptx, has_cubin, image_kind};

struct Piece {
    kind: u16,
    arch: u32,
    flags: u64,
    payload: Vec<u8>,
    uncompressed: u64,
}

fn plain(kind: u16, arch: u32, text: &str) -> Piece {
    Piece {
        kind,
        arch,
        flags: 0x11,
        payload: text.as_bytes().to_vec(),
        uncompressed: 0,
    }
}

fn zstd_piece(arch: u32, text: &str) -> Piece {
    let bytes = format!("{text}\0");
    let payload = zstd::encode_all(bytes.as_bytes(), 3).unwrap();
    Piece {
        kind: 1,
        arch,
        flags: 0x11 | 0x8000,
        payload,
        uncompressed: bytes.len() as u64,
    }
}

fn lz4_piece(arch: u32, text: &str) -> Piece {
    let bytes = format!("{text}\0");
    let payload = lz4_flex::block::compress(bytes.as_bytes());
    Piece {
        kind: 1,
        arch,
        flags: 0x11 | 0x2000,
        payload,
        uncompressed: bytes.len() as u64,
    }
}

fn fatbin(pieces: &[Piece]) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in pieces {
        let options = b" -maxrregcount=32 ";
        let header_size = (64 + 8 + options.len()).next_multiple_of(8);
        let padded = piece.payload.len().next_multiple_of(8);
        let mut header = vec![0_u8; header_size];
        header[0..2].copy_from_slice(&piece.kind.to_le_bytes());
        header[2..4].copy_from_slice(&0x0101_u16.to_le_bytes());
        header[4..8].copy_from_slice(&(header_size as u32).to_le_bytes());
        header[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        let compressed = if piece.uncompressed == 0 {
            0
        } else {
            piece.payload.len() as u32
        };
        header[16..20].copy_from_slice(&compressed.to_le_bytes());
        header[20..24].copy_from_slice(&64_u32.to_le_bytes());
        header[26..28].copy_from_slice(&9_u16.to_le_bytes());
        header[28..32].copy_from_slice(&piece.arch.to_le_bytes());
        header[40..48].copy_from_slice(&piece.flags.to_le_bytes());
        header[56..64].copy_from_slice(&piece.uncompressed.to_le_bytes());
        header[64..68].copy_from_slice(&72_u32.to_le_bytes());
        header[68..72].copy_from_slice(&(options.len() as u32).to_le_bytes());
        header[72..72 + options.len()].copy_from_slice(options);
        body.extend(header);
        body.extend(&piece.payload);
        body.resize(body.len() + padded - piece.payload.len(), 0);
    }
    let mut all = Vec::new();
    all.extend(FATBIN_MAGIC.to_le_bytes());
    all.extend(1_u16.to_le_bytes());
    all.extend(16_u16.to_le_bytes());
    all.extend((body.len() as u64).to_le_bytes());
    all.extend(body);
    all
}

const TEXT: &str = ".version 9.0\n.target sm_75\n.address_size 64\n";

#[test]
fn reads_entries_with_their_fields() {
    let bytes = fatbin(&[plain(2, 80, "\x7fELF"), zstd_piece(75, TEXT)]);
    let all = entries(&bytes).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(
        (all[0].kind, all[0].arch, all[0].compression),
        (Kind::Cubin, 80, Compression::None)
    );
    assert_eq!(
        (all[1].kind, all[1].arch, all[1].compression),
        (Kind::Ptx, 75, Compression::Zstd)
    );
    assert_eq!(all[1].version, (9, 0));
    assert_eq!(all[1].options, " -maxrregcount=32 ");
}

#[test]
fn chooses_the_highest_ptx_the_device_takes() {
    let (a, b, c) = (
        TEXT.to_owned() + "// 75",
        TEXT.to_owned() + "// 80",
        TEXT.to_owned() + "// 120",
    );
    let bytes = fatbin(&[
        zstd_piece(120, &c),
        zstd_piece(75, &a),
        lz4_piece(80, &b),
        plain(2, 90, "\x7fELF"),
    ]);
    assert_eq!(find_ptx(&bytes, 90).unwrap().text, b);
    assert_eq!(find_ptx(&bytes, 75).unwrap().text, a);
    assert_eq!(find_ptx(&bytes, 121).unwrap().text, c);
    let error = find_ptx(&bytes, 70).unwrap_err();
    assert_eq!(
        error,
        FatbinError::NoPtx {
            device: 70,
            ptx: vec![120, 75, 80],
            cubins: vec![90]
        }
    );
}

#[test]
fn takes_architecture_specific_ptx_only_on_that_device() {
    let mut special = zstd_piece(90, TEXT);
    special.flags |= 0x10_0000;
    let bytes = fatbin(&[plain(1, 80, ".version 8.0"), special]);
    assert_eq!(find_ptx(&bytes, 90).unwrap().arch, Some(90));
    assert_eq!(find_ptx(&bytes, 100).unwrap().arch, Some(80));
}

#[test]
fn machine_code_fits_the_same_major_and_no_higher_minor_number() {
    let of = |archs: &[u32]| fatbin(&archs.iter().map(|&a| plain(2, a, "\x7fELF")).collect::<Vec<_>>());
    assert!(has_cubin(&of(&[75, 80, 120]), 86).unwrap());
    assert!(has_cubin(&of(&[90]), 90).unwrap());
    assert!(!has_cubin(&of(&[75, 86, 89, 100]), 80).unwrap());
    assert!(!has_cubin(&of(&[80]), 90).unwrap());
    assert!(!has_cubin(&fatbin(&[zstd_piece(90, TEXT)]), 90).unwrap());
    let flagged = |arch, flag| {
        let mut piece = plain(2, arch, "\x7fELF");
        piece.flags |= flag;
        fatbin(&[piece])
    };
    let (arch_specific, family) = (0x10_0000, 0x20_0000);
    assert!(has_cubin(&flagged(90, arch_specific), 90).unwrap());
    assert!(!has_cubin(&flagged(100, arch_specific), 103).unwrap());
    assert!(has_cubin(&flagged(100, family), 103).unwrap());
    assert!(has_cubin(b"\x7fELF\x02\x01", 90).unwrap(), "the driver looks");
    assert!(!has_cubin(TEXT.as_bytes(), 90).unwrap());
}

#[test]
fn newer_ptx_is_the_lowest_above_and_none_that_is_bound_to_its_device() {
    let bytes = fatbin(&[
        zstd_piece(121, ".version 9.1"),
        zstd_piece(120, TEXT),
        plain(2, 90, "\x7fELF"),
    ]);
    assert!(find_ptx(&bytes, 90).is_err());
    assert_eq!(find_newer_ptx(&bytes, 90).unwrap().arch, Some(120));
    for flag in [0x10_0000, 0x20_0000] {
        let mut bound = zstd_piece(100, TEXT);
        bound.flags |= flag;
        let error = find_newer_ptx(&fatbin(&[bound]), 90).unwrap_err();
        assert!(matches!(error, FatbinError::NoPtx { device: 90, .. }), "{error}");
    }
    assert_eq!(find_newer_ptx(TEXT.as_bytes(), 75).unwrap().text, TEXT);
    assert_eq!(
        find_newer_ptx(&fatbin(&[plain(1, 80, TEXT)]), 90).unwrap().arch,
        Some(80)
    );
}

#[test]
fn tells_images_apart() {
    assert_eq!(image_kind(&fatbin(&[])).unwrap(), ImageKind::Fatbin);
    assert_eq!(image_kind(b"\x7fELF\x02\x01").unwrap(), ImageKind::Cubin);
    assert_eq!(
        image_kind(b"//\n// Generated\n.version 8.0\n\0").unwrap(),
        ImageKind::Ptx
    );
    assert_eq!(image_kind(b"\n\n.version 8.0").unwrap(), ImageKind::Ptx);
    assert!(image_kind(b"").is_err());
    assert!(image_kind(b"MZ\x90\0").is_err());
}

#[test]
fn cuts_the_padding_of_plain_ptx() {
    assert_eq!(find_ptx(&fatbin(&[plain(1, 75, TEXT)]), 90).unwrap().text, TEXT);
    assert_eq!(find_ptx(b".version 8.0\n\0\0\0", 90).unwrap().text, ".version 8.0\n");
}

#[test]
fn refuses_a_payload_that_claims_another_size() {
    for make in [zstd_piece, lz4_piece] {
        for lie in [1, u64::from(u32::MAX), u64::MAX] {
            let mut piece = make(75, TEXT);
            piece.uncompressed = lie;
            assert!(find_ptx(&fatbin(&[piece]), 90).is_err(), "claim {lie}");
        }
    }
}

#[test]
fn refuses_an_entry_header_that_would_loop_for_ever() {
    let mut bytes = fatbin(&[plain(1, 75, TEXT)]);
    bytes[16 + 4..16 + 8].copy_from_slice(&0_u32.to_le_bytes());
    assert!(matches!(
        entries(&bytes),
        Err(FatbinError::BadField {
            field: "entry header size",
            ..
        })
    ));
}

proptest! {
    #[test]
    fn any_prefix_is_refused_or_read_without_panic(cut in 0_usize..2000) {
        let bytes = fatbin(&[zstd_piece(75, &TEXT.repeat(20)), lz4_piece(80, TEXT), plain(2, 90, "\x7fELF")]);
        let cut = cut.min(bytes.len());
        let result = find_ptx(&bytes[..cut], 90);
        prop_assert_eq!(result.is_ok(), cut == bytes.len());
    }

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((0_usize..600, any::<u8>()), 1..8)) {
        let mut bytes = fatbin(&[zstd_piece(75, TEXT), lz4_piece(80, TEXT)]);
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let _ = find_ptx(&bytes, 90);
    }

    #[test]
    fn what_was_packed_comes_out(text in "[ -~\n]{0,400}", arch in 50_u32..90) {
        let text = format!(".version 8.0\n{text}");
        for piece in [zstd_piece(arch, &text), lz4_piece(arch, &text), plain(1, arch, &text)] {
            let found = find_ptx(&fatbin(&[piece]), 90).unwrap();
            prop_assert_eq!(&found.text, &text);
            prop_assert_eq!(found.arch, Some(arch));
        }
    }
}
