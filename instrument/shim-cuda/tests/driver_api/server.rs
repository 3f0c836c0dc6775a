//! A server that keeps device memory in a vector and knows one kernel: it does each command when it comes.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd};
use std::thread;
use std::time::Duration;

use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace};
use hetckpt_abi::cluster_query::ClusterFact;
use hetckpt_abi::image_object::{ImageObject, Resource};
use hetckpt_ring::command::{Command, Envelope, FillValue, LaunchCommand, ModuleId, Payload, Rows};
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::graph_part;
use hetckpt_ring::message::{Request, Response, VirtualDevice};
use hetckpt_ring::reply::{
    GlobalDescription, KernelDescription, KernelParam, ManagedVariable, ModuleDescription, Reply,
};
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, socket_path};
use hetckpt_ring::server_side::ServerSide;
use hetckpt_ring::version::{PROTOCOL_VERSION, Readable};

/// First device address.
const BASE: u64 = 0x2000_0000_0000;
/// Address of the module's variable.
const VARIABLE: u64 = BASE;
/// The variable in managed memory of modules whose text has `.managed`.
const MANAGED_VARIABLE: &str = "shared";
const MEMORY_BYTES: usize = 16 << 20;
/// A launch with this many blocks fails on the device.
pub const FAULTING_GRID: u32 = 13;
/// A launch with this many blocks kills the server.
pub const DEADLY_GRID: u32 = 66;
/// What a launch with this as its number adds is the blocks of its clusters in x, 0 if there are none.
pub const CLUSTER_SAYS_ITS_SIZE: u32 = 77;

/// An array with so many elements is more than the device makes.
pub const REFUSED_WIDTH: u64 = 801;
/// Asked about clusters of so many blocks, it says that it has none.
pub const UNKNOWN_CLUSTER: u32 = 7;

/// Serves one program to its end.
pub fn serve(pid: u32) {
    let path = socket_path(&ensure_runtime_dir().unwrap(), pid);
    let listener = listen(&path).unwrap();
    // SAFETY: the library passes the ready pipe as descriptor 3.
    let mut ready = unsafe { File::from_raw_fd(3) };
    ready.write_all(b"ready\n").unwrap();
    drop(ready);
    let mut socket = ControlSocket::new(listener.accept().unwrap().0);
    let (hello, fds) = socket.receive::<Request>().unwrap().unwrap();
    assert!(matches!(hello, Request::Hello { pid: said, .. } if said == pid));
    socket
        .send(
            &Response::Welcome {
                protocol: PROTOCOL_VERSION,
                devices: vec![device()],
            },
            &[],
        )
        .unwrap();
    let (mut consumer, side) = Consumer::open(fds[0].as_fd(), Readable::HERE).unwrap();
    let watched = side.clone();
    thread::spawn(move || {
        let end = socket.receive::<Request>();
        assert!(matches!(end, Ok(None)), "the application's connection is silent");
        let _ = std::fs::remove_file(path);
        drop(watched);
        std::process::exit(0);
    });
    let mut device = Device {
        memory: vec![0; MEMORY_BYTES],
        next: BASE + 4096,
        sizes: HashMap::new(),
        freed: vec![],
        pinned: HashMap::new(),
        arrays: HashMap::new(),
        num_images: 0,
        wants_places: None,
        side,
        pid,
    };
    loop {
        while let Some(envelope) = consumer.take().unwrap() {
            device.act(envelope);
        }
        consumer.sleep(consumer.bell(), Some(Duration::from_secs(10)));
    }
}

fn device() -> VirtualDevice {
    let attributes = [
        (1, 1024),
        (2, 1024),
        (3, 1024),
        (4, 64),
        (5, i32::MAX),
        (6, 65535),
        (7, 65535),
        (8, 49152),
    ];
    let more = [
        (16, 4),
        (39, 2048),
        (51, 512),
        (75, 9),
        (81, 233_472),
        (82, 65536),
        (83, 1),
        (88, 1),
        (97, 232_448),
        (106, 32),
    ];
    VirtualDevice {
        name: "test device".to_owned(),
        uuid: [7; 16],
        total_bytes: MEMORY_BYTES as u64,
        attributes: attributes.into_iter().chain(more).collect(),
    }
}

fn description() -> ModuleDescription {
    ModuleDescription {
        kernels: vec![KernelDescription {
            name: "add".to_owned(),
            params: vec![KernelParam { offset: 0, size: 8 }, KernelParam { offset: 8, size: 4 }],
            static_shared_bytes: 64,
            local_bytes: 0,
            max_threads_per_block: 256,
            num_registers: 16,
            ptx_version: 80,
            refused: None,
        }],
        globals: vec![GlobalDescription {
            name: "variable".to_owned(),
            addr: VARIABLE,
            size_bytes: 4,
        }],
    }
}

struct Device {
    memory: Vec<u8>,
    next: u64,
    /// Allocations by address.
    sizes: HashMap<u64, u64>,
    /// What was freed, and is given out again to whoever wants as much next.
    freed: Vec<u64>,
    pinned: HashMap<u64, File>,
    /// Shapes of arrays, and each level's content, by number.
    arrays: HashMap<u64, (ArrayShape, Vec<Vec<u8>>)>,
    num_images: u64,
    /// A module with a variable in managed memory, and where the library has placed it.
    wants_places: Option<(ModuleId, Option<u64>)>,
    side: ServerSide,
    pid: u32,
}

impl Device {
    fn act(&mut self, envelope: Envelope) {
        let (result, reply) = self.run(envelope.command);
        match envelope.reply {
            Some(slot) => self.side.answer(slot, result, &reply).unwrap(),
            None if result != 0 => self.side.set_fault(result),
            None => {}
        }
    }

    fn description(&self, module: ModuleId) -> ModuleDescription {
        let mut description = description();
        if let Some((with, Some(addr))) = self.wants_places
            && with == module
        {
            description.globals.push(GlobalDescription {
                name: MANAGED_VARIABLE.to_owned(),
                addr,
                size_bytes: 8,
            });
        }
        description
    }

    fn allocate(&mut self, size_bytes: u64) -> Option<u64> {
        if let Some(place) = self.freed.iter().position(|addr| self.sizes[addr] == size_bytes) {
            return Some(self.freed.swap_remove(place));
        }
        let addr = self.next;
        if addr + size_bytes > BASE + MEMORY_BYTES as u64 {
            return None;
        }
        self.next += size_bytes.next_multiple_of(512);
        self.sizes.insert(addr, size_bytes);
        Some(addr)
    }

    fn run(&mut self, command: Command) -> (u32, Reply) {
        let reply = match command {
            Command::Malloc { size_bytes, .. } => match self.allocate(size_bytes) {
                Some(addr) => Reply::Address(addr),
                None => return (2, Reply::Nothing),
            },
            Command::Free { addr } | Command::FreeAsync { addr, .. } => {
                self.freed.push(addr);
                Reply::Nothing
            }
            Command::ModulePlace { module, name, addr } => {
                let (kept, place) = self.wants_places.as_mut().unwrap();
                assert!(*kept == module && name == MANAGED_VARIABLE);
                *place = Some(addr);
                Reply::Nothing
            }
            Command::ModuleLoadPlaced { module, .. } if self.wants_places == Some((module, None)) => {
                Reply::ManagedVariables(vec![ManagedVariable {
                    name: MANAGED_VARIABLE.to_owned(),
                    size_bytes: 8,
                }])
            }
            Command::ModuleLoadPlaced { module, .. } => {
                self.write(VARIABLE, &5_u32.to_le_bytes());
                let description_bytes = self.description(module).encode().unwrap().len() as u64;
                Reply::ModuleLoaded {
                    description_bytes,
                    log: String::new(),
                }
            }
            Command::ModuleDescribe { module, offset, chunk } => {
                let bytes = self.description(module).encode().unwrap();
                let start = offset as usize;
                self.side
                    .fill_chunk(chunk, 0, &bytes[start..start + chunk.length as usize])
                    .unwrap();
                Reply::Nothing
            }
            Command::ModuleData { module, data, .. } => {
                let image = self.take(data);
                if image.windows(8).any(|bytes| bytes == b".managed") {
                    self.wants_places = Some((module, None));
                }
                Reply::Nothing
            }
            Command::CopyIn { dst, data, .. } => {
                let bytes = self.take(data);
                self.scatter(dst, &bytes);
                Reply::Nothing
            }
            Command::CopyOut { src, chunk, .. } => {
                let bytes = self.gather(src);
                self.side.fill_chunk(chunk, 0, &bytes).unwrap();
                Reply::Nothing
            }
            Command::Copy {
                dst, src, src_pitch, ..
            } => {
                let bytes = self.gather(Rows {
                    addr: src,
                    pitch: src_pitch,
                    ..dst
                });
                self.scatter(dst, &bytes);
                Reply::Nothing
            }
            Command::Fill { dst, value, .. } => {
                let element = match value {
                    FillValue::U8(value) => vec![value],
                    FillValue::U16(value) => value.to_le_bytes().to_vec(),
                    FillValue::U32(value) => value.to_le_bytes().to_vec(),
                };
                let bytes = element.repeat((dst.width * dst.rows) as usize / element.len());
                self.scatter(dst, &bytes);
                Reply::Nothing
            }
            Command::Launch(launch) => return (self.launch(&launch), Reply::Nothing),
            Command::GraphPart { stream, steps, .. } => {
                let steps = graph_part::decode(&steps, stream).unwrap();
                let results = steps.into_iter().map(|step| self.run(step.command).0);
                return (results.max().unwrap_or(0), Reply::Nothing);
            }
            Command::HostFunction { id, .. } => {
                assert!(self.side.push_callback(id));
                Reply::Nothing
            }
            Command::RegisterHost { addr, fd, .. } => {
                let path = format!("/proc/{}/fd/{fd}", self.pid);
                self.pinned
                    .insert(addr, File::options().read(true).write(true).open(path).unwrap());
                Reply::Nothing
            }
            Command::EncodeTensorMap(map) => {
                let mut encoded = [0; 128];
                encoded[..8].copy_from_slice(&map.address.to_le_bytes());
                let (sizes, tile) = (map.sizes, map.tile);
                encoded[8..16].copy_from_slice(&[
                    map.data_type as u8,
                    map.rank as u8,
                    sizes[0] as u8,
                    sizes[1] as u8,
                    map.strides[0] as u8,
                    tile[0] as u8,
                    tile[1] as u8,
                    map.swizzle as u8,
                ]);
                Reply::TensorMap(Box::new(encoded))
            }
            Command::QueryClusters { query, .. } => {
                let blocks = query.shape.blocks_per_cluster();
                match query.wanted {
                    _ if blocks == UNKNOWN_CLUSTER => return (801, Reply::Nothing),
                    _ if blocks > 8 && !query.allows_non_portable => return (912, Reply::Nothing),
                    ClusterFact::MaxActive => Reply::Count(720 / blocks),
                    ClusterFact::MaxSize => Reply::Count(if query.allows_non_portable { 16 } else { 8 }),
                }
            }
            Command::ArrayCreate { array, shape, .. } => {
                if shape.size[0] == REFUSED_WIDTH {
                    return (801, Reply::Nothing);
                }
                let levels = (0..shape.num_levels()).map(|level| shape.level(level).unwrap().bytes().unwrap());
                let levels = levels.map(|bytes| vec![0; bytes as usize]).collect();
                self.arrays.insert(array.0, (shape, levels));
                Reply::Nothing
            }
            Command::ArrayDestroy { array } => match self.arrays.remove(&array.0) {
                Some(_) => Reply::Nothing,
                None => return (1, Reply::Nothing),
            },
            Command::CopyBox { copy, .. } => {
                self.copy_box(&copy);
                Reply::Nothing
            }
            // Its value tells what it was made of.
            Command::ImageCreate { object, .. } => {
                self.num_images += 1;
                let of = match *object.resource() {
                    Resource::Array { level, .. } => u64::from(level),
                    Resource::Mipmapped { .. } => 100,
                    Resource::Linear { size_bytes, .. } => size_bytes,
                    Resource::Rows { height, .. } => height,
                };
                let filter = match &*object {
                    ImageObject::Texture { sampler, .. } => u64::from(sampler.filter_mode),
                    ImageObject::Surface { .. } => 9,
                };
                Reply::ImageObject(self.num_images << 32 | filter << 16 | of)
            }
            Command::EventElapsed { .. } => Reply::Milliseconds(1.5),
            Command::EventSynchronizeElapsed { .. } => Reply::Milliseconds(2.5),
            Command::EventQuery { .. } => return (600, Reply::Nothing),
            Command::Reset { .. } => {
                self.memory.fill(0);
                self.side.clear_fault();
                Reply::Nothing
            }
            _ => Reply::Nothing,
        };
        (0, reply)
    }

    /// `add(p, n)`: adds `n` to each of the grid's first words at `p`.
    fn launch(&mut self, launch: &LaunchCommand) -> u32 {
        match launch.shape.grid[0] {
            FAULTING_GRID => return 700,
            DEADLY_GRID => std::process::abort(),
            _ => {}
        }
        let addr = u64::from_le_bytes(launch.params[..8].try_into().unwrap());
        let n = match u32::from_le_bytes(launch.params[8..12].try_into().unwrap()) {
            CLUSTER_SAYS_ITS_SIZE => launch.shape.cluster[0].into(),
            n => n,
        };
        for i in 0..u64::from(launch.shape.grid[0] * launch.shape.block[0]) {
            let word = self.gather(Rows::range(addr + 4 * i, 4));
            let sum = u32::from_le_bytes(word.try_into().unwrap()).wrapping_add(n);
            self.write(addr + 4 * i, &sum.to_le_bytes());
        }
        0
    }

    fn copy_box(&mut self, copy: &BoxCopy) {
        for slice in 0..copy.size.slices {
            for row in 0..copy.size.rows {
                let width = copy.size.width_bytes as usize;
                let bytes = match self.row(&copy.src, slice, row) {
                    (None, addr) => self.gather(Rows::range(addr, width as u64)),
                    (Some((array, level)), at) => self.arrays[&array].1[level][at as usize..][..width].to_vec(),
                };
                match self.row(&copy.dst, slice, row) {
                    (None, addr) => self.write(addr, &bytes),
                    (Some((array, level)), at) => {
                        let content = &mut self.arrays.get_mut(&array).unwrap().1[level];
                        content[at as usize..][..width].copy_from_slice(&bytes);
                    }
                }
            }
        }
    }

    /// Where a row of a box begins: an address, or a place in a level of an array.
    fn row(&self, place: &BoxPlace, slice: u64, row: u64) -> (Option<(u64, usize)>, u64) {
        match *place {
            BoxPlace::Array {
                array,
                level,
                x_bytes,
                y,
                z,
            } => {
                let all = self.arrays[&array].0.level(level).unwrap();
                let at = ((z + slice) * all.rows + y + row) * all.width_bytes + x_bytes;
                (Some((array, level as usize)), at)
            }
            BoxPlace::Memory {
                addr,
                pitch,
                slice_rows,
            } => (None, addr + (slice * slice_rows + row) * pitch),
        }
    }

    fn take(&self, data: Payload) -> Vec<u8> {
        match data {
            Payload::Inline(bytes) => bytes,
            Payload::Staged(chunk) => {
                let bytes = self.side.chunk_bytes(chunk).unwrap().to_vec();
                self.side.release_chunk(chunk).unwrap();
                bytes
            }
        }
    }

    fn gather(&self, rows: Rows) -> Vec<u8> {
        let mut all = Vec::new();
        for row in 0..rows.rows {
            let (addr, length) = (rows.addr + row * rows.pitch, rows.width as usize);
            match self.pinned_at(addr) {
                Some((file, offset)) => {
                    let mut bytes = vec![0; length];
                    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, offset).unwrap();
                    all.extend(bytes);
                }
                None => all.extend(&self.memory[(addr - BASE) as usize..][..length]),
            }
        }
        all
    }

    fn scatter(&mut self, rows: Rows, bytes: &[u8]) {
        for (row, bytes) in (0..rows.rows).zip(bytes.chunks(rows.width as usize)) {
            self.write(rows.addr + row * rows.pitch, bytes);
        }
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) {
        match self.pinned_at(addr) {
            Some((file, offset)) => std::os::unix::fs::FileExt::write_all_at(file, bytes, offset).unwrap(),
            None => self.memory[(addr - BASE) as usize..][..bytes.len()].copy_from_slice(bytes),
        }
    }

    fn pinned_at(&self, addr: u64) -> Option<(&File, u64)> {
        let (base, file) = self
            .pinned
            .iter()
            .filter(|(base, _)| **base <= addr)
            .max_by_key(|(base, _)| **base)?;
        (addr - base < file.metadata().unwrap().len()).then_some((file, addr - base))
    }
}
