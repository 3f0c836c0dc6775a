//! Whoever is not known to the authority, or does not keep to the protocol, gets nowhere and disturbs nobody.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::authority::{Authority, Files};
use super::node::{Node, PORT};
use super::source::{Source, ensure_fails};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("migrate_between_strangers", strangers),
        Test::new("serve_hears_no_nonsense", nonsense),
        Test::new("serve_has_limited_patience", patience),
    ]
}

fn strangers(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let other = Authority::new(sandbox, "other")?;
    // Many attempts: each is to find it at work.
    let source = Source::start_again(sandbox, &PACED, "cpu", calibration::lasting_on("cpu", &PACED, 3)?)?;
    let good = node.authority.sign("source")?;
    let serve = node.serve(&["--device", "cpu"])?;

    // Here: signed by another authority, expired, one's own certificate with another's key, a key for all to read.
    let foreign = Files {
        ca: good.ca.clone(),
        ..other.sign("source")?
    };
    ensure_fails(
        source.migrate_as(&node, &foreign)?,
        "HK1004",
        &["do not trust each other"],
    )?;
    let expired = node.authority.sign_until("source", 2020)?;
    ensure_fails(source.migrate_as(&node, &expired)?, "HK1004", &["xpired"])?;
    let mixed = Files {
        key: foreign.key.clone(),
        ..good.clone()
    };
    ensure_fails(source.migrate_as(&node, &mixed)?, "HK1001", &["source-2100.pem"])?;
    let open = Files {
        key: sandbox.path("open.key"),
        ..good.clone()
    };
    fs::copy(&good.key, &open.key)?;
    fs::set_permissions(&open.key, fs::Permissions::from_mode(0o640))?;
    ensure_fails(source.migrate_as(&node, &open)?, "HK1001", &["chmod 600"])?;
    // The target has the certificate of another.
    let mut misnamed = source.migrate_as(&node, &good)?;
    misnamed.args(["--server-name", "another-node"]);
    ensure_fails(misnamed, "HK1004", &["another-node"])?;
    let said = serve.said();
    ensure!(!said.contains("offered by"), "strangers came to offer: {said}");
    serve.kill()?;

    // There: the same.
    for files in [
        Files {
            ca: good.ca.clone(),
            ..other.sign(&node.address())?
        },
        node.authority.sign_until(&node.address(), 2020)?,
    ] {
        let serve = node.serve_as(&files, &["--device", "cpu"], |_| ())?;
        ensure_fails(source.migrate_as(&node, &good)?, "HK1004", &["do not trust each other"])?;
        serve.kill()?;
    }
    node.ensure_has_nothing()?;
    source.ensure_runs_on()
}

/// A caller with a good certificate, who says what it likes.
fn caller(node: &Node<'_>) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let files = node.authority.sign("caller")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.ca)?)?;
    let chain = vec![CertificateDer::from_pem_file(&files.cert)?];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key)?)?;
    config.alpn_protocols = vec![b"hetckpt-migrate".to_vec()];
    let stream = TcpStream::connect((node.address(), PORT))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(node.address())?)?;
    Ok(StreamOwned::new(connection, stream))
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[kind][..], &length, content].concat()
}

/// Says `bytes`, and gives all that is answered.
fn answer(node: &Node<'_>, bytes: &[u8]) -> Result<String> {
    let mut stream = caller(node)?;
    stream.write_all(bytes)?;
    stream.flush()?;
    let mut said = vec![];
    let mut piece = [0; 4096];
    // Until it is closed, however.
    while let Ok(size @ 1..) = stream.read(&mut piece) {
        said.extend_from_slice(&piece[..size]);
        if String::from_utf8_lossy(&said).contains("\"kind\":\"refused\"") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn nonsense(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let hello = frame(0, br#"{"kind":"hello","protocol":1,"written_by":"test"}"#);
    let with_hello = |rest: &[u8]| [&hello[..], rest].concat();
    let id = "0123456789abcdef0123456789abcdef";
    let offer = |id: &str| {
        format!(
            r#"{{"kind":"offer","id":"{id}","root_pid":7,"command":[],"pids":[],"pid_space":"","device_bytes":[],"estimated_bytes":0,"has_terminal":false,"working_folder":"/"}}"#
        )
    };
    let good_offer = frame(0, offer(id).as_bytes());
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (frame(0, br#"{"kind":"hello","protocol":99}"#), "version 99"),
        (frame(0, b"GET / HTTP/1.1"), "does not begin with its version"),
        (with_hello(&[0, 255, 255, 255, 255]), "are the most"),
        (with_hello(&[9, 0, 0, 0, 0]), "frames of kind 9"),
        (
            with_hello(&frame(0, br#"{"kind":"running","pid":1}"#)),
            "another question",
        ),
        (
            with_hello(&frame(0, offer("../../etc/passwd").as_bytes())),
            "is not a valid id",
        ),
        // Data beyond the end of the world; data that is no archive.
        ([with_hello(&good_offer), frame(1, &[255; 20])].concat(), "larger than"),
        (
            [
                with_hello(&good_offer),
                frame(1, b"\0\0\0\0\0\0\0\0not an archive"),
                frame(0, br#"{"kind":"complete","size_bytes":14,"manifest_hash":""}"#),
            ]
            .concat(),
            "is not a hetckpt archive",
        ),
    ];
    for (bytes, part) in cases {
        let said = answer(&node, &bytes)?;
        ensure!(
            said.contains(part),
            "`{part}` was to be answered: {said}\n{}",
            serve.said()
        );
    }
    for message in ["released", "withdrawn"] {
        let message = format!(r#"{{"kind":"{message}","id":"{id}"}}"#);
        let said = answer(&node, &with_hello(&frame(0, message.as_bytes())))?;
        ensure!(said.contains("forgotten"), "{said}");
    }
    // No TLS at all.
    let mut stream = TcpStream::connect((node.address(), PORT))?;
    stream.write_all(&hello)?;
    stream.read_to_end(&mut vec![]).ok();
    node.ensure_has_nothing()?;

    let source = Source::start_again(sandbox, &PACED, "cpu", calibration::lasting_on("cpu", &PACED, 3)?)?;
    Running::run(source.migrate(&node)?, PATIENCE)?.success("migrate, after all that")?;
    let records = node.wait_for(&["ended"])?;
    ensure!(records.len() == 1 && records[0].0["status"] == 0, "{records:?}");
    Ok(())
}

/// Callers that say nothing, or a byte now and then, are turned out; and while they are there, they keep nobody else
/// out.
fn patience(context: &mut Context) -> Result<()> {
    const IDLE: usize = 100;
    let node = Node::new(&context.sandbox)?;
    let _serve = node.serve(&["--device", "cpu"])?;
    let started = Instant::now();
    let call = || TcpStream::connect((node.address(), PORT));
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| call()).collect::<Result<_, _>>()?;
    let said = answer(&node, &frame(0, b"{}")).context("a caller beside idle ones")?;
    ensure!(said.contains("does not begin with its version"), "{said}");
    drop(idle);
    let (mut silent, mut slow) = (call()?, call()?);
    for stream in [&silent, &slow] {
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    // The beginning of a greeting that never ends.
    slow.write_all(&[22, 3, 1, 2, 0])?;
    let mut is_open = true;
    while is_open {
        std::thread::sleep(Duration::from_millis(500));
        is_open = slow.write_all(&[1]).is_ok() && started.elapsed() < Duration::from_secs(60);
    }
    silent.read_to_end(&mut vec![]).ok();
    ensure!(
        started.elapsed() < Duration::from_secs(30),
        "they were heard for {:?}",
        started.elapsed()
    );
    Ok(())
}
