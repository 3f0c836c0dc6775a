//! The store on an S3 server that is killed or stopped, and with a writer that is killed or stopped: what is listed is
//! whole, what was reported as stored is listed, and pruning leaves nothing else.
//!
//! `HETCKPT_STORE_FAULTS` is how often each fault is tried (2). The server is installed by
//! `e2e/setup/install-s3-server.sh`; without it the tests are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use hetckpt_store::keep::Keep;
use hetckpt_store::name::{Key, SnapshotId};
use hetckpt_store::prune::FORGOTTEN_AFTER;
use hetckpt_store::record::{Device, Draft, Occasion};
use hetckpt_store::remote::Patience;
use hetckpt_store::store::Store;
use hetckpt_store::verify::State;
use hetckpt_store::watch::unwatched;

/// First argument of the writer.
const WRITER: &str = "--writer";
/// First argument of what prunes.
const PRUNER: &str = "--pruner";
/// Bytes of an archive: three parts.
const ARCHIVE_BYTES: usize = 40 << 20;
/// Within this time of its start a writer meets its fault, ms.
const FAULT_WITHIN_MS: u64 = 1500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, url, archive] = arguments.as_slice()
        && role == WRITER
    {
        return write(url, Path::new(archive));
    }
    if let [_, role, url] = arguments.as_slice()
        && role == PRUNER
    {
        return prune(url);
    }
    let is_missing = !server_program().exists();
    let trial = |name, fault: Fault| {
        Trial::test(name, move || {
            on_a_server(fault);
            Ok(())
        })
        .with_ignored_flag(is_missing)
    };
    let trials = vec![
        trial("server_is_killed", Fault::KillServer),
        trial("server_is_stopped_for_a_while", Fault::StopServer),
        trial("writer_is_killed", Fault::KillWriter),
        trial("writer_is_stopped_for_a_while", Fault::StopWriter),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn server_program() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("HETCKPT_CACHE").map_or_else(|| home.join(".cache/hetckpt"), PathBuf::from);
    cache.join("s3-server/bin/s3s-fs")
}

fn job() -> Key {
    "job".parse().unwrap()
}

fn open(url: &str) -> Store {
    let patience = Patience {
        request: Duration::from_secs(12),
        retries: 6,
    };
    Store::open_with(url, None, patience).unwrap()
}

/// Puts the archive, and tells its name. Its hash is noted where only this test looks.
fn write(url: &str, archive: &Path) -> ExitCode {
    let store = open(url);
    let hash = blake3::hash(&fs::read(archive).unwrap()).to_hex().to_string();
    let put = store.new_id(&job()).and_then(|id| {
        let draft = Draft {
            id,
            device: Device::default(),
            host: String::new(),
            occasion: Occasion::Periodic,
            dump_seconds: 0.0,
            memory_bytes: 0,
            label: String::new(),
            command: vec![hash],
            needs: vec![],
        };
        unwatched(|watch| store.put(&job(), draft, archive, watch))
    });
    match put {
        Ok(record) => {
            println!("{}", record.id());
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    KillServer,
    StopServer,
    KillWriter,
    StopWriter,
}

/// A server over a folder, and how writers reach it.
struct Server {
    folder: PathBuf,
    port: u16,
    process: Child,
}

impl Server {
    fn start(folder: &Path, port: u16) -> Self {
        let mut process = Command::new(server_program())
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "AKTEST", "--secret-key", "SKTEST"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "the server has ended");
            assert!(start.elapsed() < Duration::from_secs(20), "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let folder = folder.to_owned();
        Self { folder, port, process }
    }

    fn signal(&self, signal: Signal) {
        send(&self.process, signal);
    }

    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        *self = Self::start(&self.folder.clone(), self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn send(process: &Child, signal: Signal) {
    // It may have ended.
    let _ = kill(Pid::from_raw(process.id().try_into().unwrap()), signal);
}

/// Numbers that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn time(&mut self, limit_ms: u64) -> Duration {
        Duration::from_millis(self.below(limit_ms))
    }
}

fn on_a_server(fault: Fault) {
    let rounds = std::env::var("HETCKPT_STORE_FAULTS").map_or(2, |text| text.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("server");
    fs::create_dir_all(folder.join("bucket")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Server::start(&folder, port);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    let mut random = Random(seed);
    let (mut stored, mut not_stored) = (0, 0);
    for round in 0..rounds {
        let archive = scratch.path().join("archive");
        let content: Vec<u8> = (0..ARCHIVE_BYTES / 8)
            .flat_map(|_| random.below(u64::MAX).to_le_bytes())
            .collect();
        fs::write(&archive, content).unwrap();
        let told = one_round(fault, &mut server, &archive, &mut random);
        match told {
            Some(_) => stored += 1,
            None => not_stored += 1,
        }
        look(&server, told, scratch.path())
            .unwrap_or_else(|why| panic!("{fault:?}, round {round}, seed {seed}: {why}"));
    }
    println!("{fault:?}: {stored} stored, {not_stored} not stored");
    clean_up(&server);
}

/// One writer and its fault. Gives the snapshot that the writer says it has stored.
fn one_round(fault: Fault, server: &mut Server, archive: &Path, random: &mut Random) -> Option<SnapshotId> {
    let writer = Command::new(std::env::current_exe().unwrap())
        .args([WRITER, "s3://bucket/path"])
        .arg(archive)
        .envs(settings(server.port))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(random.time(FAULT_WITHIN_MS));
    let pause = random.time(3000);
    match fault {
        Fault::KillServer => {
            server.signal(Signal::SIGKILL);
            std::thread::sleep(pause);
            server.restart();
        }
        Fault::StopServer => {
            server.signal(Signal::SIGSTOP);
            std::thread::sleep(pause * 3);
            server.signal(Signal::SIGCONT);
        }
        Fault::KillWriter => send(&writer, Signal::SIGKILL),
        Fault::StopWriter => {
            send(&writer, Signal::SIGSTOP);
            std::thread::sleep(pause);
            send(&writer, Signal::SIGCONT);
        }
    }
    let Output { status, stdout, .. } = writer.wait_with_output().unwrap();
    let told = String::from_utf8(stdout).unwrap();
    status.success().then(|| told.trim().parse().unwrap())
}

fn settings(port: u16) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("AWS_ACCESS_KEY_ID", "AKTEST".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "SKTEST".to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")),
    ])
}

/// Reads all that is listed. The server's folder has the form of a store in a folder.
fn look(server: &Server, told: Option<SnapshotId>, scratch: &Path) -> Result<(), String> {
    let store = Store::open(server.folder.join("bucket/path").to_str().unwrap(), None).unwrap();
    let listing = store.list(Some(&job())).map_err(|e| e.to_string())?;
    if let Some(told) = &told
        && !listing.records.iter().any(|record| record.id() == told)
    {
        let unusable = &listing.unusable;
        return Err(format!(
            "{told} was stored and is not listed; what cannot be used: {unusable:?}"
        ));
    }
    let verified = unwatched(|watch| store.verify(None, watch)).map_err(|e| e.to_string())?;
    for record in &listing.records {
        let to = scratch.join("fetched");
        let state = &verified.iter().find(|one| one.id == *record.id()).unwrap().state;
        let got = unwatched(|watch| store.get(&job(), record.id(), &to, watch));
        let is_whole =
            got.is_ok() && blake3::hash(&fs::read(&to).unwrap()).to_hex().to_string() == record.draft.command[0];
        // A server that is killed may have given an object its name too early: then nobody takes it.
        let is_good = matches!(state, State::Good { .. });
        if got.is_ok() && !is_whole {
            return Err(format!("{} is not what was stored", record.id()));
        }
        if is_good != is_whole {
            return Err(format!("{} is {}, and {got:?}", record.id(), state.name()));
        }
        if told.as_ref() == Some(record.id()) && !is_whole {
            return Err(format!("{} was stored and is not whole", record.id()));
        }
    }
    Ok(())
}

/// Prunes over S3, as if days had gone by, and sees what the server still has.
fn clean_up(server: &Server) {
    let pruner = Command::new(std::env::current_exe().unwrap())
        .args([PRUNER, "s3://bucket/path"])
        .envs(settings(server.port))
        .status();
    assert!(pruner.unwrap().success());
    let left = fs::read_dir(server.folder.join("bucket/path/job"))
        .into_iter()
        .flatten();
    let left: Vec<String> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let archives = left.iter().filter(|name| name.ends_with(".hetsnap")).count();
    assert!(archives <= 1 && left.len() <= 2, "{left:?}");
    // The server forgets an upload before it joins its parts. If that is cut short, nobody can end it any more.
    let files = fs::read_dir(&server.folder).unwrap();
    let files: Vec<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let of_known_upload = |name: &&String| {
        let upload = name
            .strip_prefix(".upload_id-")
            .and_then(|rest| rest.split_once(".part-"));
        upload.is_some_and(|(id, _)| files.contains(&format!(".upload-{id}.json")))
    };
    let parts: Vec<&String> = files.iter().filter(of_known_upload).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

/// Keeps the newest snapshot, and nothing that is unfinished.
fn prune(url: &str) -> ExitCode {
    let later = SystemTime::now() + 2 * FORGOTTEN_AFTER;
    let keep = Keep {
        last: 1,
        ..Keep::default()
    };
    let store = open(url);
    store.prune_at(None, &keep, false, later).unwrap();
    let again = store.prune_at(None, &keep, true, later).unwrap();
    assert!(again.removed.is_empty(), "{again:?}");
    ExitCode::SUCCESS
}
