//! An archive's bytes on a socket, for whoever asks for whatever they like.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use hetckpt_archive::backing::RemoteBytes;
use hetckpt_archive::served_bytes::answer;

/// Each byte is the lowest of its place.
struct Pattern(u64);

impl RemoteBytes for Pattern {
    fn size_bytes(&self) -> u64 {
        self.0
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.0.saturating_sub(offset).min(out.len() as u64);
        let count = usize::try_from(count).unwrap();
        for (byte, at) in out[..count].iter_mut().zip(offset..) {
            *byte = at as u8;
        }
        Ok(count)
    }
}

/// Each request that can be answered is answered with the right bytes, in their order.
pub fn served_bytes(data: &[u8]) {
    const SIZE: u64 = 1 << 16;
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = answer(&theirs, &Pattern(SIZE), &|_| ());
            let _ = theirs.shutdown(Shutdown::Both);
        });
        let (mut asks, hears) = (&ours, &ours);
        for request in data.chunks_exact(16).take(64) {
            let [offset, size] = [0, 8].map(|at| u64::from_le_bytes(request[at..at + 8].try_into().unwrap()));
            let can_be = size == 0 || offset.checked_add(size).is_some_and(|end| end <= SIZE);
            if asks.write_all(request).is_err() {
                break;
            }
            let mut heard = vec![];
            if hears
                .take(if can_be { size } else { 1 })
                .read_to_end(&mut heard)
                .is_err()
            {
                break;
            }
            if !can_be {
                assert!(heard.is_empty());
                break;
            }
            assert_eq!(heard.len() as u64, size);
            assert!(heard.iter().zip(offset..).all(|(&byte, at)| byte == at as u8));
        }
        let _ = ours.shutdown(Shutdown::Both);
    });
}
