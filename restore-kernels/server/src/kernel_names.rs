//! Names of the kernels in an image that cannot be loaded, for the message that says so. Not for more: what the image
//! holds is not understood here, only searched.

use hetckpt_fatbin::decompress::payload;
use hetckpt_fatbin::entry::{Kind, entries};
use hetckpt_fatbin::locate::{ImageKind, image_kind};

/// Kernels that a message names.
const MAX_NAMED: usize = 3;
/// Longest name that is looked for its end.
const MAX_NAME_BYTES: usize = 4096;

/// Words for the kernels of a module: some of their names, and how many more there are. Empty if none is found.
#[must_use]
pub fn describe(parts: &[Vec<u8>]) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in parts.iter().flat_map(|part| of_image(part)) {
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() > MAX_NAMED {
            break;
        }
    }
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    names.truncate(MAX_NAMED);
    match names.is_empty() {
        true => String::new(),
        false => format!("kernels: `{}`{more}", names.join("`, `")),
    }
}

fn of_image(image: &[u8]) -> Vec<String> {
    match image_kind(image) {
        Ok(ImageKind::Ptx) => of_ptx(image),
        Ok(ImageKind::Cubin) => of_cubin(image),
        Ok(ImageKind::Fatbin) => {
            let all = entries(image).unwrap_or_default();
            // All entries are of one source.
            let first = all.iter().find(|e| matches!(e.kind, Kind::Ptx | Kind::Cubin));
            let bytes = first.and_then(|entry| Some((entry.kind, payload(entry).ok()?)));
            match bytes {
                Some((Kind::Ptx, text)) => of_ptx(&text),
                Some((_, elf)) => of_cubin(&elf),
                None => Vec::new(),
            }
        }
        Err(_) => Vec::new(),
    }
}

/// What stands behind each `.entry`.
fn of_ptx(text: &[u8]) -> Vec<String> {
    let is_end = |b: u8| b.is_ascii_whitespace() || b == b'(';
    behind(text, b".entry")
        .filter_map(|rest| name(rest.trim_ascii_start(), is_end))
        .take(MAX_NAMED + 1)
        .collect()
}

/// A kernel's code lies in a section called `.text.NAME`.
fn of_cubin(elf: &[u8]) -> Vec<String> {
    behind(elf, b"\0.text.")
        .filter_map(|rest| name(rest, |b| b == 0))
        .take(MAX_NAMED + 1)
        .collect()
}

fn behind<'a>(bytes: &'a [u8], mark: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let places = bytes.windows(mark.len()).enumerate().filter(move |(_, w)| *w == mark);
    places.map(move |(at, _)| &bytes[at + mark.len()..])
}

fn name(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> Option<String> {
    let length = bytes.iter().take(MAX_NAME_BYTES).position(|&b| is_end(b))?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    (!text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_some_kernels_of_text_and_of_machine_code() {
        let ptx = b".version 8.0\n.visible .entry a(\n.param .u64 p)\n{}\n.entry b (){}\n.entry c(){}\n".to_vec();
        assert_eq!(describe(std::slice::from_ref(&ptx)), "kernels: `a`, `b`, `c`");
        let cubin = b"\x7fELF\0.shstrtab\0.text.saxpy\0.rela.text.saxpy\0.nv.info.saxpy\0".to_vec();
        assert_eq!(describe(std::slice::from_ref(&cubin)), "kernels: `saxpy`");
        assert_eq!(describe(&[cubin, ptx]), "kernels: `saxpy`, `a`, `b`, …");
        assert_eq!(describe(&[b"\x7fELF\0.text.\x1b[2J\0".to_vec()]), "");
        assert_eq!(describe(&[b"nonsense".to_vec(), Vec::new()]), "");
    }
}
