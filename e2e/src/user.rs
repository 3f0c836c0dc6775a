//! The user that what is tested runs as. Tests that build nodes and networks must be root; what runs there need not.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use nix::unistd::User;

/// The variable that names the user.
const VARIABLE: &str = "HETCKPT_E2E_USER";

/// The user, if it is not the tests' own.
///
/// # Panics
/// If there is no user of the name that is given.
#[must_use]
#[allow(clippy::panic, reason = "no test could say more of it")]
pub fn tested() -> Option<&'static User> {
    static FOUND: OnceLock<Option<User>> = OnceLock::new();
    let find = || find().unwrap_or_else(|error| panic!("{VARIABLE}: {error:#}"));
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Result<Option<User>> {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let user = User::from_name(&name)?.with_context(|| format!("there is no user {name}"))?;
    Ok(Some(user))
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
