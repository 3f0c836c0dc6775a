//! CRIU as container runtimes drive it: `criu swrk`, one request a process, in the few messages of CRIU's `rpc.proto`
//! that they send.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, setsockopt, socketpair, sockopt::ReceiveTimeout,
};
use nix::sys::time::TimeVal;

use crate::hetckpt::PATIENCE;
use crate::installation::Installation;
use crate::process::{Outcome, Running};
use crate::sandbox::Sandbox;

/// Numbers of `criu_req_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `DUMP`
    Dump = 1,
    /// `RESTORE`
    Restore = 2,
    /// `NOTIFY`
    Notify = 6,
}

/// What is asked of CRIU: `criu_opts`, as far as tests need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `pid`: the root of the tree that is dumped.
    pub pid: Option<i32>,
    /// `shell_job`
    pub shell_job: bool,
    /// `leave_running`
    pub leave_running: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Response {
    /// `success`
    pub success: bool,
    /// `restore.pid`: the restored process, a child of this one.
    pub restored: Option<i32>,
    /// `cr_errmsg`
    pub message: String,
    /// The scripts that CRIU asked for, in this order.
    pub notified: Vec<String>,
    /// How CRIU itself ended.
    pub criu: Outcome,
}

/// Has CRIU do `kind` with the image folder `images` of the sandbox and the plugins of `folder`, named as one does who
/// cannot give it options: in its environment. Each script that it asks for succeeds, but for `veto`.
///
/// # Errors
/// If CRIU cannot be started, says what is not understood, or says nothing.
pub fn swrk(sandbox: &Sandbox, kind: Kind, options: Options, folder: &Path, veto: Option<&str>) -> Result<Response> {
    let images = sandbox.path("images");
    std::fs::create_dir_all(&images)?;
    let images = File::open(&images)?;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    setsockopt(
        &ours,
        ReceiveTimeout,
        &TimeVal::new(PATIENCE.as_secs().cast_signed(), 0),
    )?;
    let mut command = Command::new(&Installation::get().criu);
    sandbox.equip(&mut command);
    command
        .args(["swrk", &theirs.as_raw_fd().to_string()])
        .env("CRIU_LIBS_DIR", folder)
        .env("HETCKPT_DEVICE", Installation::to_device());
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let criu = Running::start(command)?;
    drop(theirs);

    send(&ours, &request(kind, options, &images))?;
    let mut notified = vec![];
    loop {
        let bytes = receive(&ours).with_context(|| format!("after {notified:?}: {}", criu.said()))?;
        let response = Fields::of(&bytes)?;
        let is_success = response.number(2) == Some(1);
        if response.number(1) == Some(Kind::Notify as u64) {
            let script = Fields::of(response.bytes(5).context("a notification without its name")?)?;
            let script = String::from_utf8_lossy(script.bytes(1).unwrap_or_default()).into_owned();
            let may_go_on = Some(script.as_str()) != veto;
            notified.push(script);
            let mut answer = Message::default();
            answer.number(1, Kind::Notify as u64);
            answer.number(3, u64::from(may_go_on));
            send(&ours, &answer.0)?;
            continue;
        }
        ensure!(
            response.number(1) == Some(kind as u64),
            "CRIU was to answer {kind:?}: {bytes:?}"
        );
        let restored = response.bytes(4).map(Fields::of).transpose()?;
        let restored = restored.and_then(|restored| restored.number(1));
        drop(ours);
        return Ok(Response {
            success: is_success,
            restored: restored.map(i32::try_from).transpose()?,
            message: String::from_utf8_lossy(response.bytes(9).unwrap_or_default()).into_owned(),
            notified,
            criu: criu.wait(Duration::from_secs(10))?,
        });
    }
}

/// `criu_req`
fn request(kind: Kind, options: Options, images: &File) -> Vec<u8> {
    let mut fields = Message::default();
    let descriptor = |file: &File| u64::from(file.as_raw_fd().unsigned_abs());
    // CRIU opens it by way of who asks.
    fields.number(1, descriptor(images));
    if let Some(pid) = options.pid.and_then(|pid| u64::try_from(pid).ok()) {
        fields.number(2, pid);
    }
    fields.number(3, u64::from(options.leave_running));
    fields.number(7, u64::from(options.shell_job));
    fields.number(9, 4);
    fields.bytes(10, format!("{kind:?}.log").to_lowercase().as_bytes());
    fields.number(12, 1);
    // What is restored is to be a child of who asks, not of CRIU.
    fields.number(26, u64::from(kind == Kind::Restore));
    let mut request = Message::default();
    request.number(1, kind as u64);
    request.bytes(2, &fields.0);
    request.0
}

fn send(socket: &OwnedFd, message: &[u8]) -> Result<()> {
    let sent = sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(message)],
        &[],
        MsgFlags::empty(),
        None,
    )
    .context("CRIU takes no message")?;
    ensure!(sent == message.len(), "CRIU took a part of a message");
    Ok(())
}

fn receive(socket: &OwnedFd) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 1 << 16];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, None, MsgFlags::empty());
    let length = received.context("CRIU does not answer")?.bytes;
    ensure!(length > 0, "CRIU has closed the connection");
    bytes.truncate(length);
    Ok(bytes)
}

/// A message of protocol buffers that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

/// A message that has been read.
struct Fields<'a>(Vec<(u64, Value<'a>)>);

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn of(mut bytes: &'a [u8]) -> Result<Self> {
        let mut fields = vec![];
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Value::Number(take_varint(&mut bytes)?),
                2 => {
                    let length = usize::try_from(take_varint(&mut bytes)?)?;
                    let (value, rest) = bytes.split_at_checked(length).context("a message is cut off")?;
                    bytes = rest;
                    Value::Bytes(value)
                }
                other => bail!("a field of wire type {other}"),
            };
            fields.push((tag >> 3, value));
        }
        Ok(Self(fields))
    }

    fn find(&self, field: u64) -> Option<&Value<'a>> {
        self.0
            .iter()
            .find_map(|(number, value)| (*number == field).then_some(value))
    }

    fn number(&self, field: u64) -> Option<u64> {
        match self.find(field)? {
            Value::Number(number) => Some(*number),
            Value::Bytes(_) => None,
        }
    }

    fn bytes(&self, field: u64) -> Option<&'a [u8]> {
        match self.find(field)? {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().context("a message is cut off")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number that does not end")
}
