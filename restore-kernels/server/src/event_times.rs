//! Times between recorded events.

use hetckpt_ring::reply::Reply;

use crate::cuda_result as cu;
use crate::queues::Queues;

/// Result and answer of [`hetckpt_ring::command::Command::EventElapsed`].
pub fn elapsed(queues: &Queues, start: u64, end: u64) -> (u32, Reply) {
    let (Some(start), Some(end)) = (queues.events.get(&start), queues.events.get(&end)) else {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    };
    let (Some(from), Some(to)) = (start.latest, end.latest) else {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    };
    if !start.timing || !end.timing {
        return (cu::INVALID_HANDLE, Reply::Nothing);
    }
    match (start.time, end.time) {
        _ if queues.order.fault() != 0 => (queues.order.fault(), Reply::Nothing),
        (Some(a), Some(b)) if queues.order.is_reached(from) && queues.order.is_reached(to) => {
            let on_device = start.on_device.as_ref().zip(end.on_device.as_ref());
            if let Some(ms) = on_device.and_then(|(start, end)| end.milliseconds_since(&**start)) {
                return (cu::SUCCESS, Reply::Milliseconds(ms));
            }
            #[allow(clippy::cast_possible_truncation, reason = "CUDA gives 32-bit milliseconds")]
            let ms = ((b.as_secs_f64() - a.as_secs_f64()) * 1e3) as f32;
            (cu::SUCCESS, Reply::Milliseconds(ms))
        }
        _ => (cu::NOT_READY, Reply::Nothing),
    }
}
