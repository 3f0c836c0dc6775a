//! Connections of a program under test to processes outside of its tree: TCP, and datagram unix sockets. The other end
//! is the test itself.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::hetckpt::{self, PATIENCE};
use crate::installation::Installation;
use crate::process::Running;
use crate::program::PACED;
use crate::sandbox::Sandbox;

/// A shell with `script` under `hetckpt run`, with a kernel running in a process below it, the shell's first job. Gives
/// whoever stands in for it, and its process id. Its stdout is the socket given, if one is.
///
/// # Errors
/// If no kernel comes to run.
pub fn start(sandbox: &Sandbox, script: &str, stdout: Option<OwnedFd>) -> Result<(Running, i32)> {
    let pid_file = sandbox.path("pid");
    let mut command = Command::new("bash");
    sandbox.equip(&mut command);
    // Its output is collected, so the socket comes as its input. By its number, programs that are started meanwhile
    // would inherit it too.
    let redirection = if stdout.is_some() { "1>&0 0</dev/null" } else { "" };
    command.args(["-c", &format!("exec \"$@\" {redirection}"), "bash"]);
    command.arg(Installation::get().hetckpt());
    command.args(["run", "--device", &Installation::from_device(), "--pid-file"]);
    let paced = Installation::get().programs.join(PACED.name);
    let script = format!(
        "'{}' --iterations 1000000000000 >/dev/null &\n{script}",
        paced.display()
    );
    command.arg(&pid_file).args(["--", "bash", "-c", &script]);
    // A folder that other nodes have too.
    command.current_dir("/");
    let mut job = Running::start_with_input(command, stdout.map_or_else(Stdio::null, Stdio::from))?;
    let started = Instant::now();
    loop {
        let is_running = |row: &Value| row["running_kernels"].as_u64() > Some(0);
        // Whoever stands in writes the file while the program runs.
        let pid = fs::read_to_string(&pid_file)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid
            && hetckpt::ps(sandbox)?.iter().any(is_running)
        {
            return Ok((job, pid));
        }
        if job.has_ended()? || started.elapsed() > PATIENCE {
            bail!("no kernel comes to run: {}", job.wait(PATIENCE)?.text());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a shell does that answers each word of a [`Peer`] at `address` (`HOST/PORT`), until that closes the connection.
#[must_use]
pub fn answering(address: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/{address}\nwhile read -r word <&3; do echo heard $word >&3; done\nkill %1\nwait\necho end"
    )
}

/// The other end of a TCP connection to a shell that does what [`answering`] says.
pub struct Peer {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Peer {
    /// Waits for the program to connect.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn accept(listener: &TcpListener) -> Result<Self> {
        let (writer, _) = listener.accept()?;
        writer.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(writer.try_clone()?);
        Ok(Self { writer, reader })
    }

    /// Sends a word; nobody need be there.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn say(&mut self, word: &str) -> Result<()> {
        writeln!(self.writer, "{word}").context("cannot write to the program")
    }

    /// Waits for the answer to a word.
    ///
    /// # Errors
    /// If there is none, or another.
    pub fn hear(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        let size = self
            .reader
            .read_line(&mut line)
            .with_context(|| format!("no answer to {word}"))?;
        ensure!(size > 0, "the program's end is closed, before the answer to {word}");
        ensure!(line == format!("heard {word}\n"), "{word} is answered by {line:?}");
        Ok(())
    }
}

/// What a shell does that says `tick` on its stdout for ever.
pub const TICKING: &str = "while true; do echo tick; sleep 0.1; done";

/// A datagram socket to which such a shell's stdout is connected.
pub struct Ticks(UnixDatagram);

impl Ticks {
    /// Makes it, at `path`.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn listen(path: &Path) -> Result<Self> {
        let socket = UnixDatagram::bind(path).with_context(|| path.display().to_string())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(socket))
    }

    /// A socket that is connected to the one at `path`.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn connect(path: &Path) -> Result<OwnedFd> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(socket.into())
    }

    /// Waits for a tick.
    ///
    /// # Errors
    /// If there is none, or something else comes.
    pub fn hear(&self) -> Result<()> {
        let mut word = [0; 64];
        let size = self.0.recv(&mut word).context("the program is not heard")?;
        let word = String::from_utf8_lossy(&word[..size]);
        ensure!(word == "tick\n", "{word:?}");
        Ok(())
    }
}
