//! What a process may do within a user namespace.

use nix::unistd::geteuid;
use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    set_capabilities,
};

/// Hands the privileges of this process on to the programs that it runs, which would lose them otherwise: within an
/// identity mapping nobody is root. Those to become other users are not among them: CRIU takes who has them for root.
pub fn hand_on() -> io::Result<()> {
    let sets = capabilities(None)?;
    let handed_on = sets.permitted - (CapabilitySet::SETUID | CapabilitySet::SETGID);
    set_capabilities(
        None,
        CapabilitySets {
            inheritable: handed_on,
            ..sets
        },
    )?;
    for capability in handed_on.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Hands nothing on any more. What was for handing on is not to be the program's either: it would go into its snapshot,
/// and with that to where it counts outside of the namespace.
pub fn keep() -> io::Result<()> {
    clear_ambient_capability_set()?;
    if geteuid().is_root() {
        return Ok(());
    }
    set_capabilities(
        None,
        CapabilitySets {
            inheritable: CapabilitySet::empty(),
            ..capabilities(None)?
        },
    )
}
