//! A program's way from running to stopped, with CRIU's images and its devices' state in a folder: what `dump` and
//! `migrate` have in common. What becomes of the images is theirs.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hetckpt_archive::manifest::{CarriedFile, Clocks, Header, Index, Manifest};
use hetckpt_archive::writer::Source;
use hetckpt_cache::folder::CacheFolder;
use hetckpt_cache::place::cache_dir;
use hetckpt_criu::device_streams::DeviceStreams;
use hetckpt_criu::image_error::ImageError;
use hetckpt_criu::locate::Criu;
use hetckpt_criu::memory_sink::{MemorySink, Sizes};
use hetckpt_criu::page_server::ForCriu;
use hetckpt_criu::{eventfds, needs, page_server, pending_signals, rewrite, run};
use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;
use hetckpt_report::{quantity, remark};
use hetckpt_ring::failure_code::Code;
use hetckpt_ring::message::GO_AHEAD_ENV;
use hetckpt_state::names::memory_file;
use hetckpt_supervise::interrupting::{Interrupting, ensure_not_interrupted};
use hetckpt_supervise::namespaces::{self, clocks};
use hetckpt_supervise::server_client::{self, Hold};
use hetckpt_supervise::signals::HeldSignals;
use hetckpt_supervise::stopped_tree::{self, StoppedTree};
use hetckpt_supervise::target::Target;

use crate::adaptation::Outside;
use crate::carried::choice::Bundle;
use crate::carried::pack::Packing;
use crate::folder_error::FolderError;
use crate::parent::Parent;
use crate::snapshot_files::{self, Origin};
use crate::{check, not_kept, obstacles, server_access, uprobes};

/// What a capture is done with.
pub struct Parts {
    /// The installation, with the plugin.
    pub installation: Installation,
    /// CRIU.
    pub criu: Criu,
}

impl Parts {
    /// Finds them.
    pub fn find() -> Result<Self, Failure> {
        let installation = Installation::find()?;
        let criu = Criu::find()?;
        installation.require(installation.plugin_folder.join("hetgpu_plugin.so"))?;
        Ok(Self { installation, criu })
    }
}

/// What to capture.
pub struct Request<'a> {
    /// The program.
    pub target: &'a Target,
    /// What with.
    pub parts: &'a Parts,
    /// Folder that takes the images.
    pub images: &'a Path,
    /// What the guardian is to go by.
    pub guarded: stopped_tree::Output<'a>,
    /// Longest time to wait for kernels to stop, in seconds.
    pub pause_timeout: u32,
    /// Files to carry.
    pub bundle: Bundle,
    /// The program runs on as soon as all but device memory is captured: that is written as it was.
    pub live: bool,
    /// The archive that the new one borrows from, if it is to be kept beside it.
    pub parent: Option<&'a Parent>,
    /// Connections to take along.
    pub outside: Outside,
    /// Those that it was asked to take, without what [`crate::inner_connections`] adds.
    pub asked: Outside,
}

impl Request<'_> {
    /// What an archive of the images, of device memory that was `streamed`, and of `carried` files says; without
    /// members.
    fn manifest(&self, streamed: Sizes, carried: Vec<CarriedFile>) -> Result<Manifest, Failure> {
        snapshot_files::manifest(self.images, self.origin(streamed), carried).map_err(cannot_read)
    }

    /// What is known before the program is stopped.
    pub fn header(&self) -> Header {
        snapshot_files::header(self.origin(Sizes::new()))
    }

    fn origin(&self, streamed: Sizes) -> Origin {
        Origin {
            root_pid: self.target.pid,
            command: self.target.command.clone(),
            stdio: self.target.stdio.clone(),
            criu_version: self.parts.criu.version.clone(),
            created_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            clocks: clocks_to_keep(),
            streamed,
            borrows: self.parent.is_some(),
        }
    }
}

fn cannot_read(why: FolderError) -> Failure {
    Failure::new(Code::CriuDump, "the device state just written cannot be read").note(why.to_string())
}

/// How long each step took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// From the request to the last kernel's end.
    pub pause: Duration,
    /// The devices' state.
    pub capture: Duration,
    /// CRIU, that included, and taking memory as it comes.
    pub criu: Duration,
    /// From the request until the program ran on, if it did before its archive was complete.
    pub stopped: Option<Duration>,
}

/// A program, all of it in the folder of images or on its way. It stands still, unless the capture was a live one; when
/// this is dropped it runs on.
pub struct Captured<'a> {
    tree: Option<StoppedTree<'a>>,
    holds: Vec<Hold>,
    /// What an archive of it says; without members.
    pub manifest: Manifest,
    /// Its files.
    pub sources: Vec<Source>,
    /// How long it took.
    pub times: Times,
    /// When its kernels were told to stop.
    pub stopping: Instant,
    /// What it has and a restore will not give back, a sentence each.
    pub not_kept: Vec<String>,
}

/// Stops the program and captures it. After a failure it runs on.
///
/// Files to carry go to `taker` before it is stopped, then memory, its own and its devices'; all else to the folder of
/// images.
pub fn capture<'a>(
    request: &Request<'a>,
    signals: &HeldSignals,
    taker: &mut dyn MemorySink,
) -> Result<Captured<'a>, Failure> {
    let (target, images) = (request.target, request.images);
    ensure_may_take_connections(request.outside)?;
    obstacles::look(&target.tree())?;
    let mut times = Times::default();
    // While the program still runs: this takes a while.
    let cache = cache_dir().map(CacheFolder::new);
    let mut packing = Packing::new(request.bundle, target.pid, request.parent, cache);
    packing.take_mapped_by(&target.tree(), taker)?;
    taker.settle()?;
    server_client::wait_for_starting(&target.tree())?;
    let mut holds = server_client::holds(&target.tree())?;
    server_client::ensure_outside(&holds, &target.tree())?;
    let mut tree = Some(StoppedTree::prepare(target, &request.guarded)?);
    let (mut stopping, mut dumping) = (Instant::now(), Instant::now());
    // CRIU takes a while until it is ready, and kernels run on meanwhile. Our own hold keeps the device paused after
    // the plugin has left, until the snapshot is safe.
    let begin = |taker: &mut dyn MemorySink| {
        let devices = device_streams(request, &mut holds, taker)?;
        server_access::grant(images, &holds)?;
        remark::progress("pausing kernels");
        stopping = Instant::now();
        times.pause = server_client::pause_all(&mut holds, request.pause_timeout)?;
        remark::detail(format!(
            "kernels stopped after {}",
            quantity::duration(stopping.elapsed())
        ));
        ensure_not_interrupted(signals, "the dump")?;
        remark::progress("dumping processes");
        dumping = Instant::now();
        Ok(devices)
    };
    let mut streamed = page_server::while_serving(images, begin, taker, |sockets| run_criu(request, sockets))?;
    times.criu = dumping.elapsed();
    if request.live {
        // They need not wait for what is yet to be looked up about the program itself.
        holds = going_on(holds, images)?;
    }
    // A tracer may have come since it was looked at.
    uprobes::ensure_none(&target.tree())?;
    let clocks = clocks_to_keep();
    let unreadable =
        |why: ImageError| Failure::new(Code::CriuDump, "the images just written cannot be read").note(why.to_string());
    eventfds::keep_semaphores(images, &target.tree()).map_err(unreadable)?;
    if let Some(mut tree) = tree.take_if(|_| request.live) {
        tree.go_on();
        times.stopped = Some(stopping.elapsed());
    }
    for hold in &mut holds {
        // A process that ended before it was frozen took its server along, and its connection tells no time.
        let last_us = hold.status().map_or(0, |status| status.last_capture_us);
        times.capture = times.capture.max(Duration::from_micros(last_us));
    }
    ensure_not_interrupted(signals, "the dump")?;

    if !nix::unistd::geteuid().is_root() {
        rewrite::attach_memfds(images).map_err(unreadable)?;
    }
    pending_signals::forget_continue(images).map_err(unreadable)?;
    let carried = finish_packing(packing, request, taker)?;
    let not_kept = not_kept::of(&target.tree());
    if request.live {
        ensure_way_back(request, &carried)?;
        remark::progress("writing device memory");
        let interrupting = Interrupting::new(signals);
        let gives_up = || interrupting.has_come();
        let written = holds.iter_mut().try_for_each(|hold| hold.write_kept(&gives_up));
        if let Some(failure) = interrupting.interrupted("the dump") {
            return Err(failure);
        }
        written?;
        streamed.extend(taker.devices_done(images)?);
    }
    let sources = snapshot_files::sources(images)
        .map_err(|why| Failure::new(Code::CannotWrite, "cannot read the images just written").note(why.to_string()))?;
    let mut manifest = request.manifest(streamed, carried)?;
    manifest.index.clocks = clocks;
    Ok(Captured {
        tree,
        holds,
        manifest,
        sources,
        times,
        stopping,
        not_kept,
    })
}

/// Makes sure that a restore would find what the images need.
fn ensure_way_back(request: &Request<'_>, carried: &[CarriedFile]) -> Result<(), Failure> {
    let index = Index {
        files: carried.to_vec(),
        ..Index::default()
    };
    let manifest = Manifest {
        header: request.header(),
        index,
    };
    check::require_way_back(request.images, &manifest, request.asked)
}

/// Lets the kernels of `holds` run on. Those are left out whose process has ended before it was dumped.
fn going_on(holds: Vec<Hold>, images: &Path) -> Result<Vec<Hold>, Failure> {
    let mut going_on = vec![];
    for mut hold in holds {
        let is_dumped = |pid: u32| images.join(format!("core-{pid}.img")).exists();
        match hold.resume() {
            Ok(()) => going_on.push(hold),
            Err(_) if hold.was_left() && !hold.app().is_some_and(is_dumped) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(going_on)
}

/// Fails where Linux lets nobody but root take TCP connections: a program's namespaces have users of their own, but not
/// networks.
fn ensure_may_take_connections(outside: Outside) -> Result<(), Failure> {
    match outside.tcp_established && !nix::unistd::geteuid().is_root() {
        true => Err(
            Failure::new(Code::TcpConnections, "only root can dump established TCP connections")
                .note("CRIU needs CAP_NET_ADMIN where the network is, which a user's own namespaces do not give")
                .help("dump the program as root, or when it has no connection"),
        ),
        false => Ok(()),
    }
}

/// Has device servers write memory to the taker's file, if it has one and all of them can; else gives pipes for it. Of
/// a server that is gone nothing will come: the pause finds out whether its process has ended, too.
fn device_streams(
    request: &Request<'_>,
    holds: &mut [Hold],
    taker: &mut dyn MemorySink,
) -> Result<DeviceStreams, Failure> {
    let mut served = vec![];
    for hold in holds {
        match hold.status_before_pause(request.pause_timeout) {
            Ok(status) => served.push((hold, status)),
            Err(failure) if failure.code == Code::NotStopped => return Err(failure),
            Err(_) => {}
        }
    }
    let can_all = served.iter().all(|(_, status)| status.writes_archives);
    let Some(file) = taker.file()?.filter(|_| can_all) else {
        return DeviceStreams::create(request.images, served.iter().map(|(_, status)| status.app_pid));
    };
    for (hold, status) in served {
        let (member, _) = snapshot_files::member(&memory_file(status.app_pid));
        let known = request.parent.filter(|_| status.borrows_pieces).map(Parent::known);
        match hold.write_memory_to(file, &member, known, request.live && status.keeps_memory) {
            Err(_) if hold.was_left() => {}
            told => told?,
        }
    }
    Ok(DeviceStreams::default())
}

/// What the program's clocks show, where CRIU does not note that: this process is where the program is.
fn clocks_to_keep() -> Option<Clocks> {
    let is_kept_by_criu = nix::unistd::geteuid().is_root() || !namespaces::is_inside();
    (!is_kept_by_criu).then(clocks::now)?.ok()
}

impl Captured<'_> {
    /// Ends the program, whose snapshot is safe, and waits a moment until its devices are free. What does not leave is
    /// remarked on.
    ///
    /// The guardian stays until this is dropped.
    pub fn end(&mut self) {
        if self.tree.as_mut().is_some_and(|tree| !tree.end()) {
            remark::note(format!(
                "process {} was killed but is not gone after two seconds",
                self.manifest.header.root_pid
            ));
        }
        let holds = std::mem::take(&mut self.holds);
        let stayed = holds.into_iter().map(Hold::release_gone).filter(|left| !left).count();
        if stayed > 0 {
            remark::note("a device server is still there after two seconds; the device may be free only later");
        }
    }
}

/// Completes what the archive carries by what CRIU's images need.
fn finish_packing(
    packing: Packing<'_>,
    request: &Request<'_>,
    taker: &mut dyn MemorySink,
) -> Result<Vec<CarriedFile>, Failure> {
    let needs = needs::read(request.images)
        .map_err(|why| Failure::new(Code::CriuDump, "the images just written cannot be read").note(why.to_string()))?;
    if !request.asked.tcp_established && !needs::are_inner(&needs.connections) {
        return Err(Failure::new(
            Code::TcpConnections,
            "the program has just connected to a process outside",
        )
        .help("dump it again, or take its TCP connections along: --tcp-established"));
    }
    packing.finish(request.images, &needs, taker)
}

/// Has CRIU dump the program; its processes' memory goes to one of the sockets.
fn run_criu(request: &Request<'_>, sockets: &ForCriu) -> Result<(), Failure> {
    let mut arguments: Vec<OsString> = ["--tree", &request.target.pid.to_string()].map(Into::into).to_vec();
    let plugin_folder = request.parts.installation.plugin_folder.clone();
    arguments.extend(["--libdir".into(), plugin_folder.into_os_string()]);
    arguments.extend(
        [
            "--leave-stopped",
            "--cpu-cap=ins",
            "--ghost-limit",
            "64M",
            "--file-locks",
            "--timeout",
        ]
        .map(OsString::from),
    );
    arguments.push(request.pause_timeout.max(10).to_string().into());
    if request.outside.tcp_established {
        // It works without a program, unlike the other method, and is undone without one (`tcp_lock`).
        arguments.extend(["--tcp-established", "--network-lock", "nftables"].map(OsString::from));
    }
    if request.outside.ext_unix_sk {
        arguments.push("--ext-unix-sk".into());
    }
    if request.target.is_shell_job {
        arguments.push("--shell-job".into());
    }
    if uprobes::have_been_in(&request.target.tree()) {
        arguments.push("--allow-uprobes".into());
    }
    arguments.extend(["--page-server", "--ps-socket", &sockets.pages.as_raw_fd().to_string()].map(OsString::from));
    // Its log tells what it calls itself, by which its network lock is undone (`tcp_lock`).
    arguments.push("-v4".into());
    let mut environment = vec![(GO_AHEAD_ENV, sockets.go_ahead.as_raw_fd().to_string().into())];
    if request.pause_timeout > 0 {
        // For a device server that turns up only now.
        environment.push(("HETCKPT_PAUSE_TIMEOUT", request.pause_timeout.to_string().into()));
    }
    run::run(
        &request.parts.criu,
        &run::Call {
            verb: "dump",
            images: request.images,
            are_streamed: false,
            work_folder: request.images,
            arguments: &arguments,
            environment: &environment,
            needs_terminal: false,
            starts_program: false,
            failure_code: Code::CriuDump,
        },
    )
    .map_err(with_missing_privileges)
}

/// CRIU says little where it has no privileges at all.
fn with_missing_privileges(failure: Failure) -> Failure {
    if nix::unistd::geteuid().is_root() || namespaces::is_inside() {
        return failure;
    }
    failure
        .note("CRIU needs root here: the program has no namespaces of its own")
        .help("start programs with `hetckpt run`, which makes namespaces for users who are not root, or dump as root")
}
