//! What a server of root's may do. It interprets what a program sends, which may be hostile, so it gives up at its start what it has no
//! use for.
//!
//! The bounding set stays: NVIDIA's driver starts a setuid program of its own, which makes device files. So this is no prison for a
//! server that has been taken over and starts programs, but what it does itself has less power.
//!
//! # Source
//! capabilities(7); Linux, `include/uapi/linux/capability.h`.
#![allow(unsafe_code, reason = "capget and capset have no safe wrappers here")]

use crate::error::ServerError;

/// Files of dumps are in folders of other users, and device files may be some group's.
const DAC_OVERRIDE: u32 = 1;
/// As above.
const DAC_READ_SEARCH: u32 = 2;
/// An application that was half restored is ended.
const KILL: u32 = 5;
/// To become the user of what is restored.
const SETGID: u32 = 6;
/// As above.
const SETUID: u32 = 7;
/// Drivers lock memory.
const IPC_LOCK: u32 = 14;
/// The application's memfds are taken out of it.
const SYS_PTRACE: u32 = 19;
/// Drivers give threads priorities.
const SYS_NICE: u32 = 23;
/// Drivers raise limits, of locked memory for instance.
const SYS_RESOURCE: u32 = 24;

/// What a server needs as long as it lives.
const ALWAYS: [u32; 7] = [
    DAC_OVERRIDE,
    DAC_READ_SEARCH,
    KILL,
    IPC_LOCK,
    SYS_PTRACE,
    SYS_NICE,
    SYS_RESOURCE,
];
/// What it needs besides to become another user.
const TO_CHANGE_USER: [u32; 2] = [SETGID, SETUID];

/// `_LINUX_CAPABILITY_VERSION_3`
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up, for good, all privileges that a server has no use for. To be called before there are other threads, which would keep theirs.
///
/// # Errors
/// [`ServerError::Os`].
pub fn reduce(changes_user: bool) -> Result<(), ServerError> {
    let last = || ServerError::Os {
        call: "capset",
        source: std::io::Error::last_os_error(),
    };
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut now = [Capabilities::default(); 2];
    // SAFETY: the header and two structures, as this version wants them, are there for the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, now.as_mut_ptr()) } < 0 {
        return Err(last());
    }
    let reduced = reduced(now, changes_user);
    // SAFETY: as above; they are only read.
    if reduced != now && unsafe { libc::syscall(libc::SYS_capset, &raw const header, reduced.as_ptr()) } < 0 {
        return Err(last());
    }
    Ok(())
}

fn reduced(now: [Capabilities; 2], changes_user: bool) -> [Capabilities; 2] {
    let more: &[u32] = if changes_user { &TO_CHANGE_USER } else { &[] };
    let kept = ALWAYS.iter().chain(more).fold(0u32, |kept, number| kept | 1 << number);
    // None of those above 31 is needed.
    let mut masks = [kept, 0].into_iter();
    now.map(|word| {
        let mask = masks.next().unwrap_or(0);
        Capabilities {
            effective: word.effective & mask,
            permitted: word.permitted & mask,
            inheritable: word.inheritable & mask,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes_and_nothing_comes() {
        let all = Capabilities {
            effective: u32::MAX,
            permitted: u32::MAX,
            inheritable: u32::MAX,
        };
        let [low, high] = reduced([all; 2], false);
        assert_eq!(high, Capabilities::default());
        // SETPCAP, NET_ADMIN, SYS_MODULE, SYS_RAWIO, SYS_CHROOT, SYS_ADMIN, SYS_BOOT, SYS_TIME, MKNOD.
        for number in [SETGID, SETUID, 8, 12, 16, 17, 18, 21, 22, 25, 27] {
            assert_eq!(low.permitted >> number & 1, 0, "{number}");
        }
        assert_eq!((low.effective, low.inheritable), (low.permitted, low.permitted));
        assert_eq!(
            reduced([all; 2], true)[0].permitted,
            low.permitted | 1 << SETGID | 1 << SETUID
        );
        assert_eq!(
            reduced([Capabilities::default(); 2], true),
            [Capabilities::default(); 2]
        );
    }
}
