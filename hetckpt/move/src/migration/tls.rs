//! TLS for both ends: own certificate and key, and the authority that must have signed the other's.
//!
//! All cryptography is rustls's. TLS 1.3 only; each end shows a certificate, and neither talks to one whose certificate
//! the authority has not signed. There is no way to do without.

use hetckpt_ring::failure_code::Code;
use rustls::pki_types::pem::PemObject;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned, version};
use serde::{Deserialize, Serialize};

use hetckpt_report::failure::Failure;

use crate::migration::channel::{Channel, Transport};
use crate::migration::deadline::Timed;
use crate::migration::peer::{KeyHash, refused};

/// What the ends agree to talk, so that neither takes another service for the other.
const ALPN: &[u8] = b"hetckpt-migrate";

/// The files that a node proves itself with, and judges the other by.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Files {
    /// This node's certificate, PEM, with those between it and the authority if there are any.
    #[arg(long, value_name = "FILE", env = "HETCKPT_TLS_CERT")]
    pub cert: PathBuf,

    /// The certificate's private key, PEM. Nobody else may be able to read the file.
    #[arg(long, value_name = "FILE", env = "HETCKPT_TLS_KEY")]
    pub key: PathBuf,

    /// The authority's certificate, PEM: whoever shows one that it has signed is trusted, nobody else.
    #[arg(long, value_name = "FILE", env = "HETCKPT_TLS_CA")]
    pub ca: PathBuf,
}

/// What the files hold.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl Files {
    /// The same files, wherever this process goes.
    pub fn absolute(&self) -> Result<Self, Failure> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|e| unusable(path, e.to_string()));
        Ok(Self {
            cert: absolute(&self.cert)?,
            key: absolute(&self.key)?,
            ca: absolute(&self.ca)?,
        })
    }

    fn read(&self) -> Result<Identity, Failure> {
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Failure> {
            let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
                .map_err(|e| unusable(path, e.to_string()))?
                .collect();
            match found {
                Ok(found) if !found.is_empty() => Ok(found),
                Ok(_) => Err(unusable(path, "it holds no certificate".to_owned())),
                Err(e) => Err(unusable(path, e.to_string())),
            }
        };
        let chain = certificates(&self.cert)?;
        require_private(&self.key)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| unusable(&self.key, e.to_string()))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.ca)? {
            roots.add(root).map_err(|e| unusable(&self.ca, e.to_string()))?;
        }
        Ok(Identity {
            chain,
            key,
            roots,
            provider: Arc::new(ring::default_provider()),
        })
    }
}

/// Whoever has the key is this node, for all others.
fn require_private(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).map_err(|e| unusable(path, e.to_string()))?;
    match found.mode() & 0o077 {
        0 => Ok(()),
        _ => {
            Err(unusable(path, "others than its owner may use it".to_owned())
                .help(format!("chmod 600 {}", path.display())))
        }
    }
}

fn unusable(path: &Path, why: String) -> Failure {
    Failure::new(Code::Certificate, format!("{} cannot be used for TLS", path.display()))
        .note(why)
        .help("docs/migration.md says how to make the authority, certificates and keys")
}

/// The end that calls.
#[derive(Debug)]
pub struct Client(Arc<ClientConfig>);

impl Client {
    /// With these files.
    pub fn new(files: &Files) -> Result<Self, Failure> {
        let identity = files.read()?;
        let mut config = ClientConfig::builder_with_provider(identity.provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| unusable(&files.cert, e.to_string()))?
            .with_root_certificates(identity.roots)
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(|e| unusable(&files.cert, e.to_string()))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Makes sure that who answers is `name`, and shows it who we are.
    pub fn greet(&self, stream: TcpStream, name: &str, limit: Instant) -> Result<Channel, Failure> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            Failure::new(
                Code::NotReached,
                format!("`{name}` is neither a host name nor an address"),
            )
        })?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), server).map_err(|e| refused(name, e.to_string()))?;
        let mut stream = StreamOwned::new(connection, Timed::new(stream, limit));
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .map_err(|e| handshake_failed(name, &e))?;
        }
        require_protocol(stream.conn.alpn_protocol(), name)?;
        Ok(Channel::new(Box::new(stream), name))
    }
}

/// The end that answers.
#[derive(Debug)]
pub struct Server(Arc<ServerConfig>);

impl Server {
    /// With these files.
    pub fn new(files: &Files) -> Result<Self, Failure> {
        let identity = files.read()?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(identity.roots), Arc::clone(&identity.provider))
                .build()
                .map_err(|e| unusable(&files.ca, e.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(identity.provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| unusable(&files.cert, e.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|e| unusable(&files.cert, e.to_string()))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Sessions are not taken up again; and nothing arrives at the other end that was not said.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Makes sure that the authority knows who calls.
    pub fn greet(&self, stream: TcpStream, peer: &str, limit: Instant) -> Result<Channel, Failure> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(|e| refused(peer, e.to_string()))?;
        let mut stream = StreamOwned::new(connection, Timed::new(stream, limit));
        while stream.conn.is_handshaking() {
            if let Err(e) = stream.conn.complete_io(&mut stream.sock) {
                // So that the caller comes to read why.
                stream.sock.drain();
                return Err(handshake_failed(peer, &e));
            }
        }
        require_protocol(stream.conn.alpn_protocol(), peer)?;
        let key = key_of(stream.conn.peer_certificates().unwrap_or_default());
        let key = key.ok_or_else(|| refused(peer, "it shows no certificate that can be read".to_owned()))?;
        Ok(Channel::new(Box::new(stream), peer).of(key))
    }
}

/// Makes sure that both ends mean this protocol: TLS itself goes on with an end that names none.
fn require_protocol(agreed: Option<&[u8]>, peer: &str) -> Result<(), Failure> {
    match agreed == Some(ALPN) {
        true => Ok(()),
        false => Err(refused(
            peer,
            "it does not say that it means to migrate (ALPN)".to_owned(),
        )),
    }
}

/// The key that the certificate at the chain's end is for, as a hash: a node that renews its certificate stays the same
/// node.
fn key_of(chain: &[CertificateDer<'_>]) -> Option<KeyHash> {
    let certificate = ParsedCertificate::try_from(chain.first()?).ok()?;
    let key = certificate.subject_public_key_info();
    Some(KeyHash(blake3::hash(&key).to_hex().to_string()))
}

impl<C, S> Transport for StreamOwned<C, Timed>
where
    C: std::ops::DerefMut<Target = rustls::ConnectionCommon<S>> + Send,
    S: rustls::SideData,
{
    fn set_limit(&mut self, limit: Instant) {
        self.sock.limit = limit;
    }

    fn has_something_to_say(&self) -> bool {
        self.sock.is_readable()
    }
}

fn handshake_failed(peer: &str, error: &std::io::Error) -> Failure {
    // What rustls found is inside; everything else is the network's.
    let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match found {
        Some(found) => refused(peer, found.to_string()),
        None => Failure::new(
            Code::ConnectionBroke,
            format!("{peer} broke off before it had shown who it is"),
        )
        .note(error.to_string()),
    }
}
