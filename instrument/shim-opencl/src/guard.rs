//! What every entry point goes through: it catches panics and makes a status of what comes out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::handles::Handle;
use crate::pointers::Out;
use crate::status::{Outcome, Status};

/// Entry points that give a status.
pub fn status(name: &'static str, body: impl FnOnce() -> Outcome) -> Status {
    match run(name, body) {
        Ok(()) => Status::SUCCESS,
        Err(status) => status,
    }
}

/// Entry points that give an object, and a status by pointer.
pub fn object(name: &'static str, errcode: Out<Status>, body: impl FnOnce() -> Outcome<Handle>) -> Handle {
    match run(name, body) {
        Ok(handle) => {
            errcode.set(Status::SUCCESS);
            handle
        }
        Err(status) => {
            errcode.set(status);
            Handle::NULL
        }
    }
}

/// Runs `body`; a panic is a bug in us and becomes an error like any other.
pub fn run<T>(name: &'static str, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        crate::log::failure(&format!("{name} failed: a bug in hetckpt"));
        Err(Status::OUT_OF_RESOURCES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_gets_through() {
        assert_eq!(status("f", || panic!("a bug")), Status::OUT_OF_RESOURCES);
        assert_eq!(object("f", Out::none(), || panic!("a bug")), Handle::NULL);
    }
}
