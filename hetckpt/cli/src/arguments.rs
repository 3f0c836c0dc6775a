//! The command line.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use hetckpt_move::adaptation::{Adaptation, Outside};
use hetckpt_move::carried::choice::Bundle;
use hetckpt_move::carried::keeper::Keep;
use hetckpt_move::migration::handover::Address;
use hetckpt_move::migration::serve_options::Serve;
use hetckpt_move::migration::source;
use hetckpt_move::migration::tls::Files;
use hetckpt_move::snapshot::Given;
use hetckpt_move::{dump, restore};
use hetckpt_report::number;
use hetckpt_ring::question;
use hetckpt_ring::virtual_gpu::{VIRTUAL_GPU_ENV, VirtualGpu};
use hetckpt_store::location::is_url;
use hetckpt_supervise::hidden_verbs;
use hetckpt_supervise::namespaces::Choice;
use hetckpt_supervise::namespaces::init::Init;
use hetckpt_supervise::process_control::ProcessControl;
use hetckpt_supervise::stopped_tree::Guard;

use crate::store_arguments::{KeyFile, StoreVerb};

/// Checkpoint and restore GPU programs, in the middle of their kernels.
///
/// hetckpt runs unmodified CUDA and OpenCL programs on an NVIDIA GPU, an OpenCL device or the CPU, stops them at any
/// moment, stores process and device state in one archive, and resumes them on whatever device is there.
#[derive(Debug, Parser)]
#[command(name = "hetckpt", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not supported here. `run`, `restore`, `job` and `criu` \
    pass on the program's own status and use 125 for failures of their own, `run` 126 for \
    a program that cannot be started and 127 for one that is not there.\n\nEnvironment:\n  \
    HETCKPT_DEVICE         device to use where no --device is given (auto, cpu, cuda,\n                         cuda:N, opencl, opencl:PLATFORM[:DEVICE])\n  \
    HETCKPT_VIRTUAL_GPU    compute capability of the GPU that programs see where the device is no\n                         \
    NVIDIA GPU (`run --virtual-gpu`; jobs pass it on)\n  \
    HETCKPT_CRIU           the criu program (default: the one installed with hetckpt, else on PATH,\n                         \
    else in /usr/local/sbin, /usr/sbin, /sbin or /opt/criu/bin)\n  \
    HETCKPT_CACHE_DIR      where translated kernels and compressed files are kept, 2 GiB at most;\n                         \
    `off` keeps none (default: $XDG_CACHE_HOME/hetckpt, else ~/.cache/hetckpt)\n  \
    HETCKPT_RUNTIME_DIR    where device servers have their sockets and logs, `*app-PID.log`\n                         \
    (default: root /run/hetckpt, others $XDG_RUNTIME_DIR/hetckpt, in a\n                         \
    session /run/user/UID/hetckpt, else /tmp/hetckpt-UID, or where that is\n                         \
    another user's ~/.hetckpt-run)\n  \
    HETCKPT_TLS_CERT, HETCKPT_TLS_KEY, HETCKPT_TLS_CA\n                         \
    files for `migrate` and `serve`, where no --cert, --key, --ca is given\n  \
    HETCKPT_STORE          the snapshot store, where no --store is given\n  \
    HETCKPT_STORE_KEY      age key file for encrypted snapshots, where no --key-file is given\n  \
    HETCKPT_STORE_TIMEOUT  seconds that a store has for one request of at most 16 MiB (default: 300)\n  \
    HETCKPT_CLANG, HETCKPT_LIBCLC\n                         \
    the clang with which OpenCL programs are built (default: the one on PATH),\n                         \
    and its libclc, a file\n  \
    HETCKPT_LOG            how much device servers log: error, warn (default), info, debug, trace;\n                         \
    at warn and more the program's stderr tells, once each, which CUDA functions,\n                         \
    modules and kernels it asked for and did not get\n  \
    HETCKPT_MANAGED_MEMORY where managed memory lies while kernels run: device or host (default: device on\n                         \
    NVIDIA GPUs, where the program may have it so, else host)\n  \
    HETCKPT_PAUSE_TIMEOUT  seconds that kernels have to stop where a request sets no limit, as in\n                         \
    a plain `criu dump` (default: 5)\n  \
    HETCKPT_SILENCE_LIMIT  seconds for which a device server may do nothing while its state is written or\n                         \
    taken over, before the dump or the restore fails (default: 60)"
)]
pub struct Cli {
    /// Say more (on stderr).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program so that it can be dumped.
    ///
    /// The program runs in a session of its own. hetckpt answers its CUDA and OpenCL calls, instead of a driver. Its
    /// exit status is passed on, and so are the signals INT, TERM, HUP, USR1, USR2, QUIT and WINCH. If stdout or stderr
    /// is a terminal, the program gets a pipe that is copied to it, because a process that holds a terminal cannot be
    /// moved. If stdin is a terminal, the program gets /dev/null.
    ///
    /// CRIU needs privileges, which root has, and other users have in user namespaces. So, unless the user is root, the
    /// program runs in namespaces of its own (--namespaces). It has other process ids there than outside; all verbs
    /// take those outside. stdout and stderr are copied even if they are files, and files beyond stderr are not handed
    /// on. When the program ends, its processes are ended with it. If user namespaces are not allowed, the program runs
    /// without them, and hetckpt says so.
    ///
    /// CUPY_COMPILE_WITH_PTX=1 is set in its environment, unless it is set already: kernels that come as PTX run on
    /// every device and stop anywhere, machine code runs on the GPU that it is for, to its end. So are
    /// TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, to an assembler that keeps the PTX. PYTHONPATH gets a folder
    /// more, at its head, by which Numba links by the driver and not by nvJitLink.
    Run(Run),
    /// List programs that can be dumped.
    ///
    /// These are the user's own programs that have made a CUDA or OpenCL call. Root is shown other users' programs too.
    /// If HETCKPT_RUNTIME_DIR names a folder, only programs whose device servers have their sockets there are listed.
    Ps(Ps),
    /// Stop a program, wherever its kernels are, and store it in an archive.
    ///
    /// Kernels in flight stop at their next probe, well within a millisecond or so. The program stays stopped until the
    /// archive is written, flushed to disk and checked. Only then is it ended. If anything fails before that, the
    /// program runs on as if nothing had happened. It needs no room but for the archive.
    ///
    /// The archive also carries the program's file and the libraries it has loaded (--bundle), so that it can go on
    /// where they are missing or different. Other files, open or not yet opened, are not carried.
    Dump(Dump),
    /// Resume a program from an archive, or from a folder of images.
    ///
    /// A folder is one that `criu dump` with the plugin, or `unpack`, has left. It is read where it is and stays as it
    /// was.
    ///
    /// Without --detach, restore behaves like the program itself. Its output goes to restore's if the program wrote to
    /// a pipe or terminal, restore's exit status is the program's, and the signals that `run` passes on are passed on.
    /// If the program's stdin was a pipe, it becomes restore's stdin, or /dev/null if that is a terminal.
    ///
    /// restore first looks at all that `check` looks at. If something is missing that the snapshot needs, it refuses
    /// before it starts anything. If files that the archive carries are missing here, or have other content, they are
    /// laid out in a folder of their own in TMPDIR, and the program goes on with them. Nothing that is here is
    /// replaced. The folder is removed when the program has ended. The program stays in restore's cgroups.
    Restore(Restore),
    /// Run a program under a batch scheduler: it is stored when the job is preempted, and goes on when the job runs
    /// again.
    ///
    /// Put `hetckpt job --` before the command in a batch script, as the last command, by `exec`. The program runs as
    /// under `run`. When the scheduler wants the job's place (--on), the program is stopped in the middle of its
    /// kernels and stored in --store, the job is queued again, and this command ends with the exit code that the
    /// scheduler wants for that. When the job runs again, on whatever node and device, the program goes on from there.
    /// When the program ends, its exit code is kept and passed on, and the job's snapshots are removed. A job that is
    /// run again after that ends at once, with the same code.
    ///
    /// Slurm, HTCondor, PBS, LSF, Grid Engine, Flux and Kubernetes are known by the variables that they set
    /// (docs/schedulers.md). Elsewhere the job is named by --name, and exit code 75 says that it is to be run again.
    ///
    /// A cancelled job is not stored. With --every, a job that loses its device, its device server, its program or its
    /// node goes on from the last snapshot. If there is no time for a dump, the job is queued again and goes on from
    /// the last snapshot that is complete. If it has none, it begins anew, and says so.
    Job(hetckpt_job::options::Options),
    /// Move a program to another node: dump here, restore there.
    ///
    /// The target runs `hetckpt serve`. While the program still runs, the target is asked about process ids, the device
    /// and its free memory, room on disk, CRIU and the working folder; not about features of the device that kernels
    /// need. Then the program is stopped and sent, encrypted, without an archive in between. Its memory and its
    /// devices' memory are sent as they are dumped, past the disk. CRIU's other images, and the files that are sent
    /// with it, go by way of --scratch. The target flushes and verifies what it has received, looks at all that `check`
    /// looks at, and says so. Only then is the program ended here, and only after that is it started there.
    ///
    /// If anything fails before the target has said so, the program runs on here as if nothing had happened. From then
    /// on it is the target's. This command tells the target until it has heard; if this command is killed, a guardian
    /// does. A target that cannot restore the program keeps the archive, and the message says where. The program never
    /// runs on both nodes, and never on neither without an archive.
    ///
    /// From then on, what the program prints to pipes goes to files in the target's folder. `hetckpt run`, which
    /// started it here, ends with status 137, as after a dump.
    Migrate(Migrate),
    /// Take programs that other nodes move here (`hetckpt migrate`).
    ///
    /// Listens on the address that --listen names, and nowhere else. Whoever connects must show a certificate that the
    /// authority in --ca has signed. It can then start programs here with the rights of `serve`, so use an authority
    /// that signs for nothing else.
    ///
    /// Several programs are received, restored and looked after at a time. Each has files in --folder, called by a
    /// number. ID.json tells its state (prepared, released, starting, running, ended, failed). ID.hetsnap is its
    /// archive; it is removed when the program runs, unless --keep is given, and kept if the restore fails. ID.stdout
    /// and ID.stderr take what it prints where it had pipes. A remark on stderr tells of each step, and of the
    /// program's end with its exit status.
    ///
    /// serve may be ended or killed at any time. Programs that run, run on. Programs that are being received run on at
    /// their source. If serve is started again with the same folder, it goes on with the rest. (Under systemd:
    /// KillMode=process.)
    Serve(Serve),
    /// Pack the images of a plain `criu dump` into an archive.
    ///
    /// IMAGE_DIR is the folder that `criu dump -D IMAGE_DIR --libdir …/lib/criu` has filled: CRIU's images and the
    /// plugin's files. The archive is the one that `dump` would have written: `restore`, `inspect` and `unpack` take
    /// it. It is flushed to disk and checked before it gets its name. The folder stays as it was.
    ///
    /// A folder without a whole dump is refused, and so are links and folders inside it: no other file is read. CRIU's
    /// logs (*.log) and statistics (stats-*) are left out. Images that rest on an earlier dump (`--prev-images-dir`)
    /// cannot be packed.
    Pack(Pack),

    /// Make an archive that needs no other of one that borrows from earlier ones.
    ///
    /// `dump --parent` writes an archive that has only what has changed. The one that this command writes has all: the
    /// earlier ones may be removed then, and it can be stored, sent to another node and migrated from. Nothing of the
    /// old archives is changed, and every byte that is copied must have its hash.
    Merge(Merge),
    /// Unpack an archive into a folder that plain `criu restore` takes.
    ///
    /// The folder gets CRIU's images and the plugin's files: `criu restore -D IMAGE_DIR --libdir …/lib/criu` continues
    /// the program, and `pack` makes an archive of it again. Every file is checked against its hash. IMAGE_DIR must be
    /// new or empty. It gets mode 0700 and its files 0600, because they hold the program's memory. If the archive is
    /// damaged or the disk is full, nothing is left in it.
    Unpack(Unpack),
    /// Run CRIU itself, which then takes `--plugin hetgpu`.
    ///
    /// All arguments after the first `--` are CRIU's, as in `hetckpt criu -- dump --tree PID -D images --plugin
    /// hetgpu`. CRIU has no option `--plugin`. So `--plugin hetgpu` (or `--plugin=hetgpu`) is replaced by `--libdir`
    /// with the folder of hetckpt's plugin. If `--libdir` (`-L`) is given, it stays, and the plugin must lie there.
    /// Nothing else is changed; without `--plugin`, nothing at all. The plugin takes its settings from the environment:
    /// HETCKPT_DEVICE, HETCKPT_PAUSE_TIMEOUT, HETCKPT_SILENCE_LIMIT.
    ///
    /// hetckpt becomes CRIU: exit status, output and signals are CRIU's. It is the CRIU that the other verbs use
    /// (HETCKPT_CRIU, else PATH). Status 125 is a failure of hetckpt's own, before CRIU.
    ///
    /// The script `criu` that comes with hetckpt does the same. With it before CRIU on PATH, `criu dump --plugin hetgpu
    /// …` works as it stands. It does not take itself for CRIU.
    #[command(override_usage = "hetckpt criu -- [ARGUMENTS OF CRIU]...")]
    Criu(CriuOptions),
    /// Stop a program's kernels for a while, and say how quickly they stopped.
    ///
    /// The device is free of the program's kernels from the moment they have stopped until they are let go. The
    /// program's own threads run on until they wait for the device.
    Pause(Pause),
    /// Take a program off its device, and leave it where it is.
    ///
    /// Kernels stop where they are. Device memory and all that is queued go to host memory, or to a file (--to). The
    /// device is then free: no memory of it, and nothing of its driver, is held. The program itself stays as it is, and
    /// runs on until it needs the device: such calls wait. `hetckpt resume` lets it go on. Meanwhile it can be dumped,
    /// migrated and ended like any other.
    ///
    /// If anything fails, the program runs on as if nothing had happened.
    Suspend(Suspend),
    /// Let a suspended program go on, on whatever device of this node.
    ///
    /// Device memory goes back to a device, kernels are built for it and go on where they stopped. If that fails,
    /// because the device is in use or has too little memory, the program stays suspended.
    Resume(Resume),
    /// Say what a program's device server does: launches, copies, waits, allocations, and how long they take.
    ///
    /// Counts are from the server's start on; of a restored program, from the restore on. With --watch, those of the
    /// time since the last line, until the program ends or INT.
    ///
    /// launch: giving a kernel to the device, not how long it runs. copy in, copy out: between the program's memory and
    /// the device's. copy: between places that the server reaches by itself. wait: from when the program asks until it
    /// is answered, so kernels' time is in it. build: making code for the device. p50 and p99 come from a histogram in
    /// powers of two.
    Stats(Stats),
    /// Say which driver calls a program makes: how often, how long, with which kernels and how much memory.
    ///
    /// The program needs not run under hetckpt: calls are counted by probes (eBPF) on all functions that the CUDA,
    /// OpenCL, HIP and Level Zero libraries export. The program's children are counted with it. Prints a report when
    /// the program ends, when --for is over, or at INT or TERM. A call takes longer while it is traced, by a few
    /// microseconds. With CMD, and with --pid on Linux before 6.11, so do other programs' calls to the same libraries,
    /// which are not counted.
    ///
    /// With CMD, the program is started, all its calls are counted, and its exit status is passed on. The report
    /// follows its output on stdout. After --for, hetckpt waits for the program's end.
    ///
    /// Times in a function include what the probes cost. p50 and p99 come from a histogram in powers of two. The idle
    /// time is a lower bound: it counts from the return of a wait, if no queue then has work left that was given to it
    /// during the trace, to the next launch or copy. OpenCL queues are taken to be in order.
    ///
    /// Needs root, or CAP_BPF and CAP_PERFMON, in the machine's namespace of process ids. If it is not permitted, the
    /// exit status is 3.
    Trace(Trace),
    /// Show what an archive holds.
    Inspect(Inspect),
    /// Look after snapshots in a store: list, show, remove, prune and verify them.
    ///
    /// A store is a folder, which may be on a shared file system, or a place in an object store: s3://BUCKET/PATH,
    /// gs://BUCKET/PATH, az://CONTAINER/PATH, http(s)://HOST/PATH (WebDAV). Below it each job has a folder, named by
    /// the job's key, with its snapshots. A snapshot is named KEY/ID; its ID begins with the time when it was made
    /// (UTC). `dump -o URL/KEY` adds one, and `restore`, `check` and `inspect` take URL/KEY/ID, and URL/KEY for the
    /// latest.
    ///
    /// Credentials and settings come from the environment and nowhere else: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    /// AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP=true for plain HTTP; GOOGLE_SERVICE_ACCOUNT;
    /// AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY.
    #[command(subcommand)]
    Store(StoreVerb),
    /// List the devices of this machine.
    Devices(Devices),
    /// Say whether this machine can dump and restore, and what to do if not.
    ///
    /// Looks at CRIU and its version; at what `criu check` says of Linux; at privileges and ptrace; at the parts of the
    /// installation; at the devices that the device server finds; at the runtime directory, where programs and device
    /// servers meet; at the room for archives (in the current folder) and for what restores unpack (in TMPDIR); at the
    /// processor, whose features a program needs again if it is restored elsewhere. Run it as root, in the environment
    /// in which programs run.
    ///
    /// Prints a line for each: `ok`, `warning` (some programs, or some devices, are affected) or `problem`, then what
    /// was found, the code of the error that a dump or restore would give, and after `--` what to do. The exit status
    /// is 1 if there is a problem, else 0. If a check fails, the others are made all the same.
    ///
    /// With --pid it looks at a process that runs, instead: whether it was started under hetckpt; at drivers'
    /// libraries and device files in it and its children; at what CRIU would not dump, and what a restore would not
    /// give back; and, for a moment, at its driver calls, as `trace` does. Nothing is stopped.
    Doctor(Doctor),
    /// Say whether this machine can restore a snapshot, and what is missing.
    ///
    /// Starts nothing. Looks at the snapshot itself (every member is checked against its hash); at CRIU and its
    /// version; at the parts of the installation; at the device: whether the kernels can go on with its kind, whether
    /// it has the memory and takes blocks of their size, and, for an OpenCL device, whether it has the features that
    /// they need, such as double precision; at the processor, which must have all features that the program may have
    /// found where it started (this needs a snapshot of `hetckpt dump`, or of `criu dump --cpu-cap=ins`); at the
    /// process ids; at terminals and their numbers; at the files that the program had open or mapped: those that the
    /// archive carries may be missing or different, the others must be there with the same size, mode and build id; at
    /// its working folder; at the room for what a restore unpacks.
    ///
    /// Prints a line for each, as `doctor` does. The exit status is 1 if there is a problem, else 0. Files that change,
    /// or process ids that are taken after the check, can still make a restore fail; then nothing is started.
    Check(Check),
    /// Show a kernel at a stage of translation.
    Kernel(Kernel),
    /// Become the program to run (used by `run`).
    #[command(name = hidden_verbs::LAUNCH, hide = true)]
    Launch(Launch),
    /// Be process 1 of a job in namespaces of its own (used by `run`, `restore` and `check`).
    #[command(name = hidden_verbs::INIT, hide = true)]
    Init(Init),
    /// Let a program run on if a dump of it dies (used by `dump`).
    #[command(name = hidden_verbs::GUARD, hide = true)]
    Guard(Guard),
    /// Pass a scheduler's signal on to a job (used by `job`).
    #[command(name = hidden_verbs::SENTINEL, hide = true)]
    Sentinel(hetckpt_job::options::Sentinel),
    /// Control one process (used by the driver library).
    #[command(name = hidden_verbs::PROCESS, hide = true)]
    Process(ProcessControl),
    /// Remove carried files when nobody maps them any more (used by `restore`).
    #[command(name = hidden_verbs::KEEP, hide = true)]
    Keep(Keep),
}

impl Command {
    /// True if the result is to be JSON, and so a failure too.
    pub fn is_json(&self) -> bool {
        match self {
            Self::Ps(options) => options.json,
            Self::Dump(options) => options.json,
            Self::Migrate(options) => options.json,
            Self::Pack(Pack { new, .. }) | Self::Merge(Merge { new, .. }) => new.json,
            Self::Unpack(options) => options.json,
            Self::Pause(options) => options.json,
            Self::Suspend(options) => options.json,
            Self::Resume(options) => options.json,
            Self::Stats(options) => options.json,
            Self::Trace(options) => options.json,
            Self::Inspect(options) => options.json,
            Self::Store(verb) => verb.is_json(),
            Self::Devices(options) => options.json,
            Self::Doctor(options) => options.json,
            Self::Check(options) => options.json,
            _ => false,
        }
    }

    /// True if all that it does is to print something.
    pub fn only_tells(&self) -> bool {
        match self {
            Self::Store(verb) => verb.only_tells(),
            Self::Ps(_) | Self::Inspect(_) | Self::Devices(_) | Self::Doctor(_) | Self::Check(_) | Self::Kernel(_) => {
                true
            }
            _ => false,
        }
    }
}

/// `hetckpt run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Device to run on: auto (the first CUDA device, else the CPU), cpu, cuda
    /// (the first), cuda:N, opencl (the first of the first platform), opencl:PLATFORM, opencl:PLATFORM:DEVICE.
    #[arg(long, env = "HETCKPT_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// Compute capability of the GPU that the program sees where the device is no NVIDIA GPU: 7.5, 8.0, 8.6, 8.9, 9.0
    /// (default), 10.0, 10.3, 12.0 or 12.1. Of libraries it decides which of their kernels they use: most of NVIDIA's
    /// have PTX, without which nothing but a GPU runs a kernel, for 12.1 alone.
    #[arg(long, env = VIRTUAL_GPU_ENV, value_name = "CC")]
    pub virtual_gpu: Option<VirtualGpu>,

    /// Write the program's process id to this file.
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// Whether the program runs in namespaces of its own (of process ids and mounts; for other users than root also of
    /// users).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Choice::Auto)]
    pub namespaces: Choice,

    /// End when whoever started this ends.
    #[arg(long, hide = true)]
    pub end_with_starter: bool,

    /// Socket of the job that makes the checkpoints for which the program asks itself.
    #[arg(long, hide = true, value_name = "SOCKET")]
    pub job: Option<PathBuf>,

    /// The program and its arguments. All that follows the program is its own.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `hetckpt ps`.
#[derive(Debug, Args)]
pub struct Ps {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// Process to dump, with all its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// Archive to write; it appears under this name only when it is complete. URL is URL/KEY for a new snapshot of a
    /// job in a store (`hetckpt store`), or names an object that ends in .hetsnap. To an object store the archive is
    /// sent as it is written, and read back, and only then the program is ended. - is standard output, such as a pipe
    /// to a node where it is kept or restored: nothing lies on this node's disk but CRIU's small images, and nobody
    /// tells hetckpt whether the archive arrived. So this needs --leave-running or --end-unverified.
    #[arg(short, long, value_name = "FILE|URL|-")]
    pub output: PathBuf,

    /// End the program once standard output has taken the archive, wherever that goes. If it is lost on the way, so is
    /// the program.
    #[arg(long, conflicts_with = "leave_running")]
    pub end_unverified: bool,

    /// The key, where the archive goes to a store.
    #[command(flatten)]
    pub key: KeyFile,

    /// Replace a file that has the archive's name. Nothing but a regular file is replaced.
    #[arg(long)]
    pub force: bool,

    /// Store only what is not in FILE, an earlier archive of the program: of device memory the chunks of 4 MiB that
    /// have changed, of the program's own memory the MiB that have, and the files that go along if they are others.
    /// The new archive borrows the rest from that one, and from those that it borrows from itself. All of them must
    /// stay where they are, or move together if they lie in one folder, until `hetckpt merge` makes one of them.
    #[arg(long, value_name = "FILE")]
    pub parent: Option<PathBuf>,

    /// Let the program run on after the dump.
    #[arg(long)]
    pub leave_running: bool,

    /// Let the program run on as soon as CRIU has its memory, and write device memory, as it was then, while kernels go
    /// on. That needs room for device memory once more, in the GPU or, for the CPU device, the machine. Where there is
    /// none, on OpenCL devices, and for what is suspended, device memory is written first, as without this. Only for an
    /// archive in a file.
    #[arg(long, requires = "leave_running")]
    pub live: bool,

    /// Read the archive back from the disk, against its hashes, before the program is ended, and those that it borrows
    /// from. Without this, it is the system's word that all has been written that counts (docs/reliability.md).
    #[arg(long)]
    pub verify: bool,

    /// Longest time to wait for kernels to stop.
    #[arg(value_parser = number::whole, long, value_name = "SECONDS", default_value_t = 10)]
    pub pause_timeout: u32,

    /// Which of the files that the program maps (itself, hetckpt's driver library, its shared libraries) go into the
    /// archive, for machines that lack them or have others in their place.
    #[arg(long, value_enum, default_value_t = Bundle::All)]
    pub bundle: Bundle,

    /// What goes along of connections to processes outside.
    #[command(flatten)]
    pub outside: Outside,

    /// Print what was done and how long it took as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Dump {
    /// True if the archive goes to standard output.
    pub fn is_streamed(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    /// What does not go together with standard output, or only with it.
    fn check(&self) -> Result<(), &'static str> {
        let is_stored = self.output.to_str().is_some_and(is_url);
        let refused = match self.is_streamed() {
            false => vec![
                (
                    self.end_unverified,
                    "'--end-unverified' is for an archive on standard output ('-o -')",
                ),
                (
                    self.parent.is_some() && is_stored,
                    "'--parent' is for an archive in a file, not in a store",
                ),
                (
                    self.live && is_stored,
                    "'--live' is for an archive in a file, not in a store",
                ),
            ],
            true => vec![
                (
                    self.parent.is_some(),
                    "'--parent' is for an archive in a file, not on standard output",
                ),
                (
                    self.live,
                    "'--live' is for an archive in a file, not on standard output",
                ),
                (self.json, "'--json' prints to standard output, where the archive goes"),
                (self.verify, "'--verify' reads a file back, not standard output"),
                (self.force, "'--force' replaces a file, not standard output"),
                (
                    !self.leave_running && !self.end_unverified,
                    "nobody tells whether an archive on standard output arrives: let the program run on \
                     ('--leave-running'), or take the risk ('--end-unverified')",
                ),
                (
                    std::io::stdout().is_terminal(),
                    "an archive is not for a terminal: 'hetckpt dump -o - ... | ...'",
                ),
            ],
        };
        refused
            .into_iter()
            .find(|(is_refused, _)| *is_refused)
            .map_or(Ok(()), |(_, why)| Err(why))
    }

    /// What the dump is told, which is to write the file `path`.
    pub fn to_file<'a>(&'a self, path: &'a Path) -> dump::Options<'a> {
        self.to(dump::Output::File {
            path,
            force: self.force,
            reads_back: self.verify,
            parent: self.parent.as_deref(),
        })
    }

    /// What the dump is told, of which `output` is the place to write to.
    pub fn to<'a>(&self, output: dump::Output<'a>) -> dump::Options<'a> {
        dump::Options {
            output,
            leave_running: self.leave_running,
            live: self.live,
            pause_timeout: self.pause_timeout,
            bundle: self.bundle,
            outside: self.outside,
        }
    }
}

impl Cli {
    /// The command line, if its arguments go together.
    pub fn checked(self) -> Result<Self, clap::Error> {
        let Command::Dump(options) = &self.command else {
            return Ok(self);
        };
        match options.check() {
            Ok(()) => Ok(self),
            Err(why) => Err(Self::command().error(ErrorKind::ArgumentConflict, why)),
        }
    }
}

/// `hetckpt restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The archive, the folder of the images, or the URL of a snapshot in a store (URL/KEY/ID, URL/KEY for the latest).
    #[arg(value_name = "FILE|IMAGE_DIR|URL")]
    pub snapshot: PathBuf,

    /// The key, where the archive comes from a store.
    #[command(flatten)]
    pub key: KeyFile,

    /// Device to resume on: auto (the first CUDA device, else the CPU), cpu, cuda
    /// (the first), cuda:N, opencl (the first of the first platform), opencl:PLATFORM, opencl:PLATFORM:DEVICE.
    #[arg(long, env = "HETCKPT_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// Leave as soon as the program runs, and print its process id.
    #[arg(long)]
    pub detach: bool,

    /// Write the program's process id to this file once it runs: in namespaces of its own it is another than before.
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// End when whoever started this ends.
    #[arg(long, hide = true)]
    pub end_with_starter: bool,

    /// Socket of the job that makes the checkpoints for which the program asks itself.
    #[arg(long, hide = true, value_name = "SOCKET")]
    pub job: Option<PathBuf>,

    /// Where this machine differs.
    #[command(flatten)]
    pub adaptation: Adaptation,

    /// What goes on of connections to processes outside.
    #[command(flatten)]
    pub outside: Outside,

    /// Restore even where the processor lacks features of the one that the program was dumped on. A program that uses
    /// one of them, as the C library does where it finds them, dies of an illegal instruction.
    #[arg(long)]
    pub any_processor: bool,

    /// Write the times of each step, as JSON, to this file once the program runs.
    #[arg(long, value_name = "FILE")]
    pub timings: Option<PathBuf>,
}

impl Restore {
    /// What the restore is told, of what it is to restore.
    pub fn how<'a>(&'a self, snapshot: &'a Given) -> restore::Options<'a> {
        restore::Options {
            snapshot,
            device: &self.device,
            detach: self.detach,
            pid_file: self.pid_file.as_deref(),
            job: self.job.as_deref(),
            adaptation: &self.adaptation,
            outside: self.outside,
            any_processor: self.any_processor,
            timings: self.timings.as_deref(),
        }
    }
}

/// `hetckpt migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// Process to move, with all its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// Node to move it to (port 7473 if none is named).
    #[arg(long, value_name = "HOST[:PORT]")]
    pub to: Address,

    /// Name that the target's certificate must have, if it is not HOST.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,

    /// Who this node is, and whom it trusts.
    #[command(flatten)]
    pub files: Files,

    /// Longest time to wait for kernels to stop.
    #[arg(value_parser = number::whole, long, value_name = "SECONDS", default_value_t = 10)]
    pub pause_timeout: u32,

    /// Which of the files that the program maps are sent with it, as for `dump`.
    #[arg(long, value_enum, default_value_t = Bundle::All)]
    pub bundle: Bundle,

    /// What goes along of connections to processes outside; the target needs not be told.
    #[command(flatten)]
    pub outside: Outside,

    /// Folder for CRIU's images, but not those of memory, while the program is sent (default: TMPDIR, else /tmp).
    #[arg(long, value_name = "FOLDER")]
    pub scratch: Option<PathBuf>,

    /// How long to try to reach the target again if the connection breaks once the program is the target's.
    #[arg(value_parser = number::long, long, value_name = "SECONDS", default_value_t = 60)]
    pub patience: u64,

    /// Print what was done and how long it took as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Migrate {
    /// What the migration is told.
    pub fn how(&self) -> source::Options<'_> {
        source::Options {
            to: &self.to,
            server_name: self.server_name.as_deref().unwrap_or(&self.to.host),
            files: &self.files,
            pause_timeout: self.pause_timeout,
            bundle: self.bundle,
            outside: self.outside,
            scratch: self.scratch.as_deref(),
            patience: Duration::from_secs(self.patience),
        }
    }
}

/// An archive that is made of what lies on this machine.
#[derive(Debug, Args)]
pub struct NewArchive {
    /// Archive to write; it appears under this name only when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace a file that has the archive's name. Nothing but a regular file is replaced.
    #[arg(long)]
    pub force: bool,

    /// Read the archive back from the disk, against its hashes.
    #[arg(long)]
    pub verify: bool,

    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt pack`.
#[derive(Debug, Args)]
pub struct Pack {
    /// Folder of CRIU's images.
    #[arg(value_name = "IMAGE_DIR")]
    pub images: PathBuf,

    /// What becomes of it.
    #[command(flatten)]
    pub new: NewArchive,
}

/// `hetckpt merge`.
#[derive(Debug, Args)]
pub struct Merge {
    /// The archive that borrows from others.
    #[arg(value_name = "FILE")]
    pub archive: PathBuf,

    /// What becomes of it.
    #[command(flatten)]
    pub new: NewArchive,
}

/// `hetckpt unpack`.
#[derive(Debug, Args)]
pub struct Unpack {
    /// The archive.
    #[arg(value_name = "FILE")]
    pub archive: PathBuf,

    /// Folder to unpack into: new or empty.
    #[arg(value_name = "IMAGE_DIR")]
    pub images: PathBuf,

    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt criu`.
#[derive(Debug, Args)]
pub struct CriuOptions {
    /// The command line for CRIU.
    #[arg(last = true, value_name = "ARGUMENTS OF CRIU")]
    pub arguments: Vec<OsString>,
}

/// `hetckpt pause`.
#[derive(Debug, Args)]
pub struct Pause {
    /// Process whose kernels to stop, with those of its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// How long to hold them.
    #[arg(value_parser = number::long, long, value_name = "MS", default_value_t = 0)]
    pub hold_ms: u64,

    /// How often to do it.
    #[arg(value_parser = number::count, long, value_name = "N", default_value_t = 1)]
    pub repeat: u32,

    /// Time between letting go and the next pause.
    #[arg(value_parser = number::long, long, value_name = "MS", default_value_t = 50)]
    pub interval_ms: u64,

    /// Longest time to wait for kernels to stop.
    #[arg(value_parser = number::whole, long, value_name = "SECONDS", default_value_t = 10)]
    pub pause_timeout: u32,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt suspend`.
#[derive(Debug, Args)]
pub struct Suspend {
    /// Process to suspend, with its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// What takes the content of device memory: `ram`, or a file that does not exist yet. It is removed when the
    /// program goes on or ends. If several processes have devices, the others' files are called FILE.PID.
    #[arg(long, value_name = "ram|FILE", default_value = "ram")]
    pub to: PathBuf,

    /// Longest time to wait for kernels to stop.
    #[arg(value_parser = number::whole, long, value_name = "SECONDS", default_value_t = 10)]
    pub pause_timeout: u32,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// Process to let go on, with its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// Device to go on with, as in `run`; default: what the program was started or restored with.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Process whose device server to ask, with those of its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: i32,

    /// Tell again and again what has been done since, every DURATION, such as 1s or 200ms (1s).
    #[arg(value_parser = number::duration, long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1s")]
    pub watch: Option<Duration>,

    /// Print JSON, with the histograms: a list of servers; with --watch, one such list each time.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt trace`.
#[derive(Debug, Args)]
#[command(override_usage = "hetckpt trace [OPTIONS] (--pid <PID> | -- <CMD>...)")]
pub struct Trace {
    /// Process to trace, with its children.
    #[arg(value_parser = number::process_id, long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<i32>,

    /// How long to trace at most, such as 10s or 500ms (default: until the program ends).
    #[arg(long = "for", value_parser = number::duration, value_name = "DURATION")]
    pub time: Option<Duration>,

    /// Print JSON, with the histograms.
    #[arg(long)]
    pub json: bool,

    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "pid", num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `hetckpt inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The archive, or the URL of a snapshot in a store.
    #[arg(value_name = "FILE|URL")]
    pub archive: PathBuf,

    /// The key, where the archive comes from a store.
    #[command(flatten)]
    pub key: KeyFile,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Read every member and check its hash too.
    #[arg(long)]
    pub verify: bool,
}

/// `hetckpt devices`.
#[derive(Debug, Args)]
pub struct Devices {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Process to look at, with its children, instead of the machine.
    #[arg(value_parser = number::process_id, long, value_name = "PID")]
    pub pid: Option<i32>,

    /// How long to look at its driver calls, such as 10s or 500ms; 0 for not at all.
    #[arg(long = "for", value_parser = number::duration, value_name = "DURATION", default_value = "2s", requires = "pid")]
    pub time: Duration,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The archive, a folder of CRIU's images, or the URL of a snapshot in a store.
    #[arg(value_name = "FILE|IMAGE_DIR|URL")]
    pub snapshot: PathBuf,

    /// The key, where the archive comes from a store.
    #[command(flatten)]
    pub key: KeyFile,

    /// Device that the kernels are to go on with, as `restore` takes it.
    #[arg(long, env = "HETCKPT_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// What `restore` is to be told.
    #[command(flatten)]
    pub adaptation: Adaptation,

    /// The same, of connections to processes outside.
    #[command(flatten)]
    pub outside: Outside,

    /// The same, of features that the processor lacks.
    #[arg(long)]
    pub any_processor: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `hetckpt kernel`.
#[derive(Debug, Args)]
pub struct Kernel {
    /// The stage.
    #[arg(value_enum)]
    pub stage: Stage,

    /// A PTX file, as `nvcc -ptx` writes it.
    #[arg(value_name = "FILE.ptx")]
    pub file: PathBuf,

    /// Only this kernel (a part of its mangled name will do).
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Stages of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// hetIR, as the front end lowers it.
    Ir,
    /// hetIR with probes.
    Probed,
    /// PTX with probes, as given to NVIDIA's driver.
    Ptx,
    /// LLVM IR, as the CPU device compiles it.
    Llvm,
    /// OpenCL C 1.2, as OpenCL devices compile it.
    #[value(name = "opencl")]
    OpenCl,
    /// SPIR-V made of that, as text, for which clang, llvm-spirv and spirv-dis must be there.
    Spirv,
}

impl Stage {
    /// As the device server's program is asked for it.
    pub fn as_asked(self) -> question::Stage {
        match self {
            Self::Ir => question::Stage::Ir,
            Self::Probed => question::Stage::Probed,
            Self::Ptx => question::Stage::Ptx,
            Self::Llvm => question::Stage::Llvm,
            Self::OpenCl => question::Stage::OpenCl,
            Self::Spirv => question::Stage::Spirv,
        }
    }
}

/// The second half of `hetckpt run`.
#[derive(Debug, Args)]
pub struct Launch {
    /// It is in namespaces of its own.
    #[arg(long)]
    pub inside: bool,

    /// The program and its arguments.
    #[arg(last = true, required = true, num_args = 1..)]
    pub command: Vec<OsString>,
}
