//! The C library's formatting and its stdout, so that numbers look as in C and lines stand among the program's own in
//! the order in which they were printed.
#![allow(unsafe_code, reason = "calls variadic functions of the C library")]

use std::ffi::{CString, c_char, c_int};

unsafe extern "C" {
    #[link_name = "stdout"]
    static STDOUT: *mut libc::FILE;
}

/// Writes to the program's stdout, through its buffer.
pub fn write_to_stdout(text: &[u8]) {
    if text.is_empty() {
        return;
    }
    // SAFETY: `text` is that long; the C library keeps `stdout` valid, and locks it. What it cannot write is lost, as
    // with `printf`.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), STDOUT) };
}

/// An integer; `letter` is one of `diouxX`. Any smaller type is to be extended before.
pub fn format_integer(text: &mut Vec<u8>, head: &[u8], letter: u8, value: u64) {
    let format = specification(head, b"ll", letter);
    // SAFETY: the specification is that of a `long long`, and nothing else follows.
    append(text, |room, size| unsafe {
        libc::snprintf(room, size, format.as_ptr(), value)
    });
}

/// A floating-point number; `letter` is one of `fFeEgGaA`.
pub fn format_double(text: &mut Vec<u8>, head: &[u8], letter: u8, value: f64) {
    let format = specification(head, b"", letter);
    // SAFETY: the specification is that of a `double`.
    append(text, |room, size| unsafe {
        libc::snprintf(room, size, format.as_ptr(), value)
    });
}

/// A pointer.
pub fn format_pointer(text: &mut Vec<u8>, head: &[u8], addr: u64) {
    let format = specification(head, b"", b'p');
    let pointer = std::ptr::without_provenance::<u8>(addr as usize);
    // SAFETY: the specification is that of a pointer, which is not followed.
    append(text, |room, size| unsafe {
        libc::snprintf(room, size, format.as_ptr(), pointer)
    });
}

/// A string, cut at its first NUL.
pub fn format_string(text: &mut Vec<u8>, head: &[u8], string: &[u8]) {
    let format = specification(head, b"", b's');
    let end = string.iter().position(|&b| b == 0).unwrap_or(string.len());
    let string = CString::new(&string[..end]).unwrap_or_default();
    // SAFETY: the specification is that of a string, which ends with a NUL.
    append(text, |room, size| unsafe {
        libc::snprintf(room, size, format.as_ptr(), string.as_ptr())
    });
}

/// A character, also NUL.
pub fn format_character(text: &mut Vec<u8>, head: &[u8], character: u8) {
    let format = specification(head, b"", b'c');
    // SAFETY: the specification is that of an `int`.
    append(text, |room, size| unsafe {
        libc::snprintf(room, size, format.as_ptr(), c_int::from(character))
    });
}

/// `head` begins with `%` and has only flags, digits and a point behind it, so that one argument is read.
fn specification(head: &[u8], length: &[u8], letter: u8) -> CString {
    let mut all = head.to_vec();
    all.extend_from_slice(length);
    all.push(letter);
    CString::new(all).unwrap_or_default()
}

fn append(text: &mut Vec<u8>, print: impl Fn(*mut c_char, usize) -> c_int) {
    // Width and precision have at most four digits, so only long strings and `%f` of huge numbers need more than this.
    let mut room = vec![0_u8; 512];
    for _ in 0..2 {
        let length = usize::try_from(print(room.as_mut_ptr().cast(), room.len())).unwrap_or(0);
        if length < room.len() {
            text.extend_from_slice(&room[..length]);
            return;
        }
        room.resize(length + 1, 0);
    }
}
