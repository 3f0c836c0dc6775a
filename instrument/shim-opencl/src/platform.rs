//! The platform: there is one, ours.

use std::sync::OnceLock;

use crate::handles::{Cell, Handle};
use crate::info::Query;
use crate::pointers::Out;
use crate::status::{Outcome, Status};

entry_points! {
    status clGetPlatformIDs(room: u32, platforms: Out<Handle>, count: Out<u32>) => ids;
    status clGetPlatformInfo(platform: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clUnloadPlatformCompiler(platform: Handle) => check;
    status clUnloadCompiler() => nothing;
}

/// The OpenCL version, as platform and device say it.
pub const VERSION: &str = "OpenCL 1.2 hetckpt";
/// Whom devices and platform are from.
pub const VENDOR: &str = "hetckpt";
/// There is no embedded profile here.
pub const PROFILE: &str = "FULL_PROFILE";

mod name {
    pub const PROFILE: u32 = 0x0900;
    pub const VERSION: u32 = 0x0901;
    pub const NAME: u32 = 0x0902;
    pub const VENDOR: u32 = 0x0903;
    pub const EXTENSIONS: u32 = 0x0904;
    pub const ICD_SUFFIX: u32 = 0x0920;
}

/// The platform's handle.
pub fn handle() -> Handle {
    static CELL: OnceLock<Cell> = OnceLock::new();
    CELL.get_or_init(Cell::new).handle()
}

/// Refuses any platform but the one there is; NULL means it.
pub fn check(platform: Handle) -> Outcome {
    if platform == Handle::NULL || platform == handle() {
        Ok(())
    } else {
        Err(Status::INVALID_PLATFORM)
    }
}

/// The list of one platform.
pub fn ids(room: u32, platforms: Out<Handle>, count: Out<u32>) -> Outcome {
    if (room == 0 && !platforms.is_null()) || (platforms.is_null() && count.is_null()) {
        return Err(Status::INVALID_VALUE);
    }
    platforms.set(handle());
    count.set(1);
    Ok(())
}

fn info(platform: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    check(platform)?;
    let text = match name {
        name::PROFILE => PROFILE,
        name::VERSION => VERSION,
        name::NAME | name::VENDOR => VENDOR,
        name::EXTENSIONS => "cl_khr_icd",
        name::ICD_SUFFIX => "HETCKPT",
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(text)
}

/// A hint that is not taken: the compiler is a program of its own and not loaded.
fn nothing() -> Outcome {
    Ok(())
}
