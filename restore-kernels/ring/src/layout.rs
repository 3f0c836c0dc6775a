//! Where the words lie in the shared memory. All little-endian, all offsets from its start.
//!
//! | offset | what |
//! |---|---|
//! | 0 | header: the words below, the application's label, and its requests for checkpoints |
//! | 0x1000 | table of pinned host memory ([`crate::pinned_table`]) |
//! | 0x2_1000 | call-backs due: `u64` ids, a FIFO of [`NUM_CALLBACKS`] |
//! | 0x2_5000 | state words of the staging chunks, `u32` each |
//! | 0x3_0000 | reply slots, [`REPLY_SLOT_BYTES`] each |
//! | 0x8_0000 | what kernels of machine code have printed, a FIFO of [`PRINTED_BYTES`] ([`crate::printed`]) |
//! | 0x10_0000 | command FIFO, [`COMMAND_BYTES`] |
//! | 0x20_0000 | staging chunks, [`CHUNK_BYTES`] each |

/// `u64` magic number.
pub const MAGIC: usize = 0;
/// `u32` protocol version.
pub const VERSION: usize = 8;
/// `u32` sticky CUresult, set by the server; 0 = none.
pub const FAULT: usize = 12;
/// `u64` size of the shared memory.
pub const SIZE: usize = 16;
/// `u32` process id of the application, as it sees itself.
pub const APP_PID: usize = 24;
/// `u32` descriptor number of this memory in the application.
pub const RING_FD: usize = 28;
/// `u32` descriptor number of the control socket in the application.
pub const CONTROL_FD: usize = 32;
/// `u32` how long a thread of the application looks for an answer, at most, before it sleeps, microseconds; written by
/// the server: kernels may need the same processors.
pub const LONGEST_LOOK_US: usize = 36;
/// `u32` futex: 1 = the server would see to faults of managed memory ([`crate::command::Command::ManagedFaults`]);
/// written by it only.
pub const WANTS_MANAGED_FAULTS: usize = 40;

/// `u64` commands written up to here (bytes since the start); written by the application only.
pub const COMMAND_TAIL: usize = 64;
/// `u64` commands read up to here; written by the server only.
pub const COMMAND_HEAD: usize = 128;
/// `u32` futex: counts wake-ups of the server.
pub const SERVER_BELL: usize = 192;
/// `u32`: 1 = the server sleeps, or is about to.
pub const SERVER_SLEEPS: usize = 196;
/// `u32` futex: counts wake-ups of threads waiting for room in the FIFO.
pub const ROOM_BELL: usize = 256;
/// `u32`: 1 = somebody waits for room.
pub const ROOM_WANTED: usize = 260;
/// `u32` futex: counts releases of chunks.
pub const CHUNK_BELL: usize = 320;
/// `u32`: 1 = somebody waits for a chunk.
pub const CHUNK_WANTED: usize = 324;
/// `u32` futex: counts releases of reply slots.
pub const SLOT_BELL: usize = 384;
/// `u32`: 1 = somebody waits for a reply slot.
pub const SLOT_WANTED: usize = 388;
/// `u64` call-backs given out so far; written by the server only.
pub const CALLBACK_TAIL: usize = 448;
/// `u64` call-backs taken so far; written by the application only.
pub const CALLBACK_HEAD: usize = 512;
/// `u32` futex: counts call-backs given out.
pub const CALLBACK_BELL: usize = 576;

/// `u32` futex: number of the last checkpoint that the application has asked for; written by it.
pub const CHECKPOINT_ASKED: usize = 640;
/// `u32` futex: number of the last one that has been answered; written by the server only.
pub const CHECKPOINT_ANSWERED: usize = 644;
/// `u32` what came of that one ([`crate::checkpoint::Outcome`]); written by the server only.
pub const CHECKPOINT_OUTCOME: usize = 648;
/// `u32` length of [`CHECKPOINT_FILE`].
pub const CHECKPOINT_FILE_BYTES: usize = 652;
/// `u32` length of [`CHECKPOINT_MESSAGE`].
pub const CHECKPOINT_MESSAGE_BYTES: usize = 656;
/// `u32` length of [`LABEL`].
pub const LABEL_BYTES: usize = 660;
/// `u32` how often the application has been restored; written by the server only.
pub const NUM_RESTORES: usize = 664;

/// `u64` printed text written up to here (bytes since the start); written by the server only.
pub const PRINTED_TAIL: usize = 672;
/// `u64` printed text taken up to here; written by the application only.
pub const PRINTED_HEAD: usize = 680;
/// `u32`: 1 = the server has more, for which there was no room; written by it only.
pub const PRINTED_MORE: usize = 688;

/// What the application calls its state; written by it.
pub const LABEL: usize = 0x300;
/// Room for it.
pub const MAX_LABEL_BYTES: usize = 256;
/// The file that a checkpoint is to go to; written by the application.
pub const CHECKPOINT_FILE: usize = 0x400;
/// Room for it.
pub const MAX_CHECKPOINT_FILE_BYTES: usize = 2048;
/// Why there is no checkpoint; written by the server.
pub const CHECKPOINT_MESSAGE: usize = 0xc00;
/// Room for it.
pub const MAX_CHECKPOINT_MESSAGE_BYTES: usize = 1024;

/// Table of pinned host memory.
pub const PINNED_TABLE: usize = 0x1000;
/// Its entries.
pub const MAX_PINNED: usize = 4096;
/// Size of an entry: `u64` address, `u64` size, `u32` descriptor + 1 (0 = free entry), `u32` flags, `u64` reserved.
pub const PINNED_ENTRY_BYTES: usize = 32;

/// FIFO of call-backs.
pub const CALLBACKS: usize = 0x2_1000;
/// Its capacity.
pub const NUM_CALLBACKS: u64 = 2048;

/// State words of the chunks: 0 free, 1 taken.
pub const CHUNK_STATES: usize = 0x2_5000;
/// Number of chunks.
pub const NUM_CHUNKS: u32 = 64;

/// Reply slots.
pub const REPLY_SLOTS: usize = 0x3_0000;
/// Number of reply slots.
pub const NUM_REPLY_SLOTS: u32 = 256;
/// Size of a slot: `u32` state, `u32` CUresult, `u32` length, `u32` reserved, payload.
pub const REPLY_SLOT_BYTES: usize = 1024;
/// What a reply may hold.
pub const REPLY_PAYLOAD_BYTES: usize = REPLY_SLOT_BYTES - 16;

/// FIFO of what kernels of machine code have printed. Before version 9 nothing was there.
pub const PRINTED: usize = 0x8_0000;
/// Its size, a power of two.
pub const PRINTED_BYTES: usize = 0x8_0000;

/// Command FIFO.
pub const COMMANDS: usize = 0x10_0000;
/// Its size, a power of two.
pub const COMMAND_BYTES: usize = 1 << 20;
/// An application that has found the FIFO full writes on once no more than so much of it is filled: to be woken for
/// each record would cost more than the record.
pub const FILLED_AGAIN_BELOW: u64 = COMMAND_BYTES as u64 / 2;
/// Largest record. It begins with `u32` length of its body and `u32` kind ([`record_kind`]), and ends at a multiple of
/// 8. Before version 8 it was 64 KiB.
pub const MAX_RECORD_BYTES: usize = 256 << 10;

/// Staging chunks.
pub const CHUNKS: usize = 0x20_0000;
/// Size of a chunk.
pub const CHUNK_BYTES: usize = 512 << 10;
/// Copies up to this size travel inside the command.
pub const MAX_INLINE_BYTES: usize = 4096;

/// Size of the shared memory.
pub const TOTAL_BYTES: usize = CHUNKS + NUM_CHUNKS as usize * CHUNK_BYTES;

/// What a record holds.
pub mod record_kind {
    /// A command, encoded as [`crate::command::Envelope::encode`] does.
    pub const COMMAND: u32 = 0;
    /// A launch (`launch_record`).
    pub const LAUNCH: u32 = 1;
    /// A part of a graph (`graph_part`).
    pub const GRAPH_PART: u32 = 2;
}

/// Reply slot states.
pub mod slot_state {
    /// Free.
    pub const FREE: u32 = 0;
    /// Taken; the answer is not there yet.
    pub const TAKEN: u32 = 1;
    /// Taken, and a thread sleeps on it.
    pub const AWAITED: u32 = 2;
    /// The answer is there.
    pub const DONE: u32 = 3;
}

const _: () = {
    assert!(LABEL + MAX_LABEL_BYTES <= CHECKPOINT_FILE);
    assert!(CHECKPOINT_FILE + MAX_CHECKPOINT_FILE_BYTES <= CHECKPOINT_MESSAGE);
    assert!(CHECKPOINT_MESSAGE + MAX_CHECKPOINT_MESSAGE_BYTES <= PINNED_TABLE);
    assert!(PINNED_TABLE + MAX_PINNED * PINNED_ENTRY_BYTES <= CALLBACKS);
    assert!(CALLBACKS + NUM_CALLBACKS as usize * 8 <= CHUNK_STATES);
    assert!(CHUNK_STATES + NUM_CHUNKS as usize * 4 <= REPLY_SLOTS);
    assert!(REPLY_SLOTS + NUM_REPLY_SLOTS as usize * REPLY_SLOT_BYTES <= PRINTED);
    assert!(PRINTED + PRINTED_BYTES <= COMMANDS && PRINTED_BYTES.is_power_of_two());
    assert!(COMMANDS + COMMAND_BYTES <= CHUNKS);
    assert!(COMMAND_BYTES.is_power_of_two() && MAX_RECORD_BYTES < COMMAND_BYTES / 2);
};
