//! A program's way from one place to another: captured, carried, checked, restored, migrated. Nothing here prints.

#![allow(
    clippy::missing_errors_doc,
    reason = "each failure has a code, and docs/errors.md says when it comes"
)]

pub mod adaptation;
pub mod archive_name;
mod byte_service;
pub mod capture;
pub mod carried;
pub mod check;
pub mod devices;
pub mod doctor;
pub mod dump;
pub mod folder_error;
pub mod inner_connections;
pub mod migration;
mod not_kept;
pub mod obstacles;
mod archive_file;
mod stream_sink;
mod outgoing;
pub mod pack;
pub mod parent;
pub mod merge;
pub mod private_folder;
pub mod restore;
pub mod server_access;
pub mod server_question;
pub mod snapshot;
pub mod snapshot_files;
pub mod trace;
pub mod unpack;
pub mod uprobes;
