//! What a server of root's may do. It interprets what a program sends, which may be hostile, so it gives up at its
//! start what it has no use for.
//!
//! The bounding set stays: NVIDIA's driver starts a setuid program of its own, which makes device files. So this is no
//! prison for a server that has been taken over and starts programs, but what it does itself has less power.
//!
//! # Source
//! capabilities(7).

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::error::ServerError;

/// What a server needs as long as it lives: files of dumps are in folders of other users, and device files may be some
/// group's; an application that was half restored is ended; the application's memfds are taken out of it; drivers lock
/// memory, give threads priorities and raise limits.
const ALWAYS: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);
/// What it needs besides to become the user of what is restored.
const TO_CHANGE_USER: CapabilitySet = CapabilitySet::SETGID.union(CapabilitySet::SETUID);

/// Gives up, for good, all privileges that a server has no use for. To be called before there are other threads, which
/// would keep theirs.
///
/// # Errors
/// [`ServerError::Os`].
pub fn reduce(changes_user: bool) -> Result<(), ServerError> {
    let now = capabilities(None).map_err(|e| ServerError::Os {
        call: "capget",
        source: e.into(),
    })?;
    let reduced = reduced(&now, changes_user);
    // Who has fewer privileges than a program may not reach its memory but by that one: in most containers there it is
    // missing.
    if reduced == now || !reduced.permitted.contains(CapabilitySet::SYS_PTRACE) {
        return Ok(());
    }
    set_capabilities(None, reduced).map_err(|e| ServerError::Os {
        call: "capset",
        source: e.into(),
    })
}

fn reduced(now: &CapabilitySets, changes_user: bool) -> CapabilitySets {
    let kept = match changes_user {
        true => ALWAYS.union(TO_CHANGE_USER),
        false => ALWAYS,
    };
    CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: now.inheritable & kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(all: CapabilitySet) -> CapabilitySets {
        CapabilitySets {
            effective: all,
            permitted: all,
            inheritable: all,
        }
    }

    #[test]
    fn what_is_not_needed_goes_and_nothing_comes() {
        let now = sets(CapabilitySet::all());
        for changes_user in [false, true] {
            let left = reduced(&now, changes_user);
            assert_eq!(left, sets(left.permitted));
            assert!(left.permitted.contains(ALWAYS));
            assert_eq!(left.permitted.intersects(TO_CHANGE_USER), changes_user);
            assert!(
                !left
                    .permitted
                    .intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_MODULE | CapabilitySet::MKNOD)
            );
        }
        let none = sets(CapabilitySet::empty());
        assert_eq!(reduced(&none, true), none);
    }
}
