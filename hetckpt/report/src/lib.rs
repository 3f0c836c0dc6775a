//! What the user is told: failures with their codes, findings, remarks and progress. Also what most failures depend on:
//! where the parts of hetckpt are installed, and the limit on the size of files.
//!
//! Nothing here prints. Remarks are events of [`tracing`], which the command line shows.

pub mod archive_error;
pub mod exit;
pub mod failure;
pub mod file_size;
pub mod finding;
pub mod installation;
pub mod number;
pub mod quantity;
pub mod remark;
