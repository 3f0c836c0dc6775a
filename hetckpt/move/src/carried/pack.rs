//! At a dump: copies of the files to carry, compressed, among the images.
//!
//! Most is done while the program still runs, by what it maps then. When CRIU has stopped and dumped it, its images say
//! what must be there, and what has come meanwhile is added.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use parking_lot::Mutex;
use procfs::process::{MMPermissions, MMapPath, Process};

use hetckpt_archive::carried;
use hetckpt_archive::manifest::{CarriedFile, is_plain_path};
use hetckpt_archive::parallel::{cores, in_parallel};
use hetckpt_criu::needs::{NeededFile, Needs, Role};
use hetckpt_criu::rewrite::{self, Change};

use crate::carried::choice::Bundle;
use crate::carried::{INDEX, NAME_START, PREFIX, layout};
use crate::parent::Parent;

/// Copies of files, on their way into an archive.
pub struct Packing<'a> {
    images: &'a Path,
    bundle: Bundle,
    /// Where the processes' paths begin.
    root: PathBuf,
    /// By the path that they have here.
    files: BTreeMap<PathBuf, CarriedFile>,
    num_packed: usize,
    /// What need not be copied.
    parent: Option<&'a Parent>,
}

impl<'a> Packing<'a> {
    /// Nothing yet; the copies go into the folder `images`, but for what `parent` has. Paths are those of process
    /// `pid`.
    pub fn new(images: &'a Path, bundle: Bundle, pid: i32, parent: Option<&'a Parent>) -> Self {
        Self {
            images,
            bundle,
            root: format!("/proc/{pid}/root").into(),
            files: BTreeMap::new(),
            num_packed: 0,
            parent,
        }
    }

    /// Copies what the processes `pids` map. What cannot be had now is tried again in [`Packing::finish`], which tells.
    pub fn take_mapped_by(&mut self, pids: &[i32]) {
        let mut found = BTreeMap::new();
        let maps = pids
            .iter()
            .filter_map(|&pid| Process::new(pid).and_then(|p| p.maps()).ok());
        for map in maps.flatten() {
            let MMapPath::Path(path) = map.pathname else { continue };
            let is_private = map.perms.contains(MMPermissions::PRIVATE);
            if !is_private || !self.takes(&path) || found.contains_key(&path) {
                continue;
            }
            let Ok(file) = self.open(&path) else { continue };
            // By that path there may be another file by now.
            if let Ok(metadata) = file.metadata()
                && metadata.ino() == map.inode
            {
                found.insert(path, (metadata.len(), file));
            }
        }
        self.pack_all(found);
    }

    /// Copies files, several at once, the largest first.
    fn pack_all(&mut self, found: BTreeMap<PathBuf, (u64, File)>) {
        let mut files: Vec<(PathBuf, u64, File)> = found
            .into_iter()
            .map(|(path, (size, file))| (path, size, file))
            .collect();
        files.sort_by_key(|(_, size, _)| Reverse(*size));
        let first = self.num_packed;
        self.num_packed += files.len();
        let packed = Mutex::new(vec![]);
        let (images, parent) = (self.images, self.parent);
        let all = in_parallel(cores(), files.len(), |at, (): &mut ()| {
            let (path, _, file) = &files[at];
            if let Ok(carried) = file
                .try_clone()
                .and_then(|file| pack_one(images, first + at, path, file, parent))
            {
                packed.lock().push((path.clone(), carried));
            }
            Ok::<(), Infallible>(())
        });
        all.unwrap_or_else(|never| match never {});
        self.files.extend(packed.into_inner());
    }

    /// Copies what is still lacking of what the images in the folder need, lists what is carried, and gives files
    /// that a restore has laid out their own paths back.
    ///
    /// Fails with the file that cannot be copied, and why.
    pub fn finish(mut self, needs: &Needs) -> Result<(), (PathBuf, io::Error)> {
        let names = original_names(&needs.files);
        let mut carried = vec![];
        let mut changes = BTreeMap::new();
        let written: BTreeSet<&Path> = paths_of(needs, Role::Output);
        let mapped = needs
            .files
            .iter()
            .filter(|file| file.role == Role::Mapped && !written.contains(file.path()));
        let mut seen = BTreeSet::new();
        for file in mapped.filter(|file| seen.insert(file.path())) {
            let path = file.path();
            if let Some(original) = names.get(path) {
                let original = original.as_os_str().as_encoded_bytes().to_vec();
                changes.insert(
                    file.regular.name.clone(),
                    Change {
                        path: Some(original),
                        mode: None,
                    },
                );
            }
            if !self.takes(path) {
                continue;
            }
            let is_current = |known: &CarriedFile| Some(known.size_bytes) == file.regular.size;
            if !self.files.get(path).is_some_and(is_current) {
                let packed = self.open(path).and_then(|file| self.pack(path, file));
                packed.map_err(|e| (path.to_owned(), e))?;
            }
            if let Some(packed) = self.files.remove(path) {
                let original = names.get(path).and_then(|original| original.to_str());
                let path = original.unwrap_or(&packed.path).to_owned();
                carried.push(CarriedFile { path, ..packed });
            }
        }
        for unneeded in self.files.values() {
            let name = unneeded.member.strip_prefix(PREFIX).unwrap_or_default();
            let _ = fs::remove_file(self.images.join(name));
        }
        let of_images = |e: io::Error| (self.images.to_owned(), e);
        if !changes.is_empty() {
            rewrite::replace(self.images, &changes).map_err(|why| of_images(io::Error::other(why)))?;
        }
        if carried.is_empty() {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&carried).map_err(|e| of_images(e.into()))?;
        fs::write(self.images.join(INDEX), text).map_err(of_images)
    }

    /// What a restore has laid out is nobody else's and goes along in any case. A path that is no text cannot be
    /// listed.
    fn takes(&self, path: &Path) -> bool {
        path.to_str().is_some_and(is_plain_path) && (self.bundle.takes(path) || layout::original(path).is_some())
    }

    /// Opens the processes' `path`. Linux tells paths of what is mapped without links: one that has become part of it
    /// leads to what the program may not even be allowed to read. Nor is a pipe waited for that has taken the file's
    /// place.
    fn open(&self, path: &Path) -> io::Result<File> {
        let root = File::open(&self.root)?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(openat2(root, path, how)?.into())
    }

    fn pack(&mut self, path: &Path, file: File) -> io::Result<()> {
        let packed = pack_one(self.images, self.num_packed, path, file, self.parent);
        self.num_packed += 1;
        if let Some(old) = self.files.insert(path.to_owned(), packed?) {
            let name = old.member.strip_prefix(PREFIX).unwrap_or_default();
            let _ = fs::remove_file(self.images.join(name));
        }
        Ok(())
    }
}

/// Copies the file `path` into the folder `images`, as number `number`. Of one that `parent` has the copy is empty.
fn pack_one(images: &Path, number: usize, path: &Path, file: File, parent: Option<&Parent>) -> io::Result<CarriedFile> {
    let name = format!("{NAME_START}-{number}.zst");
    let target = images.join(&name);
    let text = path.to_str().unwrap_or_default();
    let member = format!("{PREFIX}{name}");
    if let Some(parent) = parent {
        let described = carried::describe(&file, text, &member)?;
        if parent.file(&described).is_some() {
            File::create_new(&target)?;
            return Ok(described);
        }
    }
    let packed = carried::pack(file, text, &member, &target);
    if packed.is_err() {
        // The first failure is the one to tell.
        let _ = fs::remove_file(&target);
    }
    packed
}

fn paths_of(needs: &Needs, role: Role) -> BTreeSet<&Path> {
    let files = needs.files.iter().filter(|file| file.role == role);
    files.map(NeededFile::path).collect()
}

/// The paths that laid out files get back. One stays where it is if there would be two files of its name.
fn original_names(files: &[NeededFile]) -> BTreeMap<PathBuf, PathBuf> {
    let mut by_original: BTreeMap<PathBuf, BTreeSet<&Path>> = BTreeMap::new();
    for path in files.iter().map(NeededFile::path) {
        let name = layout::original(path).unwrap_or_else(|| path.to_owned());
        by_original.entry(name).or_default().insert(path);
    }
    let mut names = BTreeMap::new();
    for (original, paths) in by_original {
        if let (Some(path), 1) = (paths.first(), paths.len())
            && **path != *original
        {
            names.insert(path.to_path_buf(), original);
        }
    }
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use hetckpt_criu::image_messages::Regular;

    fn mapped(path: &str) -> NeededFile {
        let regular = Regular {
            name: path.as_bytes().to_vec(),
            size: fs::metadata(path).ok().map(|found| found.len()),
            ..Regular::default()
        };
        NeededFile {
            regular,
            role: Role::Mapped,
        }
    }

    #[test]
    fn laid_out_files_get_their_paths_back_unless_two_would_have_one() {
        let files = [
            mapped("/tmp/hetckpt-files-a/root/opt/x"),
            mapped("/tmp/hetckpt-files-a/root/lib/libc.so.6"),
            mapped("/lib/libc.so.6"),
            mapped("/lib/libm.so.6"),
        ];
        let names = original_names(&files);
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            [("/tmp/hetckpt-files-a/root/opt/x".into(), "/opt/x".into())]
        );
    }

    #[test]
    fn what_images_need_is_carried_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images");
        fs::create_dir(&images).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let paths: Vec<String> = ["early", "late", "unneeded"]
            .iter()
            .map(|name| {
                let path = folder.path().join(name);
                fs::write(&path, name).unwrap();
                path.to_str().unwrap().to_owned()
            })
            .collect();
        let mut packing = Packing::new(&images, Bundle::All, pid, None);
        for path in [&paths[0], &paths[2]] {
            let file = packing.open(Path::new(path)).unwrap();
            packing.pack(Path::new(path), file).unwrap();
        }
        let needs = Needs {
            files: vec![mapped(&paths[0]), mapped(&paths[1]), mapped(&paths[0])],
            ..Needs::default()
        };
        packing.finish(&needs).unwrap();
        let listed = crate::carried::read_index(&images).unwrap();
        assert_eq!(
            listed.iter().map(|file| &file.path).collect::<Vec<_>>(),
            [&paths[0], &paths[1]]
        );
        assert_eq!(fs::read_dir(&images).unwrap().count(), 3, "two files and their list");

        fs::remove_file(&paths[1]).unwrap();
        fs::remove_dir_all(&images).unwrap();
        fs::create_dir(&images).unwrap();
        let (path, _) = Packing::new(&images, Bundle::All, pid, None)
            .finish(&needs)
            .unwrap_err();
        assert_eq!(path, Path::new(&paths[1]));
        Packing::new(&images, Bundle::None, pid, None).finish(&needs).unwrap();
    }

    #[test]
    fn links_and_pipes_that_have_taken_a_files_place_are_not_carried() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let packing = Packing::new(&folder, Bundle::All, pid, None);
        fs::create_dir(folder.join("of-others")).unwrap();
        fs::write(folder.join("of-others/secret"), "x").unwrap();
        std::os::unix::fs::symlink("of-others", folder.join("link")).unwrap();
        let pipe = folder.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();

        packing.open(&folder.join("of-others/secret")).unwrap();
        assert!(packing.open(&folder.join("link/secret")).is_err());
        let opened = packing.open(&pipe).unwrap();
        assert!(carried::pack(opened, "/pipe", "files/0.zst", &folder.join("0.zst")).is_err());
    }
}
