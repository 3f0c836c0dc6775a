//! An authority for a test, and what it signs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use hetckpt_e2e::sandbox::Sandbox;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, with its files in a folder.
pub struct Authority<'a> {
    sandbox: &'a Sandbox,
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// What it has signed: names and years.
    signed: RefCell<BTreeSet<(String, i32)>>,
}

/// A node's files.
#[derive(Clone)]
pub struct Files {
    /// Certificate.
    pub cert: PathBuf,
    /// Key.
    pub key: PathBuf,
    /// The authority that it trusts.
    pub ca: PathBuf,
}

impl<'a> Authority<'a> {
    /// Makes one in a new folder of the test, `name`.
    pub fn new(sandbox: &'a Sandbox, name: &str) -> Result<Self> {
        let folder = sandbox.path(name);
        fs::create_dir_all(&folder)?;
        let mut params = CertificateParams::new(vec![])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        fs::write(folder.join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self {
            sandbox,
            folder,
            issuer: Issuer::new(params, key),
            signed: RefCell::default(),
        })
    }

    /// Signs a certificate for `name`, once.
    pub fn sign(&self, name: &str) -> Result<Files> {
        self.sign_until(name, 2100)
    }

    /// As [`Authority::sign`], valid until that year.
    pub fn sign_until(&self, name: &str, year: i32) -> Result<Files> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        let file = |kind: &str| self.folder.join(format!("{name}-{year}.{kind}"));
        let files = Files {
            cert: file("pem"),
            key: file("key"),
            ca: self.folder.join("ca.pem"),
        };
        if !self.signed.borrow_mut().insert((name.to_owned(), year)) {
            // Somebody may be reading them.
            return Ok(files);
        }
        fs::write(&files.cert, params.signed_by(&key, &self.issuer)?.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600))?;
        self.sandbox.give(&files.key)?;
        Ok(files)
    }
}

impl Files {
    /// As options.
    pub fn options(&self) -> [&std::ffi::OsStr; 6] {
        [
            "--cert".as_ref(),
            self.cert.as_ref(),
            "--key".as_ref(),
            self.key.as_ref(),
            "--ca".as_ref(),
            self.ca.as_ref(),
        ]
    }
}
