//! CRIU: where it is, its images, its page server, running it. No device, and no decision what a dump is for.

#![allow(
    clippy::missing_errors_doc,
    reason = "each failure has a code, and docs/errors.md says when it comes"
)]

pub mod log_advice;
mod lost_program;
pub mod device_streams;
pub mod eventfds;
pub mod image_error;
pub mod image_messages;
pub mod image_streamer;
pub mod images;
pub mod locate;
pub mod memory_sink;
pub mod needs;
pub mod page_protocol;
pub mod page_server;
pub mod parsers;
pub mod pending_signals;
pub mod plugin_option;
pub mod rewrite;
pub mod run;
pub mod tcp_lock;
pub mod terminals;
