//! A snapshot to be restored or packed, in whichever of its two forms it is given.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hetckpt_archive::backing::RemoteBytes;
use hetckpt_archive::carried::{self as packed_file, CarriedError};
use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::{CarriedFile, Manifest};
use hetckpt_archive::reader::Archive;
use hetckpt_criu::image_error::ImageError;
use hetckpt_criu::image_streamer::ImageStreamer;
use hetckpt_criu::images;
use hetckpt_criu::memory_sink::Sizes;
use hetckpt_criu::needs::{self, Needs};
use hetckpt_criu::rewrite::{self, Change};
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_state::names::state_file;

use crate::byte_service::ByteService;
use crate::carried::{self, layout};
use crate::folder_error::FolderError;
use crate::snapshot_files::{self, Origin};

/// How far into a log CRIU's version is looked for.
const LOG_LINES: usize = 50;

/// An archive, or a folder of images.
pub enum Snapshot {
    /// The archive, opened.
    Archive(Arc<Archive>),
    /// The folder, and the manifest that an archive of it would have.
    Images(PathBuf, Box<Manifest>),
}

/// What a restore reads from a snapshot while it goes on.
#[derive(Default)]
pub struct Services {
    /// Where the device servers read an archive that is no file of this machine.
    pub archive: Option<ByteService>,
    /// Where CRIU reads images.
    pub images: Option<ImageStreamer>,
}

/// What is to be restored.
#[derive(Clone)]
pub enum Given {
    /// An archive, or a folder of images.
    Path(PathBuf),
    /// An archive that is no file of this machine: what errors call it, and its bytes.
    Remote(PathBuf, Arc<dyn RemoteBytes>),
}

impl Snapshot {
    /// Opens what is `given`.
    pub fn open_given(given: &Given) -> Result<Self, Failure> {
        match given {
            Given::Path(path) => Self::open(path),
            Given::Remote(name, bytes) => Archive::open_remote(name, Arc::clone(bytes))
                .map(|archive| Self::Archive(Arc::new(archive)))
                .map_err(archive_error::failure),
        }
    }

    /// Opens `path`, whatever it is.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        match path.is_dir() {
            true => of_images(path).map(|(folder, manifest)| Self::Images(folder, Box::new(manifest))),
            false => Archive::open(path)
                .map(|archive| Self::Archive(Arc::new(archive)))
                .map_err(archive_error::failure),
        }
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        match self {
            Self::Archive(archive) => archive.manifest(),
            Self::Images(_, manifest) => manifest,
        }
    }

    /// A folder with CRIU's images that describe the program: its own, or one in `scratch`, into which they are
    /// unpacked.
    pub fn descriptions(&self, scratch: &Path) -> Result<PathBuf, Failure> {
        match self {
            Self::Archive(archive) => {
                let folder = new_folder(scratch, "images")?;
                snapshot_files::unpack_descriptions(archive, &folder).map_err(archive_error::failure)?;
                Ok(folder)
            }
            Self::Images(folder, _) => Ok(folder.clone()),
        }
    }

    /// What a restore of it needs of the machine; `descriptions` is the folder that [`Snapshot::descriptions`] gave.
    pub fn needs(&self, descriptions: &Path) -> Result<Needs, Failure> {
        needs::read(descriptions).map_err(|why| match self {
            Self::Archive(archive) => Failure::new(
                Code::NoDump,
                format!("{} holds no complete dump", archive.path().display()),
            )
            .note(why.to_string()),
            Self::Images(folder, _) => no_dump(folder, &why.into()),
        })
    }

    /// What the process `pid` had on its device, but the memory's content, as its file holds it.
    pub fn packed_state(&self, pid: u32) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Archive(archive) => snapshot_files::packed_state(archive, pid).map_err(archive_error::failure),
            Self::Images(folder, _) => {
                let path = folder.join(state_file(pid));
                fs::read(&path).map_err(|source| {
                    let name = path.display().to_string();
                    no_dump(folder, &FolderError::Read { name, source })
                })
            }
        }
    }

    /// Unpacks the rest into the folder that [`Snapshot::descriptions`] gave, but carried files, and what is served as
    /// long as the services are there: the memory of processes, to CRIU, and on a socket in `scratch` the bytes of an
    /// archive that is elsewhere, to device servers. Then a restore finds all there, and where the archive, which must
    /// stay, has device memory.
    pub fn complete(&self, descriptions: &Path, scratch: &Path, needs: &Needs) -> Result<Services, Failure> {
        let Self::Archive(archive) = self else {
            return Ok(Services::default());
        };
        let socket = scratch.join("archive.sock");
        let service = match archive.remote() {
            None => None,
            Some(bytes) => {
                let expected_bytes = snapshot_files::memory_bytes(archive);
                let service = ByteService::start(&socket, Arc::clone(bytes), expected_bytes);
                Some(service.map_err(|e| cannot_write(&socket, &e))?)
            }
        };
        let served = service.is_some().then_some(&*socket);
        let huge_pages = needs.has_huge_pages;
        snapshot_files::unpack_rest(archive, descriptions, served, huge_pages).map_err(archive_error::failure)?;
        let streamed = snapshot_files::streamed_images(archive, huge_pages);
        let images = match streamed.is_empty() {
            true => None,
            false => {
                let total = snapshot_files::streamed_bytes(archive, &streamed);
                let tell = remark::byte_progress("restoring memory", total);
                let streamer = ImageStreamer::start(descriptions, Arc::clone(archive), streamed, tell);
                Some(streamer.map_err(|e| cannot_write(descriptions, &e))?)
            }
        };
        Ok(Services {
            archive: service,
            images,
        })
    }

    /// Writes the content of a carried file to `target`, which is new. Only a whole file with the hash stays.
    pub fn unpack_carried(&self, file: &CarriedFile, target: &Path) -> Result<(), Failure> {
        let folder = match self {
            Self::Archive(archive) => {
                return archive.extract_carried(file, target).map_err(|error| match error {
                    ArchiveError::Io {
                        action: "create" | "write",
                        source,
                        ..
                    } => layout::cannot_write(target, &source),
                    other => archive_error::failure(other),
                });
            }
            Self::Images(folder, _) => folder,
        };
        let name = carried::packed_name(file).unwrap_or_default();
        packed_file::unpack(file, &folder.join(name), target).map_err(|error| match error {
            CarriedError::Io { ref path, ref source } => layout::cannot_write(path, source),
            CarriedError::Damaged { .. } => Failure::new(Code::Damaged, error.to_string())
                .help("take another copy of the archive: this one cannot be restored"),
        })
    }

    /// Makes sure that what [`Snapshot::complete`] has left in archives has its hashes: a server that reads it finds
    /// damage, but does not know an archive.
    pub fn verify_left(&self) -> Result<(), Failure> {
        match self {
            Self::Archive(archive) => snapshot_files::verify_memory(archive).map_err(archive_error::failure),
            Self::Images(..) => Ok(()),
        }
    }

    /// Makes the `changes` to the paths of files in the folder `images`, which [`Snapshot::complete`] has completed. If
    /// that is the snapshot's own it stays as it was: then this gives another one in `scratch`, of links to it.
    pub fn changed(
        &self,
        images: PathBuf,
        scratch: &Path,
        changes: &BTreeMap<Vec<u8>, Change>,
    ) -> Result<PathBuf, Failure> {
        if changes.is_empty() {
            return Ok(images);
        }
        let bad = |why: ImageError| no_dump(&images, &why.into());
        match self {
            Self::Archive(_) => {
                rewrite::replace(&images, changes).map_err(bad)?;
                Ok(images)
            }
            Self::Images(..) => {
                let changed = rewrite::files(&images, changes).map_err(bad)?;
                let linked = new_folder(scratch, "changed")?;
                link_all_but(rewrite::FILES_IMAGE, &images, &linked)
                    .and_then(|()| fs::write(linked.join(rewrite::FILES_IMAGE), changed))
                    .map_err(|e| cannot_write(&linked, &e))?;
                Ok(linked)
            }
        }
    }
}

fn new_folder(parent: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = parent.join(name);
    fs::create_dir(&folder).map_err(|e| cannot_write(&folder, &e))?;
    Ok(folder)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::CannotWrite, format!("cannot write {}", path.display()))
        .note(error.to_string())
        .help("set TMPDIR to a folder where you may write and where there is room")
}

/// Makes a link in `to` to each file in `from` but the one called `name`.
fn link_all_but(name: &str, from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != name {
            std::os::unix::fs::symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The folder's own path and its manifest, without members.
///
/// Fails if it does not hold a whole dump.
pub fn of_images(folder: &Path) -> Result<(PathBuf, Manifest), Failure> {
    let bad = |why: FolderError| no_dump(folder, &why);
    let folder = fs::canonicalize(folder).map_err(|e| bad(FolderError::Folder(e)))?;
    let dumped = images::read(&folder).map_err(|e| bad(e.into()))?;
    let inventory = fs::metadata(folder.join("inventory.img")).and_then(|found| found.modified());
    let origin = Origin {
        root_pid: dumped.root_pid,
        command: dumped.command,
        stdio: dumped.stdio,
        criu_version: logged_version(&folder).unwrap_or_default(),
        created_unix: inventory
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |time| time.as_secs()),
        clocks: None,
        streamed: Sizes::new(),
        borrows: false,
    };
    let carried = carried::read_index(&folder).map_err(bad)?;
    let manifest = snapshot_files::manifest(&folder, origin, carried).map_err(bad)?;
    if dumped.plugins.iter().any(|name| name == "hetgpu") && manifest.index.processes.is_empty() {
        return Err(bad(FolderError::NoDeviceState));
    }
    Ok((folder, manifest))
}

/// The failure for a folder of images that cannot be used.
pub fn no_dump(folder: &Path, why: &FolderError) -> Failure {
    Failure::new(Code::NoDump, format!("{} holds no complete dump", folder.display()))
        .note(why.to_string())
        .help("name the folder that `criu dump -D` has filled, after a dump that succeeded")
}

/// The version of CRIU that the log of a dump begins with. Images do not have it.
fn logged_version(folder: &Path) -> Option<String> {
    let path = folder.join("dump.log");
    if !fs::symlink_metadata(&path).ok()?.is_file() {
        return None;
    }
    let lines = BufReader::new(fs::File::open(path).ok()?).lines().take(LOG_LINES);
    // `(00.000012) Version: 4.2.1 (gitid 0)`
    let version = lines.map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("Version: ")?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    version.filter(|version| version.len() < 64)
}
