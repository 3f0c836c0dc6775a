//! The CRIU program: where it is, what it can do, running it.

pub mod locate;
pub mod images;
pub mod image_messages;
pub mod terminals;
pub mod needs;
pub mod rewrite;
pub mod eventfds;
pub mod plugin_option;
pub mod memory_taker;
pub mod device_streams;
pub mod server_access;
pub mod page_protocol;
pub mod page_server;
pub mod complaint;
pub mod run;
pub mod tcp_lock;
