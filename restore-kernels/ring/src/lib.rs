//! Words between shim, server, plugin and command line.
//!
//! Two ways to talk: a ring in shared memory (commands from the application, answers and call-backs to it), and a unix
//! socket per server for what is rare or comes from others (hello, pause, capture, attach). The shared memory holds
//! nothing that belongs to one server process, so that after a restore a new server maps it and carries on from the
//! words in it. This crate moves words; what they mean for a device is the server's business.

pub mod version;
pub mod virtual_gpu;
pub mod failure_code;
pub mod error;
pub mod layout;
pub mod app_memory;
pub mod userfaultfd;
pub mod shared_memory;
pub mod futex;
pub mod command;
pub mod reply;
pub mod launch_record;
pub mod graph_part;
pub mod printed;
pub mod producer;
pub mod consumer;
pub mod server_side;
pub mod pinned_table;
pub mod checkpoint;
pub mod checkpoint_words;
pub mod server_stats;
pub mod message;
pub mod question;
pub mod control_socket;
pub mod peer;
pub mod runtime_dir;
pub mod server_start;
pub mod signs_of_life;
