//! May we restore processes of those users, with what they may do?

use hetckpt_ring::failure_code::Code;
use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};

use hetckpt_criu::needs::Needs;
use hetckpt_report::finding::{Finding, listed};

const CHECK: &str = "user";

const CODE: Code = Code::OfOtherUser;

/// Users who are not root may restore only their own; and nobody gives capabilities that he has not.
pub fn examine(needs: &Needs) -> Finding {
    let own = nix::unistd::geteuid();
    let problem = |found: String, help: &str| Finding {
        code: Some(CODE),
        ..Finding::problem(CHECK, found, help)
    };
    let other = needs.users.iter().find(|&&uid| uid != own.as_raw());
    if let Some(other) = other.filter(|_| !own.is_root()) {
        return problem(
            format!("the program ran as user {other}, this is user {own}"),
            "restore it as that user",
        );
    }
    let (permitted, bounding) = own_capabilities();
    let lacking = lacking(needs, permitted, bounding);
    if !lacking.is_empty() {
        let names = lacking.iter_names().map(|(name, _)| format!("CAP_{name}"));
        return problem(
            format!(
                "the program had capabilities that this process cannot give: {}",
                listed(names.collect::<Vec<_>>().into_iter())
            ),
            "restore it where root has them (a container may lack some: `--cap-add`, `--privileged`), or as the user it ran as: in a user namespace, that user has them all",
        );
    }
    Finding::ok(CHECK, "the program can have the user that it had")
}

/// What this process may use, and what it may hand on at most.
fn own_capabilities() -> (CapabilitySet, CapabilitySet) {
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let all = CapabilitySet::all().iter();
    (
        permitted,
        all.filter(|&one| capability_is_in_bounding_set(one).unwrap_or(false))
            .collect(),
    )
}

/// What `capset` would refuse.
///
/// # Source
/// capabilities(7), "Programmatically adjusting capability sets".
fn lacking(needs: &Needs, permitted: CapabilitySet, bounding: CapabilitySet) -> CapabilitySet {
    let [wanted, inheritable] = [needs.permitted, needs.inheritable].map(CapabilitySet::from_bits_truncate);
    (wanted - permitted) | (inheritable - bounding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_nobody_here_has_are_named() {
        let (kill, resource) = (CapabilitySet::KILL, CapabilitySet::SYS_RESOURCE);
        let of = |permitted: CapabilitySet, inheritable: CapabilitySet| Needs {
            permitted: permitted.bits(),
            inheritable: inheritable.bits(),
            ..Needs::default()
        };
        let none = CapabilitySet::empty();
        assert_eq!(lacking(&of(none, none), none, none), none);
        assert_eq!(lacking(&of(kill, kill), kill, kill), none);
        assert_eq!(lacking(&of(none, resource | kill), kill, kill), resource);
        assert_eq!(lacking(&of(resource, none), kill, resource), resource);
    }
}
