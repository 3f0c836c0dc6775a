//! What each thread of the program has: its stack of contexts and its default stream. Plain cells without destructors,
//! as calls still come after a thread's destructors have run.

use std::cell::Cell;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

const MAX_DEPTH: usize = 64;

struct ThreadState {
    depth: Cell<usize>,
    contexts: [Cell<u64>; MAX_DEPTH],
    /// Generation and id of the per-thread default stream; id 0 = none yet.
    stream: Cell<(u64, u64)>,
    /// `CUstreamCaptureMode`, by number.
    capture_mode: Cell<u32>,
}

thread_local! {
    static STATE: ThreadState = const {
        ThreadState { depth: Cell::new(0), contexts: [const { Cell::new(0) }; MAX_DEPTH], stream: Cell::new((0, 0)),
            capture_mode: Cell::new(0) }
    };
}

/// The thread's current context, NULL if there is none.
pub fn current_context() -> Handle {
    STATE.with(|state| match state.depth.get() {
        0 => Handle::NULL,
        depth => Handle(state.contexts[depth - 1].get()),
    })
}

/// Replaces the current context; NULL removes it.
pub fn set_context(context: Handle) {
    STATE.with(|state| {
        let depth = state.depth.get();
        match (depth, context) {
            (0, Handle::NULL) => {}
            (_, Handle::NULL) => state.depth.set(depth - 1),
            (0, _) => {
                state.contexts[0].set(context.0);
                state.depth.set(1);
            }
            _ => state.contexts[depth - 1].set(context.0),
        }
    });
}

/// Makes `context` current until it is popped.
pub fn push_context(context: Handle) -> Outcome {
    STATE.with(|state| {
        let depth = state.depth.get();
        let place = state.contexts.get(depth).ok_or(CuResult::INVALID_VALUE)?;
        place.set(context.0);
        state.depth.set(depth + 1);
        Ok(())
    })
}

/// Removes the current context.
pub fn pop_context() -> Outcome<Handle> {
    let context = current_context();
    if context == Handle::NULL {
        return Err(CuResult::INVALID_CONTEXT);
    }
    STATE.with(|state| state.depth.set(state.depth.get() - 1));
    Ok(context)
}

/// The thread's default stream: the one made before in this `generation`, else what `make` makes.
pub fn default_stream(generation: u64, make: impl FnOnce() -> Outcome<u64>) -> Outcome<u64> {
    let (of, id) = STATE.with(|state| state.stream.get());
    if id != 0 && of == generation {
        return Ok(id);
    }
    let id = make()?;
    STATE.with(|state| state.stream.set((generation, id)));
    Ok(id)
}

/// Sets the thread's mode of capture by number; gives the one before.
pub fn exchange_capture_mode(mode: u32) -> u32 {
    STATE.with(|state| state.capture_mode.replace(mode))
}
