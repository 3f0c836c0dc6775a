//! May we restore processes of those users?

use crate::criu::needs::Needs;
use crate::finding::Finding;

const CHECK: &str = "user";

/// Users who are not root may restore only their own.
pub fn examine(needs: &Needs) -> Finding {
    let own = nix::unistd::geteuid();
    let other = needs.users.iter().find(|&&uid| uid != own.as_raw());
    match other {
        Some(other) if !own.is_root() => Finding {
            code: Some("HK0909".to_owned()),
            ..Finding::problem(
                CHECK,
                format!("the program ran as user {other}, this is user {own}"),
                "restore it as that user",
            )
        },
        _ => Finding::ok(CHECK, "the program can have the user that it had"),
    }
}
