//! Programs with connections to processes outside of their tree move, and go on with them: TCP to a third machine,
//! datagram unix sockets to whoever has the path on each node.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::outside::{self, Peer, Ticks};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use nix::sched::{CloneFlags, setns, unshare};

use super::node::{Node, ip};
use super::source::{ensure_fails, migrate};

const TCP: &str = "--tcp-established";
const UNIX: &str = "--ext-unix-sk";

/// The tests. Users' namespaces neither restore TCP connections nor have sockets of anybody outside.
pub fn tests() -> Vec<Test> {
    let tests = [
        Test::new("tcp_connections_move_with_their_address", tcp_moves),
        Test::new("sockets_are_connected_on_the_node_moved_to", unix_is_connected_there),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

/// A machine between this one and a node: a network namespace with a device to either. The programs' address leads to
/// this one at first.
struct Third {
    holder: Running,
    number: u8,
}

impl Third {
    fn new(node: &Node<'_>) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up; echo ready >&2; while sleep 1; do :; done",
        ]);
        let holder = Running::start(command)?;
        holder.wait_for_stderr("ready", PATIENCE)?;
        let third = Self {
            holder,
            number: node.number,
        };
        let n = node.number;
        let (own, programs) = (third.address(), third.programs_address());
        let (pid, init) = (third.holder.pid().to_string(), node.init.to_string());
        let link = |here: String, namespace: &[&str], there: String| {
            let mut arguments = vec!["link", "add", &here];
            arguments.extend(namespace);
            arguments.extend(["type", "veth", "peer", "name", &there, "netns", &pid]);
            ip(&arguments)
        };
        link(format!("hkc{n}"), &[], format!("hkd{n}"))?;
        link(format!("hke{n}"), &["netns", &init], format!("hkf{n}"))?;
        // This machine has the programs' address; the node gets it later.
        ip(&["addr", "add", &programs, "dev", &format!("hkc{n}")])?;
        ip(&["link", "set", &format!("hkc{n}"), "up"])?;
        ip(&["route", "add", &own, "dev", &format!("hkc{n}"), "src", &programs])?;
        node.shell(&format!("ip link set hke{n} up"))?;
        third.shell(&format!(
            "ip addr add {own} dev hkd{n}; ip link set hkd{n} up; ip link set hkf{n} up; ip route add {programs} dev hkd{n}"
        ))?;
        Ok(third)
    }

    /// Its own address.
    fn address(&self) -> String {
        format!("198.18.{}.9", self.number)
    }

    /// That of the programs which talk to it.
    fn programs_address(&self) -> String {
        format!("198.18.{}.5", self.number)
    }

    fn shell(&self, line: &str) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.pid().to_string(), "--net", "sh", "-euc", line]);
        Running::run(command, PATIENCE)?.success(line)?;
        Ok(())
    }

    /// From now on the programs' address leads to the node.
    fn lead_to_node(&self) -> Result<()> {
        self.shell(&format!(
            "ip route replace {} dev hkf{}",
            self.programs_address(),
            self.number
        ))
    }

    /// A socket of this process that listens there.
    fn listen(&self) -> Result<TcpListener> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.pid()))?;
        let address: SocketAddr = format!("{}:0", self.address()).parse()?;
        // A thread of its own, which is in that namespace for as long as it lives; the socket stays in it.
        let listening = std::thread::spawn(move || -> Result<TcpListener> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(TcpListener::bind(address)?)
        });
        listening.join().ok().context("the listening thread panicked")?
    }
}

/// Refused without the option, and where the node lacks the program's address: then the connection is as it was. Else
/// it goes on on the node, once what is sent to the address is led there.
///
/// The rules that drop packets stay where the program was: in the network of a thread, with which they go. The thread
/// is not the test runner's, on which other tests run afterwards.
fn tcp_moves(context: &mut Context) -> Result<()> {
    let moving = std::thread::scope(|scope| scope.spawn(|| tcp_moves_from_own_network(context)).join());
    moving.map_err(|_| anyhow::anyhow!("the thread of the test panicked"))?
}

fn tcp_moves_from_own_network(context: &mut Context) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    ip(&["link", "set", "lo", "up"])?;
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let third = Third::new(&node)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let listener = third.listen()?;
    let peer_address = format!("{}/{}", third.address(), listener.local_addr()?.port());
    let (job, pid) = outside::start(sandbox, &outside::answering(&peer_address), None)?;
    let mut peer = Peer::accept(&listener)?;
    peer.say("one")?;
    peer.hear("one")?;
    let files = node.authority.sign("source")?;
    let migration = |options: &[&str]| -> Result<Command> {
        let mut command = migrate(sandbox, pid, &node, &files)?;
        command.args(options);
        Ok(command)
    };

    ensure_fails(migration(&[])?, "HK0903", &[TCP])?;
    peer.say("two")?;
    peer.hear("two")?;
    let programs_address = third.programs_address();
    ensure_fails(migration(&[TCP])?, "HK0910", &[&programs_address])?;
    peer.say("three")?;
    peer.hear("three")?;

    let n = node.number;
    node.shell(&format!(
        "ip addr add {programs_address} dev hke{n}; ip route add {} dev hke{n} src {programs_address}",
        third.address()
    ))?;
    let outcome = Running::run(migration(&[TCP])?, PATIENCE)?;
    let outcome = outcome.success("migrate").with_context(|| serve.said())?;
    ensure!(
        outcome.stderr.contains("nft delete table inet CRIU-"),
        "{}",
        outcome.text()
    );
    job.wait(PATIENCE)?;
    // Said to nobody: this machine has the address too, and must not say that there is no such connection.
    peer.say("four")?;
    third.lead_to_node()?;
    peer.hear("four")?;
    peer.say("five")?;
    peer.hear("five")?;
    drop(peer);
    ended_there(&node, "end\n")
}

/// Makes sure that one program has come to the node and ended right.
fn ended_there(node: &Node<'_>, expected: &str) -> Result<()> {
    let records = node.wait_for(&["ended"])?;
    let [(record, printed)] = &records[..] else {
        anyhow::bail!("there are {records:?}");
    };
    ensure!(record["status"] == 0 && printed == expected, "{record}: {printed}");
    Ok(())
}

/// As for TCP: without the option, and where nobody has the path, it is refused, and heard here as ever; then on the
/// node.
fn unix_is_connected_there(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let path = sandbox.path("socket");
    let here = Ticks::listen(&path)?;
    let stdout = Ticks::connect(&path)?;
    let (job, pid) = outside::start(sandbox, outside::TICKING, Some(stdout))?;
    here.hear()?;
    let files = node.authority.sign("source")?;
    let migration = |options: &[&str]| -> Result<Command> {
        let mut command = migrate(sandbox, pid, &node, &files)?;
        command.args(options);
        Ok(command)
    };

    ensure_fails(migration(&[])?, "HK0903", &[UNIX])?;
    here.hear()?;
    ensure_fails(migration(&[UNIX])?, "HK0911", &[&path.display().to_string()])?;
    here.hear()?;

    let there = listen_on(&node, &path)?;
    Running::run(migration(&[UNIX])?, PATIENCE)?
        .success("migrate")
        .with_context(|| serve.said())?;
    job.wait(PATIENCE)?;
    there.hear()?;
    there.hear()?;
    Ok(())
}

/// A socket of this process that is at `path` on the node.
fn listen_on(node: &Node<'_>, path: &Path) -> Result<Ticks> {
    let there = node.reach(path);
    if let Some(folder) = there.parent() {
        fs::create_dir_all(folder)?;
    }
    Ticks::listen(&there)
}
