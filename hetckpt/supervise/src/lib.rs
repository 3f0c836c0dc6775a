//! Standing in for programs: starting them, their process trees and device servers, namespaces of their own, and the
//! promise that a stopped tree runs on.

#![allow(
    clippy::missing_errors_doc,
    reason = "each failure has a code, and docs/errors.md says when it comes"
)]

pub mod checkpoint_service;
pub mod child_lists;
pub mod dump_command;
pub mod dump_lock;
pub mod hidden_verbs;
pub mod interrupting;
pub mod launch;
pub mod mapped_files;
pub mod namespaces;
pub mod outcome;
pub mod pause_and_resume;
pub mod process_control;
pub mod process_tree;
pub mod relay;
pub mod result_file;
pub mod runtime_folder;
pub mod server_client;
pub mod server_list;
pub mod signals;
pub mod stand_in;
pub mod stopped_tree;
pub mod suspend_and_resume;
pub mod target;
