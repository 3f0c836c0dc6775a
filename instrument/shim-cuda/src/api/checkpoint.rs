//! Checkpointing of processes, by their ids (CUDA Driver API, "CUDA Checkpointing"). Other processes can be stopped in
//! the middle of their kernels here, so a lock does not wait for kernels' ends.

use crate::checkpoint::{Action, ProcessState, call};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

entry_points! {
    plain cuCheckpointProcessGetState "cuCheckpointProcessGetState" 12080 (pid: i32, state: Out<u32>) => get_state;
    plain cuCheckpointProcessGetRestoreThreadId "cuCheckpointProcessGetRestoreThreadId" 12080
        (pid: i32, thread: Out<i32>) => get_restore_thread;
    plain cuCheckpointProcessLock "cuCheckpointProcessLock" 12080 (pid: i32, arguments: In<LockArguments>) => lock;
    plain cuCheckpointProcessCheckpoint "cuCheckpointProcessCheckpoint" 12080
        (pid: i32, arguments: In<Reserved>) => checkpoint;
    plain cuCheckpointProcessRestore "cuCheckpointProcessRestore" 12080
        (pid: i32, arguments: In<RestoreArguments>) => restore;
    plain cuCheckpointProcessUnlock "cuCheckpointProcessUnlock" 12080 (pid: i32, arguments: In<Reserved>) => unlock;
}

/// `CUcheckpointLockArgs`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LockArguments {
    limit_ms: u32,
    reserved0: u32,
    reserved1: [u64; 7],
}

/// `CUcheckpointCheckpointArgs`, `CUcheckpointUnlockArgs`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Reserved([u64; 8]);

/// `CUcheckpointRestoreArgs`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RestoreArguments {
    pairs: u64,
    num_pairs: u32,
    reserved: [u8; 44],
    reserved1: u64,
}

fn ensure_zero(is_zero: bool) -> Outcome {
    if is_zero { Ok(()) } else { Err(CuResult::INVALID_VALUE) }
}

fn reserved(arguments: In<Reserved>) -> Outcome {
    ensure_zero(arguments.is_null() || arguments.get()?.0 == [0; 8])
}

fn get_state((): (), pid: i32, state: Out<u32>) -> Outcome {
    if state.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    state.set(call(pid, Action::State)? as u32)
}

/// No thread of the process takes part; its first one stands for it.
fn get_restore_thread((): (), pid: i32, thread: Out<i32>) -> Outcome {
    if thread.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    call(pid, Action::State)?;
    thread.set(pid)
}

fn lock((): (), pid: i32, arguments: In<LockArguments>) -> Outcome {
    let limit_ms = match arguments.is_null() {
        true => 0,
        false => {
            let given = arguments.get()?;
            ensure_zero(given.reserved0 == 0 && given.reserved1 == [0; 7])?;
            given.limit_ms
        }
    };
    call(pid, Action::Lock { limit_ms }).map(|_: ProcessState| ())
}

fn checkpoint((): (), pid: i32, arguments: In<Reserved>) -> Outcome {
    reserved(arguments)?;
    call(pid, Action::Checkpoint).map(|_| ())
}

fn restore((): (), pid: i32, arguments: In<RestoreArguments>) -> Outcome {
    if !arguments.is_null() {
        let given = arguments.get()?;
        ensure_zero(given.reserved == [0; 44] && given.reserved1 == 0)?;
        if given.num_pairs > 0 || given.pairs != 0 {
            // The program goes on with the device that it was started for.
            return Err(CuResult::NOT_SUPPORTED);
        }
    }
    call(pid, Action::Restore).map(|_| ())
}

fn unlock((): (), pid: i32, arguments: In<Reserved>) -> Outcome {
    reserved(arguments)?;
    call(pid, Action::Unlock).map(|_| ())
}
