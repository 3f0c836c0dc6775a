//! Commands that the ring's reader has kept until streams had got far enough ([`crate::commands`]): what they do then.

use hetckpt_ring::command::{Command, Envelope};
use hetckpt_ring::reply::Reply;
use hetckpt_state::allocation::Owner;

use crate::cuda_result as cu;
use crate::session::{Session, lock};

/// Carries out a command whose places are reached.
pub fn carry_out(session: &Session, envelope: Envelope) {
    let fault = lock(&session.queues).fault;
    let result = match envelope.command {
        Command::Free { addr } => free(session, addr).max(fault),
        Command::UnregisterHost { addr } => match session.pinned.unregister(addr) {
            Ok(true) => fault,
            Ok(false) => cu::INVALID_VALUE,
            Err(error) => {
                tracing::error!(%error, "pinned memory cannot be unregistered");
                cu::UNKNOWN
            }
        },
        Command::ModuleUnload { module } => {
            lock(&session.modules).remove(module.0);
            if let Err(error) = lock(&session.memory).free_owned_by(Owner::Module(module.0)) {
                tracing::error!(%error, "variables of a module cannot be freed");
            }
            cu::SUCCESS
        }
        Command::Reset => {
            reset(session);
            cu::SUCCESS
        }
        _ => fault,
    };
    session.answer(envelope.reply, result, &Reply::Nothing);
    lock(&session.queues).num_carrying_out -= 1;
    session.changed.notify_all();
}

fn reset(session: &Session) {
    lock(&session.modules).clear();
    lock(&session.memory).clear();
    session.pinned.clear();
    let mut queues = lock(&session.queues);
    queues.events.clear();
    queues.host_functions_done.clear();
    queues.streams.retain(|&id, s| id == 0 || !s.is_idle());
    queues.fault = 0;
    drop(queues);
    if let Some(side) = session.side.get() {
        side.clear_fault();
    }
}

fn free(session: &Session, addr: u64) -> u32 {
    match lock(&session.memory).free(addr) {
        Ok(true) => cu::SUCCESS,
        Ok(false) => cu::INVALID_VALUE,
        Err(error) => {
            tracing::error!(%error, "device memory cannot be freed");
            cu::of_device_error(&error)
        }
    }
}
