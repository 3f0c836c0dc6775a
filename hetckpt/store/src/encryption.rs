//! Encryption of archives: age files, to X25519 recipients.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use age::stream::{StreamReader, StreamWriter};
use age::x25519::{Identity, Recipient};
use age::{DecryptError, Decryptor, Encryptor};

/// The largest key file that is read, bytes.
const MAX_FILE_BYTES: u64 = 1 << 16;

/// What is wrong with a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file.
    #[error("cannot read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may read the secret.
    #[error("others may read the key file {} (mode {mode:04o})", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A line is neither.
    #[error("line {line} of the key file {} is neither an identity (AGE-SECRET-KEY-1…) nor a recipient (age1…)", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// Nothing is in it.
    #[error("the key file {} holds no key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The snapshot is encrypted, and there is no identity.
    #[error("the snapshot {name} is encrypted, and no identity is given")]
    Needed {
        /// The snapshot.
        name: String,
    },
    /// The snapshot is encrypted for others.
    #[error("the snapshot {name} is encrypted for another key")]
    Other {
        /// The snapshot.
        name: String,
    },
    /// It cannot be encrypted. A bug in hetckpt.
    #[error("the archive cannot be encrypted for these recipients")]
    Recipients,
}

/// Keys: whom archives are encrypted for, and, where secrets are given, what decrypts them.
#[derive(Clone)]
pub struct Encryption {
    recipients: Vec<Recipient>,
    identities: Vec<Identity>,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption")
            .field("recipients", &self.recipients.len())
            .field("identities", &self.identities.len())
            .finish()
    }
}

impl Encryption {
    /// Reads the key file `path`, as `age-keygen` writes it, or a list of recipients, which can only encrypt.
    ///
    /// # Errors
    /// [`KeyError`]: also if the file holds a secret and others than its owner may read it.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let cannot = |source| KeyError::Read {
            path: path.to_owned(),
            source,
        };
        let file = fs::File::open(path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode() & 0o7777;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(cannot)?;
        let (mut recipients, mut identities) = (vec![], vec![]);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Ok(identity) = line.parse::<Identity>() {
                recipients.push(identity.to_public());
                identities.push(identity);
            } else if let Ok(recipient) = line.parse::<Recipient>() {
                recipients.push(recipient);
            } else {
                return Err(KeyError::Line {
                    path: path.to_owned(),
                    line: number + 1,
                });
            }
        }
        let path = path.to_owned();
        if recipients.is_empty() {
            return Err(KeyError::Empty { path });
        }
        if !identities.is_empty() && mode & 0o077 != 0 {
            return Err(KeyError::Mode { path, mode });
        }
        Ok(Self { recipients, identities })
    }

    /// True if it can decrypt.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        !self.identities.is_empty()
    }

    /// Encrypts what is written into it into `out`; `finish` ends it.
    pub(crate) fn encrypt<W: Write>(&self, out: W) -> Result<io::Result<StreamWriter<W>>, KeyError> {
        let recipients = self.recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(|_| KeyError::Recipients)?;
        Ok(encryptor.wrap_output(out))
    }

    /// Decrypts what is read from `stored`.
    pub(crate) fn decrypt<R: Read>(&self, stored: R) -> Result<StreamReader<R>, DecryptError> {
        let identities = self.identities.iter().map(|identity| identity as &dyn age::Identity);
        Decryptor::new(stored)?.decrypt(identities)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use age::secrecy::ExposeSecret;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn secrets_that_others_may_read_are_refused() {
        let identity = Identity::generate();
        let secret = format!("# made today\n{}\n", identity.to_string().expose_secret());
        assert!(Encryption::open(file(&secret, 0o600).path()).unwrap().has_identity());
        for mode in [0o640, 0o604, 0o644] {
            let error = Encryption::open(file(&secret, mode).path()).unwrap_err();
            assert!(matches!(error, KeyError::Mode { .. }), "{error}");
            assert!(!error.to_string().contains("AGE-SECRET"));
        }
        let public = identity.to_public().to_string();
        assert!(!Encryption::open(file(&public, 0o644).path()).unwrap().has_identity());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(matches!(
            Encryption::open(file("# nothing\n", 0o600).path()),
            Err(KeyError::Empty { .. })
        ));
        let damaged = "AGE-SECRET-KEY-1QQQ";
        let error = Encryption::open(file(damaged, 0o600).path()).unwrap_err();
        assert!(matches!(error, KeyError::Line { line: 1, .. }) && !error.to_string().contains("QQQ"));
        assert!(matches!(
            Encryption::open(Path::new("/nowhere")),
            Err(KeyError::Read { .. })
        ));
    }
}
