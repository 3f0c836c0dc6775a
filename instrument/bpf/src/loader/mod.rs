//! Loading the programs into Linux, putting probes on libraries, and reading what was counted.

mod elf;
mod libraries;
mod permission;
mod read;
mod skeleton;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, UprobeMultiOpts, UprobeOpts};

use hetckpt_bpf::boundary;
use hetckpt_bpf::description::{Class, Description};
use hetckpt_bpf::function_table::describe;
use hetckpt_bpf::measured::{Library, Measured};
use hetckpt_bpf::protocol::Said;

use self::libraries::Found;

use skeleton::{TraceSkel, TraceSkelBuilder};

/// Any process: which of them count is looked up in the map `traced`.
const ANY_PROCESS: i32 = -1;

/// Where libbpf keeps what it has opened.
pub struct Storage(MaybeUninit<OpenObject>);

impl Storage {
    /// Empty.
    pub fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
}

/// What is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This process and its children, those of later too.
    Process(u32),
    /// Children that this process starts from now on. It makes no driver call itself.
    ChildrenOf(u32),
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such process.
    #[error("the process has ended")]
    Gone,
    /// Process ids here are not those that eBPF programs see.
    #[error("process ids here are those of a namespace, which eBPF programs do not see")]
    OtherIds,
    /// Linux does not take the programs.
    #[error("Linux does not take the eBPF programs: {0}")]
    Load(libbpf_rs::Error),
    /// Linux does not follow processes.
    #[error("Linux does not tell of new processes: {0}")]
    Follow(libbpf_rs::Error),
    /// A library cannot have probes.
    #[error("Linux puts no probes on {path}: {cause}")]
    Attach {
        /// The library.
        path: String,
        /// Why.
        cause: libbpf_rs::Error,
    },
}

impl Refusal {
    /// With what is missing.
    pub fn said(&self) -> Said {
        Said::Refused {
            message: self.to_string(),
            missing: permission::missing(),
        }
    }
}

/// Where a library gets probes, and with which cookies.
#[derive(Debug, Default)]
struct Places {
    offsets: Vec<usize>,
    cookies: Vec<u64>,
}

/// A function with a probe.
struct Probed {
    symbol: String,
    library: usize,
    description: Description,
}

/// A trace that goes on.
pub struct Trace<'o> {
    skeleton: TraceSkel<'o>,
    scope: Scope,
    links: Vec<Link>,
    /// What has probes, and in which process.
    attached: HashSet<(libraries::Identity, i32)>,
    places: HashMap<libraries::Identity, Rc<Places>>,
    libraries: Vec<Library>,
    functions: Vec<Probed>,
    /// Linux has no links of many probes.
    one_by_one: bool,
    remarks: BTreeSet<String>,
    has_started: bool,
}

impl<'o> Trace<'o> {
    /// Loads the programs, follows what is in `scope`, and puts probes on `libraries` and those that programs are
    /// likely to load.
    pub fn start(storage: &'o mut Storage, scope: Scope, libraries: &[PathBuf]) -> Result<Self, Refusal> {
        // libbpf would write to stderr what is told by a refusal.
        libbpf_rs::set_print(None);
        if !permission::has_global_ids() {
            return Err(Refusal::OtherIds);
        }
        let open = TraceSkelBuilder::default()
            .open(&mut storage.0)
            .map_err(Refusal::Load)?;
        let mut trace = Self {
            skeleton: open.load().map_err(Refusal::Load)?,
            scope,
            links: vec![],
            attached: HashSet::new(),
            places: HashMap::new(),
            libraries: vec![],
            functions: vec![],
            one_by_one: false,
            remarks: BTreeSet::new(),
            has_started: false,
        };
        trace.follow()?;
        match scope {
            // What it starts is to have probes before it makes its first call.
            Scope::ChildrenOf(_) => {
                for found in libraries::likely(libraries) {
                    trace.attach(&found, ANY_PROCESS, true)?;
                }
            }
            Scope::Process(pid) => {
                let process = trace.probed_process(pid);
                for found in libraries::mapped_by(pid).ok_or(Refusal::Gone)? {
                    trace.attach(&found, process, true)?;
                }
            }
        }
        Ok(trace)
    }

    fn follow(&mut self) -> Result<(), Refusal> {
        let programs = &self.skeleton.progs;
        for program in [&programs.follow_child, &programs.forget_thread, &programs.forget_calls] {
            self.links.push(program.attach().map_err(Refusal::Follow)?);
        }
        let (Scope::Process(pid) | Scope::ChildrenOf(pid)) = self.scope;
        let mut all = vec![pid];
        if let Scope::Process(_) = self.scope {
            all.extend(libraries::descendants(pid));
        }
        for pid in all {
            let traced = &self.skeleton.maps.traced;
            traced
                .update(&pid.to_ne_bytes(), &0u64.to_ne_bytes(), MapFlags::ANY)
                .map_err(Refusal::Follow)?;
        }
        Ok(())
    }

    /// Puts probes on what the traced processes have mapped since the last time. True if there was something new.
    pub fn look_for_libraries(&mut self) -> bool {
        let mut has_news = false;
        for pid in self.traced() {
            let process = self.probed_process(pid);
            for found in libraries::mapped_by(pid).unwrap_or_default() {
                has_news |= !self.attached.contains(&(found.identity, process));
                if let Err(refusal) = self.attach(&found, process, false) {
                    self.remarks.insert(refusal.to_string());
                }
            }
            self.has_started |= self.scope == Scope::Process(pid) || self.scope != Scope::ChildrenOf(pid);
        }
        has_news
    }

    fn traced(&self) -> Vec<u32> {
        let keys = self.skeleton.maps.traced.keys();
        keys.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .collect()
    }

    /// True if all that was to be traced has ended.
    pub fn has_ended(&self) -> bool {
        match self.scope {
            Scope::Process(_) => self.traced().is_empty(),
            Scope::ChildrenOf(pid) => self.has_started && self.traced().iter().all(|&other| other == pid),
        }
    }

    /// What was counted in `time`.
    pub fn measured(&self, time: Duration) -> Measured {
        let mut measured = read::all(&self.skeleton, &self.functions, &self.libraries);
        measured.seconds = time.as_secs_f64();
        measured.libraries.clone_from(&self.libraries);
        measured.remarks = self.remarks.iter().cloned().collect();
        measured
    }

    /// In which process `pid`'s libraries get probes. A probe on what others use makes these slower: so in this one
    /// alone where that is possible, and where no call is missed by it. Links of one probe would be of one thread.
    fn probed_process(&self, pid: u32) -> i32 {
        match self.scope {
            Scope::Process(_) if !self.one_by_one && permission::filters_processes() => {
                i32::try_from(pid).unwrap_or(ANY_PROCESS)
            }
            _ => ANY_PROCESS,
        }
    }

    fn attach(&mut self, found: &Found, process: i32, from_the_start: bool) -> Result<(), Refusal> {
        if !self.attached.insert((found.identity, process)) {
            return Ok(());
        }
        let places = match self.places.get(&found.identity) {
            Some(places) => Rc::clone(places),
            None => {
                let places = Rc::new(self.number(found, from_the_start));
                self.places.insert(found.identity, Rc::clone(&places));
                places
            }
        };
        if places.offsets.is_empty() {
            return Ok(());
        }
        self.put_probes(&found.path, process, &places)
            .map_err(|cause| Refusal::Attach {
                path: found.name.display().to_string(),
                cause,
            })
    }

    /// Gives numbers to the functions of a library.
    fn number(&mut self, found: &Found, from_the_start: bool) -> Places {
        let mut places = Places::default();
        let Some(prefix) = boundary::prefix_of(&found.name) else {
            return places;
        };
        let entries = match elf::entry_points(&found.path, prefix) {
            Ok(entries) => entries,
            Err(error) => {
                self.remarks.insert(format!("{}: {error}", found.name.display()));
                return places;
            }
        };
        let library = self.libraries.len();
        for (offset, symbol) in entries {
            let description = describe(&symbol);
            let Ok(index) = u16::try_from(self.functions.len()) else {
                self.remarks
                    .insert("there are more functions than can be told apart".to_owned());
                break;
            };
            places.offsets.push(offset);
            places.cookies.push(description.cookie(index, &symbol));
            self.functions.push(Probed {
                symbol,
                library,
                description,
            });
        }
        self.libraries.push(Library {
            path: found.name.display().to_string(),
            functions: places.offsets.len(),
            from_the_start,
        });
        places
    }

    /// Probes for returns come first: a call whose begin is seen is also to be seen to end.
    fn put_probes(&mut self, path: &Path, process: i32, places: &Places) -> Result<(), libbpf_rs::Error> {
        let programs = &self.skeleton.progs;
        if !self.one_by_one {
            let mut attached = vec![];
            for (program, retprobe) in [(&programs.end_many, true), (&programs.begin_many, false)] {
                let options = UprobeMultiOpts {
                    offsets: places.offsets.clone(),
                    cookies: places.cookies.clone(),
                    retprobe,
                    ..Default::default()
                };
                attached.push(program.attach_uprobe_multi_with_opts(process, path, "", options));
            }
            match attached.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(links) => {
                    self.links.extend(links);
                    return Ok(());
                }
                // Linux before 6.6 knows no such links. Each of the others is a descriptor.
                Err(_) => {
                    self.one_by_one = true;
                    permission::allow_many_descriptors();
                }
            }
        }
        // Each takes Linux many milliseconds.
        self.remarks
            .insert("Linux before 6.6 is slow with probes: only functions whose work is known have some".to_owned());
        let all = places.offsets.iter().zip(&places.cookies);
        for (&offset, &cookie) in all.filter(|&(_, &cookie)| Class::is_known_by(cookie)) {
            for (program, retprobe) in [(&programs.end_one, true), (&programs.begin_one, false)] {
                let options = UprobeOpts {
                    cookie,
                    retprobe,
                    ..Default::default()
                };
                self.links
                    .push(program.attach_uprobe_with_opts(ANY_PROCESS, path, offset, options)?);
            }
        }
        Ok(())
    }
}
