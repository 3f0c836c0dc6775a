//! An application and its server in one process, over a real ring.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

pub mod fake_device;
pub mod fake_graph;
pub mod fixtures;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fake_device::{FakeDevice, Shared};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_ring::app_memory::{PINNED_NAME, open_pidfd};
use hetckpt_ring::command::*;
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::error::RingError;
use hetckpt_ring::graph_part::{self, Step};
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::producer::{PendingReply, Producer};
use hetckpt_ring::reply::{ModuleDescription, Reply};
use hetckpt_ring::version::Readable;
use hetckpt_ring::virtual_gpu::VirtualGpu;
use hetckpt_server::capture::Commands;
use hetckpt_server::choose_device::{Chosen, DeviceChoice};
use hetckpt_server::control::Control;
use hetckpt_server::error::ServerError;
use hetckpt_server::generate::Generator;
use hetckpt_server::own_files::{OwnFiles, SocketFile};
use hetckpt_server::session::Session;
use hetckpt_server::state_files::StateFiles;
use hetckpt_server::state_output::Folder;
use hetckpt_server::{capture, pause, reader, restore, virtual_device};
use hetckpt_state::process::ProcessState;
use nix::sys::memfd::{MFdFlags, memfd_create};

const PID: u32 = 4242;
pub const PTX: &str = include_str!("../data/count.ptx");

pub struct App {
    pub producer: Producer,
    pub ring: OwnedFd,
}

pub struct Server {
    pub session: Arc<Session>,
    pub device: Arc<Shared>,
}

fn chosen(shared: Shared) -> (Chosen, Arc<Shared>) {
    let shared = Arc::new(shared);
    (
        Chosen {
            device: Arc::new(FakeDevice(Arc::clone(&shared))),
            generator: Generator::Cpu,
        },
        shared,
    )
}

/// A launch of a module's kernel.
fn count(module: ModuleId, stream: StreamId, out: u64, shape: LaunchShape, times: u32) -> Command {
    let mut params = out.to_le_bytes().to_vec();
    params.extend_from_slice(&times.to_le_bytes());
    Command::Launch(LaunchCommand {
        stream,
        kernel: KernelId { module, index: 0 },
        shape,
        params: params.into(),
    })
}

impl Server {
    fn connect(self, ring: &OwnedFd) -> Self {
        let (consumer, side) = Consumer::open(ring.as_fd(), self.session.readable_rings).unwrap();
        self.session.side.set(side).map_err(drop).unwrap();
        pause::watch_cuts(&self.session).unwrap();
        reader::start(&self.session, consumer).unwrap();
        self
    }

    /// Waits until the device has made `n` additions.
    pub fn wait_additions(&self, n: u64) {
        while self.device.additions.load(Ordering::SeqCst) < n {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn pause(&self) {
        pause::pause(&self.session, 1, None).unwrap();
    }

    pub fn release(&self) {
        pause::release(&self.session, 1);
    }

    pub fn capture(&self, dir: &Path) {
        self.try_capture(dir).unwrap();
    }

    pub fn try_capture(&self, dir: &Path) -> Result<(), ServerError> {
        let fd = OwnedFd::from(std::fs::File::open(dir).unwrap());
        capture::capture(&self.session, &Folder::new(fd, None), Commands::TakenIn).map(drop)
    }

    /// A new server from the files in `dir`, attached to the application.
    pub fn restore(dir: &Path, app: &App) -> Self {
        Self::restore_on(dir, app, Shared::new(false))
    }

    /// Has it answer requests on a socket in `dir`; gives a connection.
    pub fn serve(self, dir: &Path) -> ControlSocket {
        let path = dir.join("socket");
        let listener = listen(&path).unwrap();
        let files = OwnFiles {
            socket: SocketFile::new(path.clone()),
            log: dir.join("log"),
        };
        let session = self.session;
        let control = Arc::new(Control::new(session, DeviceChoice::Auto, listener, files, true));
        std::thread::spawn(move || control.serve());
        ControlSocket::connect(&path).unwrap()
    }

    /// A server from the files in `dir` that waits for its application.
    pub fn rebuild(dir: &Path, shared: Shared) -> Result<Self, ServerError> {
        Self::rebuild_from(dir, shared, Readable::HERE, |_| {})
    }

    /// The same from a state that has been changed, by a server that reads these versions of the ring.
    pub fn rebuild_from(
        dir: &Path,
        shared: Shared,
        readable_rings: Readable,
        change: impl FnOnce(&mut ProcessState),
    ) -> Result<Self, ServerError> {
        let files = StateFiles::open(dir, PID)?;
        let mut state = restore::read_state(&files, readable_rings)?;
        change(&mut state);
        let (chosen, device) = chosen(shared);
        let mut session = restore::restore(&files, state, chosen)?;
        if let Some(session) = Arc::get_mut(&mut session) {
            session.readable_rings = readable_rings;
        }
        Ok(Self { session, device })
    }

    /// Attaches the application that has this ring, and goes on.
    pub fn go_on(self, ring: &OwnedFd) -> Self {
        let server = self.connect(ring);
        pause::go_on(&server.session);
        server
    }

    /// The same on a device of another nature.
    pub fn restore_on(dir: &Path, app: &App, shared: Shared) -> Self {
        Self::rebuild(dir, shared).unwrap().go_on(&app.ring)
    }
}

pub fn start() -> (App, Server) {
    start_with_deadline(Duration::from_secs(60))
}

/// A server whose device stops of its own accord after `slice` additions, and else never.
pub fn start_blind(slice: u64) -> (App, Server) {
    start_on(Shared::blind(slice), Duration::from_secs(60))
}

/// A server whose device has launches that a pause can as well wait for.
pub fn start_quick() -> (App, Server) {
    start_on(Shared::quick(), Duration::from_secs(60))
}

/// A server whose device places variables of machine code from `addr` on.
pub fn start_with_variables_at(addr: u64) -> (App, Server) {
    start_on(Shared::with_variables_at(addr), Duration::from_secs(60))
}

/// A server whose device has arrays, and counts texture and surface objects from `first`.
pub fn start_with_arrays(first: u64) -> (App, Server) {
    start_on(Shared::with_arrays(first), Duration::from_secs(60))
}

/// A server whose kernels have so long to stop.
pub fn start_with_deadline(pause_deadline: Duration) -> (App, Server) {
    start_on(Shared::new(false), pause_deadline)
}

/// A server whose device has registers for blocks of so many threads, of a probed and of an original kernel.
pub fn start_with_registers(probed: u32, original: u32) -> (App, Server) {
    start_on(Shared::with_registers(probed, original), Duration::from_secs(60))
}

/// The same, where code is loaded only while nothing runs.
pub fn start_with_registers_loading_alone(probed: u32, original: u32) -> (App, Server) {
    let shared = Shared::with_registers_loading_alone(probed, original);
    start_on(shared, Duration::from_secs(60))
}

/// A server whose device runs only what has PTX.
pub fn start_without_machine_code() -> (App, Server) {
    start_on(Shared::without_machine_code(), Duration::from_secs(60))
}

fn start_on(shared: Shared, pause_deadline: Duration) -> (App, Server) {
    let (ring, memory) = Producer::create().unwrap();
    let producer = Producer::new(memory, Box::new(|| true));
    let (chosen, device) = chosen(shared);
    let description = chosen.device.describe();
    let virtual_device = virtual_device::of_device(&description, true, VirtualGpu::default());
    let session = Session::new(PID, chosen.device, chosen.generator, virtual_device);
    let session = Arc::new(Session {
        pause_deadline,
        ..session
    });
    let server = Server { session, device }.connect(&ring);
    (App { producer, ring }, server)
}

impl App {
    /// A page of pinned memory.
    pub fn pinned(&self) -> OwnedFd {
        let memfd = memfd_create(PINNED_NAME, MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&memfd, 4096).unwrap();
        memfd
    }

    /// Sends a request that goes with its ring and a pidfd.
    pub fn attach(&self, socket: &mut ControlSocket, request: &Request) -> Result<Response, RingError> {
        let pidfd = open_pidfd(std::process::id()).unwrap();
        socket.ask(request, &[self.ring.as_fd(), pidfd.as_fd()])
    }

    pub fn call(&self, command: Command) -> Reply {
        let answer = self.producer.call(command).unwrap();
        assert_eq!(answer.result, 0, "{answer:?}");
        answer.reply
    }

    /// Waits for the device, in a while.
    pub fn begin_synchronize(&self) -> PendingReply<'_> {
        let device = DeviceIndex::FIRST;
        self.producer.begin(Command::Synchronize { device }).unwrap()
    }

    pub fn send(&self, command: Command) {
        self.producer.send(command).unwrap();
    }

    pub fn load(&self) -> ModuleDescription {
        self.load_image(PTX.as_bytes())
    }

    pub fn load_image(&self, image: &[u8]) -> ModuleDescription {
        self.try_load(image).unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Loads an image, or gives the result and the words with which it is refused.
    pub fn try_load(&self, image: &[u8]) -> Result<ModuleDescription, (u32, String)> {
        self.try_load_as(ModuleId(1), image)
    }

    /// The same, as a module of another number.
    pub fn try_load_as(&self, module: ModuleId, image: &[u8]) -> Result<ModuleDescription, (u32, String)> {
        let data = self.producer.payload(image).unwrap();
        self.send(Command::ModuleData { module, part: 0, data });
        let answer = self
            .producer
            .call(Command::ModuleLoad {
                module,
                device: DeviceIndex::FIRST,
            })
            .unwrap();
        let Reply::ModuleLoaded { description_bytes, log } = answer.reply else {
            panic!()
        };
        if answer.result != 0 {
            return Err((answer.result, log));
        }
        Ok(self.describe(module, description_bytes))
    }

    /// What a loaded module holds; its description has so many bytes.
    pub fn describe(&self, module: ModuleId, description_bytes: u64) -> ModuleDescription {
        let chunk = self.producer.take_chunk().unwrap();
        let length = usize::try_from(description_bytes).unwrap();
        let command = Command::ModuleDescribe {
            module,
            offset: 0,
            chunk: chunk.first(length),
        };
        self.call(command);
        let mut bytes = vec![0; description_bytes as usize];
        chunk.read(0, &mut bytes);
        ModuleDescription::decode(&bytes).unwrap()
    }

    pub fn malloc(&self, size_bytes: u64) -> u64 {
        match self.call(Command::Malloc {
            size_bytes,
            device: DeviceIndex::FIRST,
        }) {
            Reply::Address(addr) => addr,
            other => panic!("{other:?}"),
        }
    }

    pub fn stream(&self, number: u64, non_blocking: bool) -> StreamId {
        let stream = StreamId(number);
        self.send(Command::StreamCreate {
            device: DeviceIndex::FIRST,
            stream,
            flags: StreamFlags {
                non_blocking,
                priority: 0,
            },
        });
        stream
    }

    pub fn count(&self, stream: StreamId, out: u64, blocks: u32, times: u32) {
        self.count_in(stream, out, [blocks, 2], times, false);
    }

    /// Launches a grid of blocks and threads a block.
    pub fn count_in(&self, stream: StreamId, out: u64, grid: [u32; 2], times: u32, cooperative: bool) {
        self.count_by(ModuleId(1), stream, out, grid, times, cooperative);
    }

    /// Launches the kernel of another module.
    pub fn count_by(
        &self,
        module: ModuleId,
        stream: StreamId,
        out: u64,
        [blocks, threads]: [u32; 2],
        times: u32,
        cooperative: bool,
    ) {
        let shape = LaunchShape {
            cooperative,
            ..LaunchShape::new([blocks, 1, 1], [threads, 1, 1])
        };
        self.send(count(module, stream, out, shape, times));
    }

    /// Launches a graph of one launch for each of `outs`, on as many blocks.
    pub fn count_in_graph(&self, stream: StreamId, outs: &[u64], blocks: u32, times: u32) {
        let shape = LaunchShape::new([blocks, 1, 1], [2, 1, 1]);
        let step = |(place, &out)| Step::in_row(count(ModuleId(1), stream, out, shape, times), place);
        let steps = outs.iter().enumerate().map(step);
        for (part, steps) in (0..).zip(graph_part::encode(steps).unwrap()) {
            let graph = GraphId(1);
            self.send(Command::GraphPart {
                stream,
                graph,
                part,
                steps,
            });
        }
    }

    pub fn fill(&self, stream: StreamId, addr: u64, words: u64, value: u32) {
        let dst = Rows::range(addr, words * 4);
        self.send(Command::Fill {
            stream,
            dst,
            value: FillValue::U32(value),
        });
    }

    pub fn copy(&self, stream: StreamId, dst: u64, src: u64, words: u64) {
        self.send(Command::Copy {
            stream,
            dst: Rows::range(dst, words * 4),
            src,
            src_pitch: words * 4,
        });
    }

    pub fn words(&self, stream: StreamId, addr: u64, words: usize) -> Vec<u32> {
        let chunk = self.producer.take_chunk().unwrap();
        let length = words * 4;
        let src = Rows::range(addr, length as u64);
        self.call(Command::CopyOut {
            stream,
            src,
            chunk: chunk.first(length),
        });
        let mut bytes = vec![0; words * 4];
        chunk.read(0, &mut bytes);
        bytes
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
            .collect()
    }
}
