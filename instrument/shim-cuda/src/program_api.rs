//! What a program asks of hetckpt by `instrument/api/hetckpt.h`: a checkpoint, how often it was restored, a label. The
//! header finds these functions here by name, and natively finds none.
#![allow(unsafe_code, reason = "the functions' names are the interface")]

use std::cell::RefCell;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;

use hetckpt_ring::checkpoint::Outcome;
use hetckpt_ring::checkpoint_words::is_label;
use hetckpt_ring::layout::{MAX_CHECKPOINT_FILE_BYTES, MAX_LABEL_BYTES};

use crate::fork;
use crate::pointers::Text;
use crate::session::{self, Session};

/// Held by the thread that waits for a checkpoint.
static WAITS: Mutex<()> = Mutex::new(());

/// Held while the label is written.
static LABELS: Mutex<()> = Mutex::new(());

thread_local! {
    /// Why the thread's last call that failed did.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Why a call fails. The header has the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Code {
    NotInitialized = -2,
    Invalid = -3,
    NoStore = -4,
    Unattended = -5,
    Busy = -6,
    Failed = -7,
}

/// A call that has failed.
#[derive(Debug)]
struct Refusal(Code, String);

/// `hetckpt_checkpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn hetckpt_checkpoint_v1(file: Text) -> c_int {
    guard(|| checkpoint(file.bytes()))
}

/// `hetckpt_restored`.
#[unsafe(no_mangle)]
pub extern "C" fn hetckpt_restored_v1() -> c_int {
    guard(|| {
        // Before the first driver call nothing has happened that could be told.
        let times = session::get().map_or(0, |session| session.device.producer().checkpoint_words().num_restores());
        Ok(c_int::try_from(times).unwrap_or(c_int::MAX))
    })
}

/// `hetckpt_label`.
#[unsafe(no_mangle)]
pub extern "C" fn hetckpt_label_v1(label: Text) -> c_int {
    guard(|| set_label(label.bytes()))
}

/// `hetckpt_error`.
#[unsafe(no_mangle)]
pub extern "C" fn hetckpt_error_v1() -> *const c_char {
    // It stays where it is until the thread's next call. A thread that is about to end has none.
    let last = LAST_ERROR.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()));
    last.unwrap_or(c"".as_ptr())
}

fn guard(call: impl FnOnce() -> Result<c_int, Refusal>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Refusal(Code::Failed, "a bug in hetckpt".to_owned())));
    result.unwrap_or_else(|Refusal(code, message)| {
        let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
        let _ = LAST_ERROR.try_with(|last| last.replace(text));
        code as c_int
    })
}

fn session() -> Result<&'static Session, Refusal> {
    session::get().map_err(|_| {
        let why = match fork::is_forked_child() {
            true => "this process was forked after the first CUDA call, and has no device",
            false => "this process has no device: no CUDA call was made before, or the first one failed",
        };
        Refusal(Code::NotInitialized, why.to_owned())
    })
}

fn checkpoint(file: Option<&[u8]>) -> Result<c_int, Refusal> {
    let file = file.map_or(Ok(vec![]), absolute)?;
    let device = &session()?.device;
    let Some(_waits) = WAITS.try_lock() else {
        let why = "another thread of this process waits for a checkpoint";
        return Err(Refusal(Code::Busy, why.to_owned()));
    };
    let producer = device.producer();
    let asked = producer.checkpoint_words().ask(&file, || producer.is_server_alive());
    let answer = asked.map_err(|error| Refusal(Code::Failed, error.to_string()))?;
    let code = match answer.outcome {
        Outcome::Done => return Ok(0),
        Outcome::Restored => return Ok(1),
        Outcome::NoStore => Code::NoStore,
        Outcome::Unattended => Code::Unattended,
        Outcome::Failed => Code::Failed,
    };
    Err(Refusal(code, answer.message))
}

/// The file where this process would find it, from wherever; a URL as it is.
fn absolute(file: &[u8]) -> Result<Vec<u8>, Refusal> {
    let invalid = |why: String| Refusal(Code::Invalid, why);
    if file.is_empty() {
        return Err(invalid("the file's path is empty".to_owned()));
    }
    let is_url = file.windows(3).any(|part| part == b"://");
    let absolute = match is_url {
        true => file.to_owned(),
        false => {
            let path =
                std::path::absolute(OsStr::from_bytes(file)).map_err(|e| invalid(format!("the file's path: {e}")))?;
            path.into_os_string().into_encoded_bytes()
        }
    };
    match absolute.len() > MAX_CHECKPOINT_FILE_BYTES {
        true => Err(invalid(format!(
            "the file's path has more than {MAX_CHECKPOINT_FILE_BYTES} bytes"
        ))),
        false => Ok(absolute),
    }
}

fn set_label(label: Option<&[u8]>) -> Result<c_int, Refusal> {
    let label = label
        .and_then(|label| std::str::from_utf8(label).ok())
        .filter(|label| is_label(label));
    let label = label.ok_or_else(|| {
        let what = "a label is a line of UTF-8 without control characters";
        Refusal(Code::Invalid, format!("{what}, of at most {MAX_LABEL_BYTES} bytes"))
    })?;
    let words = session()?.device.producer().checkpoint_words();
    let _labels = LABELS.lock();
    let set = words.set_label(label);
    set.map(|()| 0)
        .map_err(|error| Refusal(Code::Failed, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_from_anywhere() {
        for (file, expected) in [("/a/b", "/a/b"), ("s3://bucket/key", "s3://bucket/key")] {
            assert_eq!(absolute(file.as_bytes()).ok().as_deref(), Some(expected.as_bytes()));
        }
        assert!(absolute(b"\xff").is_ok_and(|path| path.starts_with(b"/") && path.ends_with(b"/\xff")));
        for bad in [&b""[..], &[b'a'; MAX_CHECKPOINT_FILE_BYTES]] {
            assert_eq!(absolute(bad).map_err(|Refusal(code, _)| code), Err(Code::Invalid));
        }
    }
}
