//! Control connections: messages with descriptors, refusals, ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread;

use hetckpt_ring::control_socket::{ControlSocket, listen};
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::runtime_dir::{list_servers, pid_of_socket, socket_path};

fn pair() -> (ControlSocket, ControlSocket) {
    let (a, b) = UnixStream::pair().unwrap();
    (ControlSocket::new(a), ControlSocket::new(b))
}

#[test]
fn descriptors_travel_with_their_message() {
    let (mut client, mut server) = pair();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"hello").unwrap();
    file.rewind().unwrap();
    client.send(&Request::Capture, &[file.as_fd()]).unwrap();
    client.send(&Request::Status, &[]).unwrap();
    let (first, mut fds) = server.receive::<Request>().unwrap().unwrap();
    assert_eq!(first, Request::Capture);
    let mut text = String::new();
    File::from(fds.remove(0)).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fds.len()), ("hello", 0));
    let (second, fds) = server.receive::<Request>().unwrap().unwrap();
    assert_eq!((second, fds.len()), (Request::Status, 0));
}

#[test]
fn a_refusal_is_an_error_with_its_code() {
    let (mut client, mut server) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            server.receive::<Request>().unwrap().unwrap();
            let refusal = Response::Error {
                code: "HK0501".to_owned(),
                message: "no such device".to_owned(),
            };
            server.send(&refusal, &[]).unwrap();
        });
        match client.ask(&Request::Pause { limit_ms: 0 }, &[]) {
            Err(RingError::Refused { code, message }) => {
                assert_eq!((code.as_str(), message.as_str()), ("HK0501", "no such device"))
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_end_of_the_other_side_is_noticed() {
    let (mut client, server) = pair();
    assert!(client.is_alive());
    drop(server);
    assert!(!client.is_alive());
    assert!(client.receive::<Response>().unwrap().is_none());
    assert!(matches!(client.send(&Request::Status, &[]), Err(RingError::ServerGone)));
}

#[test]
fn hostile_messages_are_refused() {
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut server = ControlSocket::new(a);
    b.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(matches!(server.receive::<Request>(), Err(RingError::TooLarge { .. })));
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut server = ControlSocket::new(a);
    b.write_all(&5_u32.to_le_bytes()).unwrap();
    b.write_all(b"{nope").unwrap();
    assert!(matches!(server.receive::<Request>(), Err(RingError::Decode { .. })));
    b.write_all(&50_u32.to_le_bytes()).unwrap();
    drop(b);
    assert!(matches!(server.receive::<Request>(), Err(RingError::ServerGone)));
}

#[test]
fn sockets_are_private_replace_stale_ones_and_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket_path(dir.path(), 4711);
    assert!(matches!(ControlSocket::connect(&path), Err(RingError::NoServer { .. })));
    drop(listen(&path).unwrap());
    assert!(
        matches!(ControlSocket::connect(&path), Err(RingError::NoServer { .. })),
        "stale"
    );
    let listener = listen(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let _client = ControlSocket::connect(&path).unwrap();
    listener.accept().unwrap();
    std::fs::write(dir.path().join("app-x.sock"), "").unwrap();
    assert_eq!(list_servers(dir.path()), [4711]);
    assert_eq!((pid_of_socket(&path), pid_of_socket(dir.path())), (Some(4711), None));
}
