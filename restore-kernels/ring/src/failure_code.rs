//! The codes of failures, as users see them: what each means and what to do. `docs/errors.md` is made from this file.
//!
//! A code does not change its meaning. Its first two digits tell the stage ([`Stage`]).

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Where a failure came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// 05.
    Devices,
    /// 06.
    PauseAndCapture,
    /// 07.
    Archive,
    /// 08.
    CommandLineAndHost,
    /// 09.
    Criu,
    /// 10.
    Migration,
}

impl Stage {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Devices,
        Self::PauseAndCapture,
        Self::Archive,
        Self::CommandLineAndHost,
        Self::Criu,
        Self::Migration,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Devices => "Devices",
            Self::PauseAndCapture => "Pause and capture",
            Self::Archive => "Archive",
            Self::CommandLineAndHost => "Command line and host",
            Self::Criu => "CRIU",
            Self::Migration => "Migration",
        }
    }
}

/// Exit code of a command that failed.
const FAILED: u8 = 1;
/// Exit code where this machine, or this version, cannot do what was asked.
const UNSUPPORTED: u8 = 3;

/// Makes the enum of its table.
macro_rules! codes {
    ($($stage:ident { $($name:ident = $text:literal, $exit:expr, $meaning:literal, $help:literal;)* })*) => {
        /// The code of a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $meaning] $name,)*)*
        }

        impl Code {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            /// As it is written: `HK0501`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($(Self::$name => $text,)*)* }
            }

            /// Where such a failure comes about.
            #[must_use]
            pub fn stage(self) -> Stage {
                match self { $($(Self::$name => Stage::$stage,)*)* }
            }

            /// What it means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $($(Self::$name => $meaning,)*)* }
            }

            /// What to do. Markdown.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self { $($(Self::$name => $help,)*)* }
            }

            /// The exit code of a command that such a failure ends, if it does not stand in for a program and nothing
            /// else is said.
            #[must_use]
            pub fn exit(self) -> u8 {
                match self { $($(Self::$name => $exit,)*)* }
            }
        }
    };
}

codes! {
    Devices {
        NoSuchDevice = "HK0501", UNSUPPORTED,
            "This machine has no such device.",
            "`hetckpt devices` lists the devices. `--device auto` takes the first CUDA GPU, else the CPU. OpenCL devices are used \
             only if they are named (`--device opencl`).";
        ServerSystem = "HK0502", FAILED,
            "A system call failed in the device server, or the memory that it shares with the program is damaged.",
            "The message names the system call. The server's log has the rest.";
        ServerStart = "HK0503", FAILED,
            "A device server could not take over: it was started with wrong arguments, or died before it was ready.",
            "Its log says why.";
        DeviceFailed = "HK0504", FAILED,
            "The device, its driver or the compiler for it failed: it is out of memory, an address range that must be used is taken, \
             or a driver call failed. A check before a restore also gives this code if the device has too little memory, takes only smaller \
             blocks, lacks something that a stopped kernel needs, or is of a kind on which the kernel cannot go on.",
            "The message has the device's own words. Free memory of the device, or name another device.";
    }
    PauseAndCapture {
        PauseBroke = "HK0601", FAILED,
            "The device server broke off, or gave no usable answer, while it paused the kernels.",
            "The server's log says why.";
        NotStopped = "HK0602", FAILED,
            "A kernel did not stop within `--pause-timeout`, or within the device server's own limit (`HETCKPT_PAUSE_TIMEOUT`, 5 s). The \
             message names it. A kernel for which the program brings no PTX stops only at its end.",
            "Raise the limit, or build the program with PTX (nvcc `-gencode arch=compute_90,code=compute_90`).";
        WrongMoment = "HK0603", FAILED,
            "The device server was asked for something that does not fit what it is doing, such as capturing without a pause. At a restore: \
             a process of the snapshot already has a device server, because it runs or is being restored with the same \
             `HETCKPT_RUNTIME_DIR`; or its device server would run as root although the process does not, or because of a file that others \
             than root could have written.",
            "The message says which of these it is. End the program that runs, or restore as the program's user.";
        Overtaken = "HK0604", FAILED,
            "A kernel that was queued behind a stopped one ran on. This is a bug in hetckpt. Nothing was archived; the program runs on.",
            "Try again, and report it.";
        MachineCodeVariables = "HK0605", FAILED,
            "The program's machine code has state that only the driver knows: a heap of its own, addresses of functions, a variable whose \
             place the driver does not say. Or, at a restore, the driver has placed a variable elsewhere than before although device memory \
             holds its address, or gives a texture or surface object another value. Or, at a dump, device memory holds the address that such \
             a variable got by a restore. The message names it.",
            "Build the program with PTX. At a restore, try again: the driver may choose another place.";
        StateFile = "HK0606", FAILED,
            "A file of the device's state cannot be written or read.",
            "The message names the file and the reason.";
        NotRebuilt = "HK0607", FAILED,
            "Something that was captured cannot be built again: a kernel or an allocation that this device cannot take.",
            "The message names it. Name another device.";
    }
    Archive {
        NotAnArchive = "HK0701", FAILED,
            "The archive cannot be read, or the file is not an archive of hetckpt.",
            "Name a file that `hetckpt dump` or `hetckpt pack` has written.";
        Damaged = "HK0702", FAILED,
            "The archive is damaged: it ends too early, or bytes of it were changed. Nothing of it is used.",
            "Take another copy of the archive.";
        NewerVersion = "HK0703", UNSUPPORTED,
            "A newer version of hetckpt wrote the archive.",
            "Restore it with that version or a newer one.";
        CannotWrite = "HK0704", FAILED,
            "A file cannot be written, or may not become as large as it must (`ulimit -f`): the archive, what `restore` or `unpack` \
             unpacks, or the file of `--timings`.",
            "For an archive, name a file in a folder that exists, that you may write to, and that has room. A name that somebody else \
             gives to a file meanwhile, such as another dump, is not overwritten. `pack` does not write its archive among the images. A \
             restore unpacks what describes the program, but not its memory, and lays carried files out, in `TMPDIR` (default: \
             /tmp). There must be room, and no `noexec` if files are to be laid out.";
        NoDump = "HK0705", FAILED,
            "The folder given to `pack` or `restore`, or the archive, holds no complete dump. The note names the image that is missing, cut \
             off or of another kind. `pack` also refuses a folder that holds something else than files, such as the link `parent` of \
             an incremental dump, which leads to the earlier one.",
            "CRIU writes `inventory.img` last: without it, the dump failed or still goes on. Name the folder of a dump that succeeded.";
        FolderNotEmpty = "HK0706", FAILED,
            "The folder that `unpack` was to fill is not empty, or is no folder.",
            "Name a folder that is new or empty.";
        NameTaken = "HK0707", FAILED,
            "The name given to `dump` or `pack` for the archive is taken: by a file, which `--force` replaces, or by something else (a \
             device, a pipe, a symbolic link), which nothing replaces.",
            "Name another file, or say `--force`.";
        StoreFailed = "HK0708", FAILED,
            "The snapshot store cannot be reached, or does not do what was asked of it: it does not answer, refuses, has no room, or has no such snapshot. \
             The note has its own words.",
            "See whether the URL is right and the store can be reached from here. Credentials and settings come from the environment: `AWS_ACCESS_KEY_ID`, \
             `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT` and, for plain HTTP, `AWS_ALLOW_HTTP=true`; `GOOGLE_…` and `AZURE_…` likewise. For slow \
             connections raise `HETCKPT_STORE_TIMEOUT` (seconds for one part of 16 MiB; default 300).";
        StoredDamaged = "HK0709", FAILED,
            "A snapshot in the store is not what was stored: its record cannot be understood, or its archive does not have the size or the hash that the \
             record says. Nothing of it is used.",
            "Take an earlier snapshot: `hetckpt store ls` lists them, and `hetckpt store verify` says which are good.";
        JobClaimed = "HK0710", FAILED,
            "Another run of the same job is at work, or has taken the job over.",
            "Wait for its end, or for a minute if its machine has failed. Different jobs need different keys.";
        StoreKey = "HK0711", FAILED,
            "The key for encrypted snapshots is missing or wrong, cannot be read, or may be read by others.",
            "Name the key file with `--key-file` or `HETCKPT_STORE_KEY`. `age-keygen` writes one, and `chmod 600` makes it private. A file that holds only \
             recipients (`age1…`) can encrypt, but not decrypt.";
        ParentMissing = "HK0712", FAILED,
            "The archive borrows from another one (`dump --parent`), which is not where it was, or has become another.",
            "Bring that archive back: `hetckpt inspect` names it. While all of them are there, `hetckpt merge` makes one that needs no other.";
    }
    CommandLineAndHost {
        NoSuchProcess = "HK0801", FAILED,
            "There is no such process, or it has ended.",
            "`hetckpt ps` lists the programs that can be dumped.";
        NotUnderHetckpt = "HK0802", FAILED,
            "The process was not started under hetckpt, so its device state cannot be reached. From `hetckpt pause` also: the program has \
             made no CUDA or OpenCL call yet, so there is nothing to pause.",
            "Start the program with `hetckpt run`.";
        Installation = "HK0803", FAILED,
            "A part of the installation is missing or does not work: the device server, the driver library, the code generator or the CRIU \
             plugin.",
            "They lie beside `hetckpt` in `bin` and `lib`, as `make build` and `make install` lay them out. Install hetckpt again.";
        StandIn = "HK0804", FAILED,
            "hetckpt could not start the program, or could not stand in for it (pass on signals, wait for it, take its exit code). `run` ends with 127 if there is no such program, \
             with 126 if it cannot be started, else with 125.",
            "The note has the system's reason.";
        Translation = "HK0805", FAILED,
            "A PTX file cannot be read, or holds something that the stage asked for does not support.",
            "The message names the instruction, its line and its kernel.";
        NoAnswer = "HK0806", FAILED,
            "The device server of a process does not answer. Or it is still starting: that takes longer than ten seconds, or needs the \
             program, which is stopped.",
            "`HETCKPT_RUNTIME_DIR` must be the same for the program and for the command. The server's log lies there as `app-PID.log`. If \
             it is still starting, dump again after the program has made its first CUDA call.";
        Interrupted = "HK0807", FAILED,
            "A signal (INT, TERM, HUP, QUIT, USR1, USR2) ended `dump` or `pack` before the archive had its name, `migrate` before the \
             program was the target's, `restore` before CRIU was at work, or `unpack` before its folder was complete. Nothing of it is left.",
            "Give the command again. While CRIU works, signals wait until it has ended.";
        BeingDumped = "HK0808", FAILED,
            "The program, or a part of its process tree, is already being dumped.",
            "Wait for the other dump's end.";
        ServerInTree = "HK0809", FAILED,
            "The device server of a process has become a part of the process tree that is to be dumped, because a process there adopts \
             orphans (`PR_SET_CHILD_SUBREAPER`, as some launchers and `tini -s` do).",
            "Start that process outside of the tree, and `hetckpt run` below it.";
        NoNamespaces = "HK0810", FAILED,
            "Namespaces for a job (`run`, `restore`, `check`) cannot be made. The note says why: user namespaces are not allowed, or not to \
             that number, or `/proc` cannot be mounted, as in some containers.",
            "Allow them (`sysctl user.max_user_namespaces`; on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0`), or go without \
             (`--namespaces never`). Dumps and restores then need root.";
        OtherUser = "HK0811", FAILED,
            "The program is another user's, or the namespaces of its job cannot be entered. Only its user and root may dump, move or pause \
             it. Or it runs in a container that has files of its own: hetckpt enters only namespaces in which it finds itself.",
            "Do it as that user or as root. For a container, use the hetckpt in the container (`docker exec …`).";
        NotAJob = "HK0812", FAILED,
            "`hetckpt job` does not know which job this is, or cannot keep such a job: one of several nodes, or of several tasks of `srun`.",
            "Name the job (`--name`). Start several processes of one node by `hetckpt job -- mpirun …`.";
        TracingNotPermitted = "HK0813", UNSUPPORTED,
            "Driver calls cannot be traced here (`trace`): Linux does not let us load eBPF programs or put probes on libraries, or \
             the program `hetckpt-tracer` does not start. The notes say which capability or setting is missing. All other verbs work.",
            "Do it as root, or with CAP_BPF and CAP_PERFMON, outside of containers. Linux must be 5.15 or newer.";
    }
    Criu {
        CriuMissing = "HK0901", FAILED,
            "CRIU is missing, or what `HETCKPT_CRIU` names is not CRIU. It may be hetckpt's wrapper of CRIU.",
            "`e2e/setup/install-criu.sh` installs it on Debian in a folder of its own. `HETCKPT_CRIU` names a CRIU that is not on `PATH`. What \
             root does with a program in another user's namespaces is done as that user, who must be able to run CRIU and to write the archive.";
        CriuTooOld = "HK0902", FAILED,
            "CRIU is too old. Versions before 4.1 fail on Linux 6.13 and newer.",
            "Install CRIU 4.1 or newer.";
        CriuDump = "HK0903", FAILED,
            "CRIU could not dump the process. The message has the first error of CRIU's log.",
            "`docs/limits.md` says what CRIU does not dump.";
        CriuRestore = "HK0904", FAILED,
            "CRIU could not restore the process. Frequent reasons: a file that the program had open is missing or has changed, or CRIU is not \
             run as root.",
            "`hetckpt check` says what the snapshot needs and this machine lacks.";
        ProcessIdTaken = "HK0905", FAILED,
            "A process id of the snapshot is in use here, or is beyond `kernel.pid_max`. It may be the id of a child or a thread. CRIU gives \
             processes the ids that they had. A program in namespaces of its own has low ids there. Root restores \
             it outside of them, where such ids are often in use.",
            "End the process that has it, or restore in namespaces of its own: `hetckpt restore --namespaces always FILE`.";
        PluginOption = "HK0906", FAILED,
            "`hetckpt criu` was given a `--plugin` that is not `hetgpu`, or a `--libdir` in which that plugin does not lie.",
            "For plugins of others, name their folder with `--libdir` and leave `--plugin` out.";
        FileDiffers = "HK0907", FAILED,
            "A file or folder that the program had open, had mapped or worked in is missing here, or is not the same. Nothing was started. \
             A dump also looks before it ends the program: what cannot come back even on this machine is refused, and the program runs on.",
            "The message names the file. What to do depends on what it is:\n\
             \n\
             * The program or a library of it: put the file of the machine of the dump at the same path, or have the dump carry it (`hetckpt \
             dump --bundle all`, the default).\n\
             * A file that the program writes and that has grown since the dump: `--rewind-outputs` cuts it back and keeps a copy.\n\
             * A file that was the program's stdin, stdout or stderr: `--own-stdio` gives it those of `restore` instead.\n\
             * Its working folder: make it, or name another with `--cwd`.\n\
             * Another file that it had open: put it there.\n\
             * A file below `/proc/PID` of one of its own threads, descriptors or mappings: these come into being later than files do. Dump \
             the program when it does not have that open. Other such files of its own processes (`/proc/self/maps`, `stat`, `fd`, …) come back.";
        Terminal = "HK0908", FAILED,
            "The program had a terminal open whose other end was outside of it, and stdin of `restore` is no terminal. Or it had a \
             pseudo-terminal of its own, with both ends in its tree, and something else has that number here now.",
            "For a terminal from outside: restore from a terminal. Programs under `hetckpt run` have none open. For a number that is taken: \
             end what has it (`fuser /dev/pts/N`; `script` takes the first number that is free), or, as root, restore where all numbers are \
             free (`hetckpt restore --namespaces always FILE`).";
        OfOtherUser = "HK0909", FAILED,
            "The snapshot is of another user's processes, which a user who is not root cannot make. Or its processes had capabilities that \
             whoever restores does not have, as root in a container.",
            "Restore as the program's user. Users are told apart by their numbers, which may be others on another node. For capabilities: \
             restore where root has them, or as the program's user.";
        TcpConnections = "HK0910", FAILED,
            "The program has established TCP connections. A dump of them needs root. A restore goes on with them only if it is told to, \
             because they can go on only once.",
            "Say `--tcp-established`, as root. A restore also needs the local addresses that the message names.";
        UnixSockets = "HK0911", FAILED,
            "The program has datagram unix sockets that are connected to a process outside of it. A restore connects them again only if it \
             is told to, and if there are sockets at the paths that the message names.",
            "Say `--ext-unix-sk`, and start the processes that have these sockets first.";
        NotDumpable = "HK0912", FAILED,
            "The program has, or is, something that CRIU does not dump. This was seen before the program was stopped: a debugger traces it, \
             its cgroup is frozen, or it has a file open whose content Linux does not tell, such as an io_uring. What is seen only while CRIU \
             works is HK0903.",
            "The message names it and the process.";
    }
    Migration {
        Certificate = "HK1001", FAILED,
            "A certificate, key or authority cannot be used: the file is missing or holds none, certificate and key do not belong together, \
             or others may read the key.",
            "Name the right files. `chmod 600` makes a key private.";
        CannotListen = "HK1002", FAILED,
            "`serve` cannot listen on the address, or cannot use its folder, which another `serve` may be using.",
            "Name an address of this node with a port that is free, and a folder of its own.";
        NotReached = "HK1003", FAILED,
            "The target cannot be reached.",
            "See whether `hetckpt serve` runs there and listens on that address, and whether something between the nodes keeps connections out.";
        NotTrusted = "HK1004", FAILED,
            "The two nodes do not trust each other: a certificate was not signed by the authority in `--ca`, has expired, is not valid yet, \
             or has another name than the target was called by (`--to`, `--server-name`).",
            "Make certificates of one authority for both nodes, with their names.";
        NotUnderstood = "HK1005", FAILED,
            "The other end is not understood: it has another version of the protocol, or is not hetckpt.",
            "Use the same version at both ends.";
        ConnectionBroke = "HK1006", FAILED,
            "The connection broke, or nothing came for 30 s, before the target had confirmed. The program runs on at the source.",
            "Try again.";
        NotHeardOf = "HK1007", FAILED,
            "The program has ended at the source. The target holds all of it, and did not say within `--patience` what became of it.",
            "Look at the target. If `serve` runs there, it starts the program as soon as it learns of its release. If its record says \
             `prepared` and nobody will tell it: `hetckpt restore` of the archive.";
        RestoreFailedThere = "HK1008", FAILED,
            "The program is the target's, and its restore failed there. It does not run.",
            "The message says where on the target its archive is, and why the restore failed.";
        TooLarge = "HK1009", FAILED,
            "The snapshot is larger than the target takes.",
            "Make room in the target's folder, or raise `serve --max-size` or `--quota`.";
        Busy = "HK1010", FAILED,
            "The target already receives as many programs as it may at a time (`serve --connections`). The program runs on at the source.",
            "Try again in a moment.";
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// There is no such code in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such code")]
pub struct NoSuchCode;

impl FromStr for Code {
    type Err = NoSuchCode;

    fn from_str(text: &str) -> Result<Self, NoSuchCode> {
        let found = Self::ALL.iter().find(|code| code.as_str() == text);
        found.copied().ok_or(NoSuchCode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_written_and_ascend() {
        for code in Code::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        assert!(Code::ALL.is_sorted_by(|one, next| one.as_str() < next.as_str()));
        assert_eq!("HK9999".parse::<Code>(), Err(NoSuchCode));
    }

    #[test]
    fn the_first_digits_are_the_stages() {
        for code in Code::ALL {
            let number = Stage::ALL
                .iter()
                .position(|&stage| stage == code.stage())
                .map(|at| at + 5);
            let digits = code.as_str().get(2..4).and_then(|digits| digits.parse::<usize>().ok());
            assert_eq!(digits, number, "{code}");
        }
    }
}
