//! Functions of the program that run in stream order: the server says when one is due, a thread of ours runs it.
#![allow(unsafe_code, reason = "calls the program's functions")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use hetckpt_ring::command::{Command, StreamId};

use crate::device::Device;
use crate::fork;
use crate::handles::Handle;
use crate::own_thread;
use crate::result::{CuResult, Outcome};
use crate::word_wait::WordWait;

/// How often the thread looks after the server while functions are outstanding.
const LOOK_AFTER_SERVER: Duration = Duration::from_millis(200);
/// Between looks at words that streams wait for: at first, and in the end.
const LOOKS_AT_WORDS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// `CUhostFn`.
pub type HostFn = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub type StreamCallback = unsafe extern "C" fn(Handle, CuResult, *mut c_void);

/// What to call.
#[derive(Clone, Copy, Debug)]
pub enum HostFunction {
    /// From `cuLaunchHostFunc`: function and argument.
    Function(HostFn, usize),
    /// From `cuStreamAddCallback`: function, stream and argument.
    Callback(StreamCallback, Handle, usize),
    /// None, but a word that is waited for.
    Wait(WordWait),
}

#[derive(Debug, Default)]
struct State {
    outstanding: HashMap<u64, HostFunction>,
    has_thread: bool,
}

/// Functions that the server has not asked for yet.
#[derive(Debug, Default)]
pub struct HostFunctions {
    state: Mutex<State>,
    added: Condvar,
}

impl HostFunctions {
    /// Queues `function` in `stream`.
    pub fn enqueue(&'static self, device: &'static Device, stream: StreamId, function: HostFunction) -> Outcome {
        let id = device.next_id();
        let mut state = self.state.lock();
        if !state.has_thread {
            own_thread::start("hetckpt-host-fn", move || serve(self, device)).map_err(|_| CuResult::OUT_OF_MEMORY)?;
            state.has_thread = true;
        }
        state.outstanding.insert(id, function);
        drop(state);
        self.added.notify_one();
        device.send(Command::HostFunction { stream, id })
    }
}

fn serve(own: &HostFunctions, device: &Device) {
    let mut waits: Vec<(u64, WordWait)> = Vec::new();
    let [soon, late] = LOOKS_AT_WORDS;
    let mut look = soon;
    loop {
        let mut state = own.state.lock();
        while state.outstanding.is_empty() && waits.is_empty() {
            own.added.wait(&mut state);
        }
        drop(state);
        let limit = match waits.is_empty() {
            true => LOOK_AFTER_SERVER,
            false => look,
        };
        match device.producer().wait_callback(limit) {
            Ok(None) => look = (look * 2).min(late),
            Ok(Some(id)) => {
                let function = own.state.lock().outstanding.remove(&id);
                match function {
                    Some(HostFunction::Wait(wait)) => {
                        waits.push((id, wait));
                        look = soon;
                        continue;
                    }
                    Some(HostFunction::Function(function, argument)) => call(function, argument),
                    Some(HostFunction::Callback(function, stream, argument)) => call_back(function, stream, argument),
                    None => {}
                }
                // The function has forked, and this is the child, of which this thread is all.
                if fork::is_forked_child() {
                    return;
                }
                let _ = device.send(Command::HostFunctionDone { id });
            }
            Err(error) => {
                device.broken(&error);
                own.state.lock().outstanding.clear();
                waits.clear();
            }
        }
        waits.retain(|(id, wait)| {
            let is_over = wait.is_over(device);
            if is_over {
                let _ = device.send(Command::HostFunctionDone { id: *id });
                look = soon;
            }
            !is_over
        });
    }
}

fn call(function: HostFn, argument: usize) {
    // SAFETY: the program gave this function to be called with this argument.
    unsafe { function(std::ptr::with_exposed_provenance_mut(argument)) }
}

fn call_back(function: StreamCallback, stream: Handle, argument: usize) {
    let argument = std::ptr::with_exposed_provenance_mut(argument);
    // SAFETY: as above.
    unsafe { function(stream, CuResult::SUCCESS, argument) }
}
