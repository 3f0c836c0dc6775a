//! Commands that the ring's reader has kept until streams had got far enough ([`crate::commands`]): what they do then.

use hetckpt_devices::error::DeviceError;
use hetckpt_ring::command::Command;
use hetckpt_ring::reply::Reply;
use hetckpt_state::allocation::Owner;

use crate::counters::Activity;
use crate::cuda_result as cu;
use crate::event_times::elapsed;
use crate::queues::Awaiting;
use crate::session::Session;

/// Carries out a command whose places are reached.
pub fn carry_out(session: &Session, awaiting: Awaiting) {
    let Awaiting { envelope, since } = awaiting;
    let activity = match envelope.command {
        Command::Free { .. } => Some(Activity::Free),
        Command::StreamSynchronize { .. }
        | Command::EventSynchronize { .. }
        | Command::EventSynchronizeElapsed { .. }
        | Command::Synchronize { .. } => Some(Activity::Wait),
        _ => None,
    };
    let queues = session.queues.lock();
    let fault = queues.order.fault();
    let body = match envelope.command {
        Command::EventSynchronizeElapsed { start, end } => elapsed(&queues, start.0, end.0).1,
        _ => Reply::Nothing,
    };
    drop(queues);
    let result = match envelope.command {
        Command::Free { addr } => free(session, addr).max(fault),
        Command::UnregisterHost { addr } => match session.managed.unregister(addr, &session.pinned) {
            Ok(true) => fault,
            Ok(false) => cu::INVALID_VALUE,
            Err(error) => {
                tracing::error!(%error, "pinned memory cannot be unregistered");
                cu::UNKNOWN
            }
        },
        Command::ModuleUnload { module } => {
            let graphs = session.graph_parts.lock().forget_module(module.0);
            drop(graphs);
            session.modules.lock().remove(module.0);
            session.moved.write().forget(module.0);
            if let Err(error) = session.memory.lock().free_owned_by(Owner::Module(module.0)) {
                tracing::error!(%error, "variables of a module cannot be freed");
            }
            cu::SUCCESS
        }
        Command::ArrayDestroy { array } => {
            let destroyed = session.arrays.lock().destroy(&*session.device, array.0);
            result_of(destroyed, "an array cannot be freed")
        }
        Command::ImageDestroy { image } => {
            let destroyed = session.arrays.lock().destroy_image(&*session.device, image);
            result_of(destroyed, "a texture or surface object cannot be freed")
        }
        Command::Reset { .. } => {
            reset(session);
            cu::SUCCESS
        }
        _ => fault,
    };
    match activity {
        Some(Activity::Wait) => session.answer_behind_kernels(envelope.reply, result, &body),
        _ => session.answer(envelope.reply, result, &body),
    }
    if let Some(activity) = activity {
        session.counters().add(activity, 0, since.elapsed());
    }
    session.queues.lock().order.released();
    session.changed.notify_all();
}

fn result_of(done: Result<(), DeviceError>, what: &str) -> u32 {
    match done {
        Ok(()) => cu::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "{what}");
            cu::of_device_error(&error)
        }
    }
}

fn reset(session: &Session) {
    let graphs = session.graph_parts.lock().clear();
    drop(graphs);
    session.modules.lock().clear();
    session.arrays.lock().clear(&*session.device);
    session.memory.lock().clear();
    session.managed.clear(&session.pinned);
    let mut queues = session.queues.lock();
    queues.events.clear();
    queues.order.reset();
    drop(queues);
    if let Some(side) = session.side.get() {
        side.clear_fault();
    }
}

fn free(session: &Session, addr: u64) -> u32 {
    match session.memory.lock().free(addr) {
        Ok(true) => cu::SUCCESS,
        Ok(false) => cu::INVALID_VALUE,
        Err(error) => {
            tracing::error!(%error, "device memory cannot be freed");
            cu::of_device_error(&error)
        }
    }
}
