//! At a dump: copies of the files to carry, compressed, into the archive.
//!
//! Most is done while the program still runs, by what it maps then. When CRIU has stopped and dumped it, its images say
//! what must be there, and what has come meanwhile is added. What has gone meanwhile is in the archive by then, and
//! stays there, a member that no carried file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use procfs::process::{MMPermissions, MMapPath, Process};

use hetckpt_archive::manifest::{CarriedFile, is_plain_path};
use hetckpt_cache::folder::CacheFolder;
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_criu::needs::{NeededFile, Needs, Role};
use hetckpt_criu::rewrite::{self, Change};
use hetckpt_report::failure::Failure;
use hetckpt_report::file_size;
use hetckpt_ring::failure_code::Code;

use crate::carried::choice::Bundle;
use crate::carried::pipeline::{self, Input};
use crate::carried::{INDEX, layout};
use crate::parent::Parent;

/// Copies of files, on their way into an archive.
pub struct Packing<'a> {
    bundle: Bundle,
    /// Where the processes' paths begin.
    root: PathBuf,
    /// By the path that they have here.
    files: BTreeMap<PathBuf, CarriedFile>,
    num_packed: usize,
    /// What need not be copied.
    parent: Option<&'a Parent>,
    cache: Option<CacheFolder>,
}

impl<'a> Packing<'a> {
    /// Nothing yet. What `parent` has is not copied, and what the `cache` has is not compressed again. Paths are those
    /// of process `pid`.
    pub fn new(bundle: Bundle, pid: i32, parent: Option<&'a Parent>, cache: Option<CacheFolder>) -> Self {
        Self {
            bundle,
            root: format!("/proc/{pid}/root").into(),
            files: BTreeMap::new(),
            num_packed: 0,
            parent,
            cache,
        }
    }

    /// Has `taker` take what the processes `pids` map. What cannot be opened now is tried again in [`Packing::finish`],
    /// which tells.
    pub fn take_mapped_by(&mut self, pids: &[i32], taker: &mut dyn MemorySink) -> Result<(), Failure> {
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
            let Ok(input) = self.open(&path) else { continue };
            // By that path there may be another file by now; or it is a device.
            let is_it = |found: Metadata| found.is_file() && found.ino() == map.inode;
            if input.file.metadata().is_ok_and(is_it) {
                found.insert(path, input);
            }
        }
        self.send(found.into_values().collect(), taker)
    }

    fn send(&mut self, inputs: Vec<Input>, taker: &mut dyn MemorySink) -> Result<(), Failure> {
        let first = self.num_packed;
        self.num_packed += inputs.len();
        self.files
            .extend(pipeline::send(inputs, first, self.parent, self.cache.as_ref(), taker)?);
        Ok(())
    }

    /// Has `taker` take what is still lacking of what the images in the folder `images` need, lists what is carried
    /// there, and gives files that a restore has laid out their own paths back. Gives that list.
    ///
    /// Fails with the file that cannot be copied, and why.
    pub fn finish(
        mut self,
        images: &Path,
        needs: &Needs,
        taker: &mut dyn MemorySink,
    ) -> Result<Vec<CarriedFile>, Failure> {
        let names = original_names(&needs.files);
        let mut changes = BTreeMap::new();
        let written: BTreeSet<&Path> = paths_of(needs, Role::Output);
        let (mut carried_paths, mut lacking) = (BTreeSet::new(), vec![]);
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
            carried_paths.insert(path);
            let is_current = |known: &CarriedFile| Some(known.size_bytes) == file.regular.size;
            if !self.files.get(path).is_some_and(is_current) {
                lacking.push(self.open(path).map_err(|e| pipeline::cannot_carry(path, &e))?);
            }
        }
        self.send(lacking, taker)?;
        let carried = carried_paths.into_iter().filter_map(|path| {
            let packed = self.files.remove(path)?;
            let original = names.get(path).and_then(|original| original.to_str());
            let path = original.unwrap_or(&packed.path).to_owned();
            Some(CarriedFile { path, ..packed })
        });
        let carried: Vec<CarriedFile> = carried.collect();
        if !changes.is_empty() {
            let replaced = rewrite::replace(images, &changes);
            replaced.map_err(|why| cannot_list(images, &io::Error::other(why)))?;
        }
        if !carried.is_empty() {
            let text = serde_json::to_vec_pretty(&carried).map_err(|e| cannot_list(images, &e.into()))?;
            fs::write(images.join(INDEX), text).map_err(|e| cannot_list(images, &e))?;
        }
        Ok(carried)
    }

    /// What a restore has laid out is nobody else's and goes along in any case. A path that is no text cannot be
    /// listed.
    fn takes(&self, path: &Path) -> bool {
        path.to_str().is_some_and(is_plain_path) && (self.bundle.takes(path) || layout::original(path).is_some())
    }

    /// Opens the processes' `path`. Linux tells paths of what is mapped without links: one that has become part of it
    /// leads to what the program may not even be allowed to read. Nor is a pipe waited for that has taken the file's
    /// place.
    fn open(&self, path: &Path) -> io::Result<Input> {
        let root = File::open(&self.root)?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let file = File::from(openat2(root, path, how)?);
        Ok(Input {
            path: path.to_owned(),
            size_bytes: file.metadata()?.len(),
            file,
        })
    }
}

fn cannot_list(images: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write the list of carried files to {}", images.display());
    let help = match file_size::is_reached(error) {
        true => file_size::HELP,
        false => "make room in its folder, or carry nothing: --bundle none",
    };
    Failure::new(Code::CannotWrite, what).note(error.to_string()).help(help)
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
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use hetckpt_archive::sections::Sections;

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

    /// Keeps what it is given.
    #[derive(Default)]
    struct Shelf(BTreeMap<String, Vec<u8>>);

    impl MemorySink for Shelf {
        fn take(&mut self, name: &str, content: &mut dyn Sections) -> Result<(), Failure> {
            let mut taken = vec![];
            content
                .read_to_end(&mut taken)
                .map_err(|e| Failure::new(Code::CannotWrite, e.to_string()))?;
            assert!(self.0.insert(name.to_owned(), taken).is_none());
            Ok(())
        }
    }

    impl Shelf {
        /// Lays a file into the folder `images`, and its content, which has its hash, to `target`.
        fn unpack(&self, file: &CarriedFile, images: &Path, target: &Path) {
            let name = crate::carried::packed_name(file).unwrap();
            let packed = images.join(name);
            fs::write(&packed, &self.0[name]).unwrap();
            let _ = fs::remove_file(target);
            hetckpt_archive::carried::unpack(file, &packed, target).unwrap();
        }
    }

    /// Takes nothing.
    struct Full;

    impl MemorySink for Full {
        fn take(&mut self, _: &str, _: &mut dyn Sections) -> Result<(), Failure> {
            Err(Failure::new(Code::CannotWrite, "no space left"))
        }
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
        let mut shelf = Shelf::default();
        let mut packing = Packing::new(Bundle::All, pid, None, None);
        let early = [&paths[0], &paths[2]].map(|path| packing.open(Path::new(path)).unwrap());
        packing.send(early.into(), &mut shelf).unwrap();
        let needs = Needs {
            files: vec![mapped(&paths[0]), mapped(&paths[1]), mapped(&paths[0])],
            ..Needs::default()
        };
        let listed = packing.finish(&images, &needs, &mut shelf).unwrap();
        assert_eq!(
            listed.iter().map(|file| &file.path).collect::<Vec<_>>(),
            [&paths[0], &paths[1]]
        );
        for file in &listed {
            shelf.unpack(file, &images, &folder.path().join("unpacked"));
        }
        assert_eq!(crate::carried::read_index(&images).unwrap(), listed);

        let packing = Packing::new(Bundle::All, pid, None, None);
        assert_eq!(
            packing.finish(&images, &needs, &mut Full).unwrap_err().message,
            "no space left"
        );
        fs::remove_file(&paths[1]).unwrap();
        let packing = Packing::new(Bundle::All, pid, None, None);
        let failure = packing.finish(&images, &needs, &mut Shelf::default()).unwrap_err();
        assert!(failure.message.ends_with(&paths[1]), "{}", failure.message);
        let packing = Packing::new(Bundle::None, pid, None, None);
        assert_eq!(packing.finish(&images, &needs, &mut Full).unwrap(), []);
    }

    #[test]
    fn large_files_and_many_small_ones_come_in_whole() {
        let folder = tempfile::tempdir().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let large = folder.path().join("large");
        let bytes: Vec<u8> = (0..65usize << 20).map(|at| (at / 3 % 251) as u8).collect();
        fs::write(&large, &bytes).unwrap();
        let mut packing = Packing::new(Bundle::All, pid, None, None);
        let mut inputs = vec![packing.open(&large).unwrap()];
        for number in 0..40 {
            let path = folder.path().join(format!("{number}"));
            fs::write(&path, vec![number; usize::from(number) * 100_000]).unwrap();
            inputs.push(packing.open(&path).unwrap());
        }
        let mut shelf = Shelf::default();
        packing.send(inputs, &mut shelf).unwrap();
        assert_eq!(packing.files.len(), 41);
        for (path, file) in &packing.files {
            let target = folder.path().join("unpacked");
            shelf.unpack(file, folder.path(), &target);
            assert!(fs::read(target).unwrap() == fs::read(path).unwrap());
        }
    }

    #[test]
    fn what_was_compressed_before_comes_from_the_cache_if_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let pid = i32::try_from(std::process::id()).unwrap();
        let path = folder.path().join("x");
        let text = b"again and again ".repeat(5000);
        fs::write(&path, &text).unwrap();
        let packed = || {
            let mut packing = Packing::new(Bundle::All, pid, None, Some(CacheFolder::new(cache.clone())));
            let mut shelf = Shelf::default();
            let input = packing.open(&path).unwrap();
            packing.send(vec![input], &mut shelf).unwrap();
            let target = folder.path().join("unpacked");
            shelf.unpack(&packing.files[&path], folder.path(), &target);
            (shelf.0, fs::read(target).unwrap())
        };
        let (first, unpacked) = packed();
        assert_eq!(unpacked, text);
        let [kept] = &fs::read_dir(&cache).unwrap().flatten().collect::<Vec<_>>()[..] else {
            panic!("not one file in the cache")
        };
        assert_eq!(kept.metadata().unwrap().mode() & 0o777, 0o600);
        let written = || kept.metadata().unwrap().ino();
        let before = written();
        assert_eq!(packed(), (first.clone(), text.clone()));
        assert_eq!(written(), before, "compressed again");
        let mut damaged = fs::read(kept.path()).unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(kept.path(), damaged).unwrap();
        assert_eq!(packed(), (first.clone(), text.clone()));
        assert_ne!(written(), before, "not made again");
        fs::write(&path, "other text").unwrap();
        assert_eq!(packed().1, b"other text");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "x").unwrap();
        let mut packing = Packing::new(Bundle::All, pid, None, None);
        let input = Input {
            file: fs::OpenOptions::new().write(true).open(&path).unwrap(),
            ..packing.open(&path).unwrap()
        };
        let failure = packing.send(vec![input], &mut Shelf::default()).unwrap_err();
        assert!(failure.message.ends_with("/x"), "{}", failure.message);
    }

    #[test]
    fn links_and_pipes_that_have_taken_a_files_place_are_not_carried() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let packing = Packing::new(Bundle::All, pid, None, None);
        fs::create_dir(folder.join("of-others")).unwrap();
        fs::write(folder.join("of-others/secret"), "x").unwrap();
        std::os::unix::fs::symlink("of-others", folder.join("link")).unwrap();
        let pipe = folder.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();

        packing.open(&folder.join("of-others/secret")).unwrap();
        assert!(packing.open(&folder.join("link/secret")).is_err());
        let opened = packing.open(&pipe).unwrap();
        let mut packing = packing;
        assert!(packing.send(vec![opened], &mut Shelf::default()).is_err());
    }
}
