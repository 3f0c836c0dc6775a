//! The user that what is tested runs as. Tests that build nodes and networks must be root; what runs there need not.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use nix::unistd::User;

/// The variable that names the user.
const VARIABLE: &str = "HETCKPT_E2E_USER";

static FOUND: OnceLock<Option<User>> = OnceLock::new();

/// Looks the user up, once, before any test.
///
/// # Errors
/// If there is no user of the name that is given.
pub fn find() -> Result<()> {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let user = match name.is_empty() {
        true => None,
        false => Some(User::from_name(&name)?.with_context(|| format!("{VARIABLE}: there is no user {name}"))?),
    };
    FOUND.get_or_init(|| user);
    Ok(())
}

/// The user, if it is not the tests' own.
#[must_use]
pub fn tested() -> Option<&'static User> {
    FOUND.get()?.as_ref()
}

/// Has `command` run as that user.
pub fn equip(command: &mut Command) {
    if let Some(user) = tested() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
}

/// That user and group, or root, as `chown` takes them.
#[must_use]
pub fn owner() -> String {
    tested().map_or("0:0".to_owned(), |user| format!("{}:{}", user.uid, user.gid))
}

/// Options with which `nsenter` becomes that user.
#[must_use]
pub fn nsenter_options() -> Vec<String> {
    tested().map_or(vec![], |user| {
        vec![format!("--setuid={}", user.uid), format!("--setgid={}", user.gid)]
    })
}
