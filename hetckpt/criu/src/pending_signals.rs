//! Takes SIGCONT out of what signals wait for a process. A process that holds it back has one waiting once it has been
//! let go on after a dump, as that is how stopped processes are. CRIU's restore sends waiting signals again, and takes
//! what Linux tells it of a continued child for the child's failure.
//!
//! # Source
//! CRIU, `images/core.proto`, `images/siginfo.proto`; `criu/cr-restore.c` (`sigchld_process`).

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::image_error::ImageError;
use crate::images::CORE_MAGIC;
use crate::rewrite::{changed, fields, put_content};

/// Fields of a core that have what belongs to the process and to the thread, each with the field that has its signals.
const QUEUES: [(usize, usize); 2] = [(3, 10), (5, 9)];

/// Field of a list of signals that has one, and field of that with what Linux tells of it (`siginfo_t`).
const SIGNAL: usize = 1;

/// Changes the images in `folder`.
///
/// # Errors
/// If they cannot be read or written.
pub fn forget_continue(folder: &Path) -> Result<(), ImageError> {
    let entries = fs::read_dir(folder).map_err(ImageError::List)?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("core-") && name.ends_with(".img")) {
            continue;
        }
        let before = fs::read(entry.path()).map_err(|source| ImageError::Read {
            name: name.clone(),
            source,
        })?;
        let image = changed(folder, &name, CORE_MAGIC, core)?;
        if image != before {
            fs::write(entry.path(), image).map_err(|source| ImageError::Write { name, source })?;
        }
    }
    Ok(())
}

fn core(message: &[u8]) -> Option<Vec<u8>> {
    with_content(message, |number, part| {
        let queue = QUEUES.iter().find(|(of, _)| *of == number)?.1;
        with_content(part, |number, list| {
            (number == queue).then(|| without_continue(list))?
        })
    })
}

/// The message, with the content of fields changed of which `change` makes something.
fn with_content(message: &[u8], change: impl Fn(usize, &[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    for field in fields(message)? {
        match field.content.and_then(|content| change(field.number, content)) {
            Some(content) => put_content(field.number, &content, &mut out),
            None => out.extend(field.whole),
        }
    }
    Some(out)
}

fn without_continue(list: &[u8]) -> Option<Vec<u8>> {
    let kept = fields(list)?.into_iter().filter(|field| {
        let told = field.content.and_then(|entry| fields(entry)?.first()?.content);
        let number = told
            .and_then(|told| told.first_chunk())
            .map(|bytes| i32::from_ne_bytes(*bytes));
        field.number != SIGNAL || number != Some(Signal::SIGCONT as i32)
    });
    Some(kept.flat_map(|field| field.whole.to_vec()).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::images::COMMON_MAGIC;

    fn nested(number: usize, content: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        put_content(number, content, &mut out);
        out
    }

    fn signal(signal: Signal) -> Vec<u8> {
        let told = [(signal as i32).to_ne_bytes().to_vec(), vec![0; 124]].concat();
        nested(SIGNAL, &nested(1, &told))
    }

    /// A core with these signals for the process and for the thread, between fields that nobody here knows.
    fn core_with(process: &[Signal], thread: &[Signal]) -> Vec<u8> {
        let list = |signals: &[Signal]| signals.iter().flat_map(|&each| signal(each)).collect::<Vec<u8>>();
        let unknown = [0xfa, 0x3f, 2, 9, 9];
        [
            unknown.to_vec(),
            nested(3, &[nested(10, &list(process)), unknown.to_vec()].concat()),
            nested(5, &[unknown.to_vec(), nested(9, &list(thread))].concat()),
        ]
        .concat()
    }

    #[test]
    fn only_what_continues_goes() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, message: &[u8]| {
            let magics = [COMMON_MAGIC.to_le_bytes(), CORE_MAGIC.to_le_bytes()].concat();
            let size = u32::try_from(message.len()).unwrap().to_le_bytes();
            fs::write(folder.path().join(name), [&magics, &size[..], message].concat()).unwrap();
        };
        let (one, other) = (Signal::SIGUSR1, Signal::SIGTERM);
        put(
            "core-7.img",
            &core_with(&[one, Signal::SIGCONT, other], &[Signal::SIGCONT]),
        );
        put("core-8.img", &core_with(&[one], &[other]));
        forget_continue(folder.path()).unwrap();
        let found = |name: &str| fs::read(folder.path().join(name)).unwrap().split_off(12);
        assert_eq!(found("core-7.img"), core_with(&[one, other], &[]));
        assert_eq!(found("core-8.img"), core_with(&[one], &[other]));
    }

    #[test]
    fn any_bytes_are_survived() {
        let message = core_with(&[Signal::SIGCONT], &[Signal::SIGCONT]);
        for size in 0..message.len() {
            let _ = core(&message[..size]);
        }
    }
}
