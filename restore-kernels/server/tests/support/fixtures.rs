//! Snapshots as versions were when they were fixed: the state's files, and the ring.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::App;

const RING: &str = "ring.zst";

/// The folder of a version of the state.
pub fn fixture(version: u32) -> PathBuf {
    let folder = format!("tests/fixtures/state-version-{version}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Stores the application's ring.
pub fn store_ring(app: &App, dir: &Path) {
    let ring = fs::read(format!("/proc/self/fd/{}", app.ring.as_raw_fd())).unwrap();
    fs::write(dir.join(RING), zstd::encode_all(&ring[..], 19).unwrap()).unwrap();
}

/// The ring, as CRIU would give it back.
pub fn ring_of(dir: &Path) -> OwnedFd {
    let bytes = zstd::decode_all(&fs::read(dir.join(RING)).unwrap()[..]).unwrap();
    let ring = memfd_create(c"ring", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let mut file = fs::File::from(ring);
    file.write_all(&bytes).unwrap();
    fcntl(
        &file,
        FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW),
    )
    .unwrap();
    file.into()
}
