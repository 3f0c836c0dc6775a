//! What stands between CRIU and every hook: no panic gets out, every failure is logged and becomes a negative number.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{PluginError, with_causes};
use crate::log;

/// "Not ours": CRIU asks the next plugin, or goes on without.
pub const NOT_OURS: c_int = -libc::ENOTSUP;

/// Runs `hook` and maps its result for CRIU: `Ok(Some(n))` is `n`, `Ok(None)` is "not ours".
pub fn guard(name: &str, hook: impl FnOnce() -> Result<Option<c_int>, PluginError>) -> c_int {
    match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(Ok(Some(value))) => value,
        Ok(Ok(None)) => NOT_OURS,
        Ok(Err(error)) => {
            log::error(&with_causes(&error));
            -libc::EIO
        }
        Err(_) => {
            log::error(&format!("internal error in {name}"));
            -libc::EIO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_failures_become_negative_numbers() {
        assert_eq!(guard("t", || Ok(Some(3))), 3);
        assert_eq!(guard("t", || Ok(None)), NOT_OURS);
        assert_eq!(guard("t", || Err(PluginError::NotMarked)), -libc::EIO);
        #[allow(clippy::panic, reason = "that a panic is caught is what is tested")]
        let panicking = || panic!("caught");
        assert_eq!(guard("t", panicking), -libc::EIO);
    }
}
