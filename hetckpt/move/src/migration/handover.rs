//! The decision's way to the target: the program is yours, or forget it. Kept up through broken connections, by
//! `migrate` and, should that be killed, by its guardian.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use hetckpt_report::failure::Failure;

use crate::migration::channel::{Channel, FRAME_LIMIT};
use crate::migration::message::{Message, Report};
use crate::migration::{DEFAULT_PORT, tls};

/// For how long a guardian tries to tell of a release.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(600);

/// For how long anybody tries to tell that a program was not released. The target does not start it anyway.
const WITHDRAWAL_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts.
const INTERVAL: Duration = Duration::from_millis(300);

/// Whom to tell, of what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handover {
    /// The program's.
    pub id: String,
    /// Where the target listens.
    pub to: Address,
    /// Name that its certificate must have.
    pub server_name: String,
    /// Who we are.
    pub files: tls::Files,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What is no address (the user's fault).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Something else than a port follows a bracket.
    #[error("`]` is not followed by `:PORT`")]
    NoColon,
    /// It has no host.
    #[error("there is no host in it")]
    NoHost,
    /// The port is none.
    #[error("`{port}` is no port")]
    Port {
        /// What stands there.
        port: String,
    },
}

impl std::str::FromStr for Address {
    type Err = AddressError;

    /// `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`, or an IPv6 address alone.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or(AddressError::NoColon)?)),
            None if text.matches(':').count() > 1 => (text, None),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        let port = port.map(|port| port.parse().map_err(|_| AddressError::Port { port: port.to_owned() }));
        Ok(Self {
            host: host.to_owned(),
            port: port.transpose()?.unwrap_or(DEFAULT_PORT),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What has become of a program that was released.
#[derive(Debug)]
pub enum Outcome {
    /// It runs on the target.
    Running {
        /// Its process id there.
        pid: i32,
    },
    /// It does not run; its archive is on the target.
    NotRunning {
        /// Why.
        reason: Report,
        /// Where its archive is.
        archive: String,
    },
}

impl Handover {
    /// Connects to the target.
    pub fn connect(&self, client: &tls::Client) -> Result<Channel, Failure> {
        let cannot = |why: String| {
            Failure::new(Code::NotReached, format!("{} cannot be reached", self.to))
                .note(why)
                .help("`hetckpt serve --listen ADDRESS:PORT` must run there, and nothing between may keep connections out")
        };
        let limit = Instant::now() + FRAME_LIMIT;
        let addresses = (&*self.to.host, self.to.port)
            .to_socket_addrs()
            .map_err(|e| cannot(e.to_string()))?;
        let mut why = "its name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                Ok(stream) => {
                    let mut channel = client.greet(stream, &self.server_name, limit)?;
                    channel.agree()?;
                    return Ok(channel);
                }
                Err(e) => why = format!("{address}: {e}"),
            }
        }
        Err(cannot(why))
    }

    /// Writes it down for the guardian.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let written = File::create_new(path).and_then(|mut file| file.write_all(&text));
        written.map_err(|e| {
            Failure::new(Code::CannotWrite, format!("cannot write {}", path.display())).note(e.to_string())
        })
    }

    /// Tells the target that the program is its own, until it says what has become of it or `patience` is over.
    ///
    /// `channel` is tried first.
    pub fn release(&self, channel: Option<Channel>, patience: Duration) -> Result<Outcome, Failure> {
        let message = Message::Released { id: self.id.clone() };
        match self.tell(&message, channel, patience)? {
            Message::Running { pid } => Ok(Outcome::Running { pid }),
            Message::NotRunning { reason, archive } => Ok(Outcome::NotRunning { reason, archive }),
            Message::Forgotten => Err(Failure::new(
                Code::NotHeardOf,
                format!("{} has no snapshot of the program any more", self.to),
            )
            .note("somebody has removed it from the folder of `hetckpt serve`, or another `serve` answers there")),
            other => Err(Failure::new(
                Code::NotUnderstood,
                format!("{} answers {other:?}", self.to),
            )),
        }
    }

    /// Tells the target that the program goes on here.
    pub fn withdraw(&self, channel: Option<Channel>) -> Result<(), Failure> {
        let message = Message::Withdrawn { id: self.id.clone() };
        self.tell(&message, channel, WITHDRAWAL_PATIENCE).map(drop)
    }

    /// Sends `message` until it is answered.
    fn tell(&self, message: &Message, mut channel: Option<Channel>, patience: Duration) -> Result<Message, Failure> {
        let client = tls::Client::new(&self.files)?;
        let deadline = Instant::now() + patience;
        loop {
            let connected = match channel.take() {
                Some(channel) => Ok(channel),
                None => self.connect(&client),
            };
            let answer = connected.and_then(|mut channel| {
                channel.send(message)?;
                match channel.receive()? {
                    refusal @ Message::Refused(_) => Err(channel.unexpected(&refusal)),
                    answer => Ok(answer),
                }
            });
            match answer {
                Err(_) if Instant::now() < deadline => std::thread::sleep(INTERVAL),
                answer => return answer,
            }
        }
    }
}

/// What the guardian of a `migrate` that was killed has to tell. Nobody hears of a failure: the target keeps the
/// snapshot, and says so.
pub fn conclude(path: &Path, is_released: bool) {
    let text = fs::read(path).unwrap_or_default();
    let Ok(handover) = serde_json::from_slice::<Handover>(&text) else {
        return;
    };
    let _ = match is_released {
        true => handover.release(None, GUARDIAN_PATIENCE).map(drop),
        false => handover.withdraw(None),
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_perhaps_a_port() {
        for (text, host, port) in [
            ("node", "node", DEFAULT_PORT),
            ("node:7", "node", 7),
            ("10.0.0.1:80", "10.0.0.1", 80),
            ("::1", "::1", DEFAULT_PORT),
            ("[::1]", "::1", DEFAULT_PORT),
            ("[fe80::2]:99", "fe80::2", 99),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{text}");
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }
        for text in ["", ":7", "node:", "node:99999", "[::1]7"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
