//! A store's errors as the user sees them.

use std::error::Error;

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;

use crate::error::{Damage, StoreError};
use crate::record::BadRecord;

/// The failure for `error`.
#[must_use]
pub fn failure(error: &StoreError) -> Failure {
    let (code, help) = match error {
        StoreError::Url { .. } | StoreError::Name(_) => (
            Code::StoreFailed,
            Some("name a folder, or a URL such as s3://BUCKET/PATH, and in it a job: s3://BUCKET/PATH/JOB"),
        ),
        StoreError::NotSupported { .. } => (
            Code::StoreFailed,
            Some("use a folder, s3://, gs:// or az://: a plain HTTP server takes no large uploads"),
        ),
        StoreError::Folder { .. } => (
            Code::StoreFailed,
            Some("see whether the folder is there, you may write to it, and there is room"),
        ),
        StoreError::NoSuchSnapshot { .. } => (Code::StoreFailed, Some("`hetckpt store ls` lists the snapshots")),
        StoreError::Remote { .. } | StoreError::Silent { .. } | StoreError::Record(_) | StoreError::Runtime(_) => {
            (Code::StoreFailed, None)
        }
        StoreError::Local { .. } => (Code::CannotWrite, None),
        StoreError::Damaged {
            source: Damage::Record(BadRecord::Newer { .. }),
            ..
        } => (Code::NewerVersion, None),
        StoreError::Damaged { .. } => (Code::StoredDamaged, None),
        StoreError::Claimed { .. } | StoreError::ClaimLost { .. } => (Code::JobClaimed, None),
        StoreError::Key(_) => (Code::StoreKey, None),
        StoreError::Interrupted => (Code::Interrupted, None),
    };
    let mut failure = Failure::new(code, error.to_string());
    let mut cause = error.source();
    while let Some(why) = cause {
        failure = failure.note(why.to_string());
        cause = why.source();
    }
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}
