//! The worker threads, the queues and the launches between them.
//!
//! Of each queue the first launch that has not ended is active; workers take turns among the active ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::context::BlockMemory;
use super::launch::CpuLaunch;
use super::optimizer;
use super::slice;
use super::worker::{self, WorkerState};

/// A queue of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(u64);

/// The pool.
pub struct Pool {
    state: Mutex<State>,
    /// Workers wait here for something to do.
    work: Condvar,
    /// The slicer waits here while nothing runs.
    busy: Condvar,
    workers: Vec<WorkerState>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    next_turn: AtomicUsize,
    /// Takes launches whose kernel has turned hot.
    hot: Sender<Arc<CpuLaunch>>,
}

#[derive(Default)]
struct State {
    queues: HashMap<QueueId, VecDeque<Arc<CpuLaunch>>>,
    /// First launch of each queue that has one.
    active: Vec<(QueueId, Arc<CpuLaunch>)>,
    next_queue: u64,
    is_paused: bool,
    is_shut_down: bool,
}

impl Pool {
    /// Starts the threads.
    pub fn start(num_workers: usize) -> std::io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            busy: Condvar::new(),
            workers: (0..num_workers).map(|_| WorkerState::default()).collect(),
            threads: Mutex::default(),
            next_turn: AtomicUsize::new(0),
            hot: optimizer::start()?,
        });
        for i in 0..num_workers {
            let mine = pool.clone();
            let thread = thread::Builder::new()
                .name(format!("cpu-worker-{i}"))
                .spawn(move || mine.work(i))?;
            pool.threads.lock().push(thread);
        }
        let mine = pool.clone();
        let slicer = thread::Builder::new()
            .name("cpu-slicer".to_owned())
            .spawn(move || slice::run(&mine.workers, || mine.wait_busy()))?;
        pool.threads.lock().push(slicer);
        Ok(pool)
    }

    /// Number of workers.
    pub fn num_workers(&self) -> usize {
        self.workers.len()
    }

    /// Stops all launches without capturing them and ends the threads.
    pub fn shut_down(&self) {
        {
            let mut state = self.state.lock();
            state.is_shut_down = true;
            self.stop_all(&mut state);
        }
        self.work.notify_all();
        self.busy.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A worker that panicked has nothing left to do either.
            let _ = thread.join();
        }
    }

    /// A new queue.
    pub fn create_queue(&self) -> QueueId {
        let mut state = self.state.lock();
        state.next_queue += 1;
        let id = QueueId(state.next_queue);
        state.queues.insert(id, VecDeque::new());
        id
    }

    /// Forgets a queue once its launches have ended.
    pub fn drop_queue(&self, id: QueueId) {
        let mut state = self.state.lock();
        if state.queues.get(&id).is_some_and(VecDeque::is_empty) {
            state.queues.remove(&id);
        }
    }

    /// Puts a launch behind those of its queue.
    pub fn submit(&self, id: QueueId, launch: Arc<CpuLaunch>) {
        let mut state = self.state.lock();
        if state.is_paused || state.is_shut_down {
            launch.pause();
        }
        let queue = state.queues.entry(id).or_default();
        queue.push_back(launch.clone());
        if queue.len() == 1 {
            state.active.push((id, launch));
            self.settle_stopped(&mut state);
            drop(state);
            self.work.notify_all();
            self.busy.notify_one();
        }
    }

    /// Tells every launch to stop.
    pub fn request_pause(&self) {
        let mut state = self.state.lock();
        state.is_paused = true;
        self.stop_all(&mut state);
    }

    /// Later launches run again.
    pub fn end_pause(&self) {
        self.state.lock().is_paused = false;
    }

    fn stop_all(&self, state: &mut State) {
        for launch in state.queues.values().flatten() {
            launch.pause();
        }
        for (_, launch) in &state.active {
            self.workers.iter().for_each(|worker| worker.interrupt(launch));
        }
        self.settle_stopped(state);
    }

    /// Ends active launches that are to stop and of which no worker holds a block; those behind them follow.
    fn settle_stopped(&self, state: &mut State) {
        let mut i = 0;
        while let Some((queue, launch)) = state.active.get(i).cloned() {
            if launch.is_stopping() && launch.settle() {
                Self::advance_queue(state, queue, &launch);
            } else {
                i += 1;
            }
        }
    }

    /// Takes an ended launch out and makes the one behind it active.
    fn advance_queue(state: &mut State, id: QueueId, ended: &Arc<CpuLaunch>) {
        state.active.retain(|(_, launch)| !Arc::ptr_eq(launch, ended));
        let Some(queue) = state.queues.get_mut(&id) else { return };
        queue.pop_front();
        if let Some(next) = queue.front() {
            state.active.push((id, next.clone()));
        }
    }

    /// Waits while nothing runs; `None` once the pool is shut down.
    fn wait_busy(&self) -> Option<()> {
        let mut state = self.state.lock();
        while state.active.is_empty() && !state.is_shut_down {
            self.busy.wait(&mut state);
        }
        (!state.is_shut_down).then_some(())
    }

    fn work(&self, index: usize) {
        let mut memory = Box::<BlockMemory>::default();
        let wake = || {
            // Under the lock, so that nobody is between looking and waiting.
            drop(self.state.lock());
            self.work.notify_all();
        };
        while let Some((queue, launch)) = self.next_launch() {
            let began = Instant::now();
            worker::run(&launch, &self.workers[index], &mut memory, self.workers.len(), &wake);
            if launch.kernel().is_some_and(|kernel| kernel.count_run(began.elapsed())) {
                // Without the thread, it stays as it is.
                let _ = self.hot.send(launch.clone());
            }
            if launch.is_stopping() {
                // A failure must reach the workers that run other blocks of the launch.
                self.workers.iter().for_each(|worker| worker.interrupt(&launch));
            }
            if launch.settle() {
                let mut state = self.state.lock();
                Self::advance_queue(&mut state, queue, &launch);
                self.settle_stopped(&mut state);
                drop(state);
                self.work.notify_all();
            }
        }
    }

    /// The next active launch, in turn, that has blocks to give out.
    fn next_launch(&self) -> Option<(QueueId, Arc<CpuLaunch>)> {
        let mut state = self.state.lock();
        loop {
            if state.is_shut_down {
                return None;
            }
            let count = state.active.len();
            let turn = self.next_turn.fetch_add(1, Ordering::Relaxed);
            let found = (0..count)
                .map(|i| &state.active[(turn.wrapping_add(i)) % count])
                .find(|(_, launch)| !launch.is_stopping() && launch.work.lock().has_task());
            if let Some(found) = found {
                return Some(found.clone());
            }
            self.work.wait(&mut state);
        }
    }
}
