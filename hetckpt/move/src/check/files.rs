//! Are the files that the program had open or mapped here, and the same? And if not: what does a restore do about it?
//!
//! # Source
//! CRIU, `criu/files-reg.c`: a file must have the size, mode and build id of the dump, but the size of one that is only
//! appended to. What is carried is told by its whole content instead.

use hetckpt_ring::failure_code::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hetckpt_archive::carried;
use hetckpt_archive::manifest::{CarriedFile, Manifest};
use hetckpt_archive::parallel::{cores, map_in_parallel};
use hetckpt_criu::needs::{NeededFile, Needs, Role};
use hetckpt_criu::rewrite::Change;
use hetckpt_report::finding::Finding;

use crate::adaptation::Adaptation;
use crate::check::build_id;
use crate::check::process_files::{self, Fate};

/// Code of the failure that these problems are.
const CODE: Code = Code::FileDiffers;

/// How many are named.
const MAX_NAMED: usize = 5;

/// What a restore does so that CRIU finds the files it wants.
#[derive(Debug, Default)]
pub struct Plan {
    /// Carried files that this node lacks, or has others in place of.
    pub lacking: Vec<CarriedFile>,
    /// Paths and modes that become others.
    pub changes: BTreeMap<Vec<u8>, Change>,
    /// Outputs that are cut back to the size that they had at the dump.
    pub rewound: BTreeMap<PathBuf, u64>,
    /// Files that were stdin, stdout or stderr and are not opened again, by the number of the descriptor.
    pub replaced: BTreeMap<usize, PathBuf>,
}

/// Problems, each said in a few words that name the file.
#[derive(Default)]
struct Complaints {
    files: BTreeSet<String>,
    outputs: BTreeSet<String>,
    working_folders: BTreeSet<String>,
    process_files: BTreeSet<String>,
}

/// Compares all of them, and plans what to do about those that differ, as far as `adaptation` allows it.
pub fn examine(needs: &Needs, manifest: &Manifest, adaptation: &Adaptation) -> (Plan, Vec<Finding>) {
    let mut plan = Plan::default();
    let mut complaints = Complaints::default();
    if adaptation.own_stdio {
        plan.replaced = replaced(needs, manifest);
    }
    let carried: BTreeMap<&[u8], &CarriedFile> = manifest.index.files.iter().map(|f| (f.path.as_bytes(), f)).collect();
    let unchanged = unchanged(needs, &carried);
    let mut seen = BTreeSet::new();
    for file in &needs.files {
        if !seen.insert((&file.regular.name, file.role)) || plan.replaced.values().any(|p| p == file.path()) {
            continue;
        }
        if let Some(fate) = process_files::fate(file.path(), &needs.processes, &needs.pids) {
            plan.examine_process_file(file, &fate, &mut complaints);
            continue;
        }
        match (file.role, carried.get(&*file.regular.name)) {
            (Role::Mapped | Role::Other, Some(packed)) => plan.examine_carried(file, packed, &unchanged),
            (Role::Mapped | Role::Other, _) => complaints.files.extend(complaint(file)),
            (Role::Output, _) => plan.examine_output(file, adaptation, &mut complaints),
            (Role::Folder, _) => plan.examine_folder(file, &mut complaints.files),
            (Role::WorkingFolder, _) => match &adaptation.cwd {
                Some(folder) => plan.examine_new_cwd(file, folder, &mut complaints),
                None => plan.examine_folder(file, &mut complaints.working_folders),
            },
        }
    }
    let paths: BTreeSet<&Path> = needs.files.iter().map(NeededFile::path).collect();
    let findings = plan.findings(paths.len(), &complaints);
    (plan, findings)
}

/// Those of the carried files that this machine has as they were: all of them are read, several at once.
fn unchanged<'a>(needs: &'a Needs, carried: &BTreeMap<&[u8], &CarriedFile>) -> BTreeSet<&'a Path> {
    let is_mapped = |file: &&NeededFile| matches!(file.role, Role::Mapped | Role::Other);
    let mapped = needs.files.iter().filter(is_mapped);
    let wanted = mapped.filter_map(|file| Some((file.path(), *carried.get(&*file.regular.name)?)));
    let wanted: Vec<(&Path, &CarriedFile)> = wanted.collect::<BTreeMap<_, _>>().into_iter().collect();
    let found = map_in_parallel(cores(), wanted.len(), |at| {
        let (path, packed) = wanted[at];
        carried::is_same(packed, path).is_ok_and(|same| same).then_some(path)
    });
    found.into_iter().flatten().collect()
}

/// Takes out what an archive carries: whatever is at its path by then, a restore goes on with it.
pub fn leave_out_carried(needs: &mut Needs, manifest: &Manifest) {
    let carried: BTreeSet<&[u8]> = manifest.index.files.iter().map(|file| file.path.as_bytes()).collect();
    let is_carried =
        |file: &NeededFile| matches!(file.role, Role::Mapped | Role::Other) && carried.contains(&*file.regular.name);
    needs.files.retain(|file| !is_carried(file));
}

impl Plan {
    /// Bytes of the files to be laid out.
    pub fn lacking_bytes(&self) -> u64 {
        self.lacking
            .iter()
            .fold(0, |sum: u64, file| sum.saturating_add(file.size_bytes))
    }

    fn examine_carried(&mut self, file: &NeededFile, packed: &CarriedFile, unchanged: &BTreeSet<&Path>) {
        let path = file.path();
        match (unchanged.contains(path), fs::metadata(path)) {
            (true, Ok(found)) => self.accept_mode(file, &found),
            _ if self.lacking.contains(packed) => {}
            _ => self.lacking.push(packed.clone()),
        }
    }

    /// CRIU compares permissions too; where the content is the same, or there is none, they do not matter.
    fn accept_mode(&mut self, file: &NeededFile, found: &Metadata) {
        if file.regular.mode.is_some_and(|mode| mode != found.mode()) {
            let change = self.changes.entry(file.regular.name.clone()).or_default();
            change.mode = Some(found.mode());
        }
    }

    /// A file of one of the processes that the restore is to make.
    fn examine_process_file(&mut self, file: &NeededFile, fate: &Fate, complaints: &mut Complaints) {
        let name = file.path().display();
        let complaint = match fate {
            Fate::ComesBack(like) => match fs::metadata(like) {
                Ok(found) => return self.accept_mode(file, &found),
                Err(e) => format!("{name} cannot come back: {}", absent(like, &e)),
            },
            Fate::IsLost(why) => format!("{name} cannot come back: {why}"),
        };
        complaints.process_files.insert(complaint);
    }

    fn examine_folder(&mut self, file: &NeededFile, complaints: &mut BTreeSet<String>) {
        let name = file.path().display();
        match fs::metadata(file.path()) {
            Ok(found) if found.is_dir() => self.accept_mode(file, &found),
            Ok(_) => drop(complaints.insert(format!("{name} is no folder"))),
            Err(e) => drop(complaints.insert(absent(file.path(), &e))),
        }
    }

    /// The program goes on in `folder` instead.
    fn examine_new_cwd(&mut self, file: &NeededFile, folder: &Path, complaints: &mut Complaints) {
        let found = fs::canonicalize(folder).and_then(|path| fs::metadata(&path).map(|found| (path, found)));
        match found {
            Ok((path, found)) if found.is_dir() => {
                let change = Change {
                    path: Some(path.as_os_str().as_bytes().to_vec()),
                    mode: Some(found.mode()),
                };
                self.changes.insert(file.regular.name.clone(), change);
            }
            Ok((path, _)) => drop(
                complaints
                    .working_folders
                    .insert(format!("{} is no folder", path.display())),
            ),
            Err(e) => drop(complaints.working_folders.insert(absent(folder, &e))),
        }
    }

    fn examine_output(&mut self, file: &NeededFile, adaptation: &Adaptation, complaints: &mut Complaints) {
        let Some(complaint) = complaint(file) else { return };
        let path = file.path();
        let grown = fs::metadata(path).ok().zip(file.regular.size).filter(|(found, size)| {
            found.is_file() && found.len() > *size && file.regular.mode.is_none_or(|mode| mode == found.mode())
        });
        match grown {
            Some((_, size)) if adaptation.rewind_outputs => drop(self.rewound.insert(path.to_owned(), size)),
            _ => drop(complaints.outputs.insert(complaint)),
        }
    }

    fn findings(&self, num_files: usize, complaints: &Complaints) -> Vec<Finding> {
        let mut findings = vec![];
        if complaints.files.is_empty() {
            let lacking: Vec<String> = self.lacking.iter().map(|file| file.path.clone()).collect();
            let found = match lacking.as_slice() {
                [] => format!("all {num_files} are here, or will be, as they were"),
                _ => format!(
                    "{} of {num_files} are missing here or others, and come out of the snapshot: {}",
                    lacking.len(),
                    named(lacking.iter(), ", ")
                ),
            };
            findings.push(Finding::ok("files", found));
        }
        for (check, wrong, help) in [
            (
                "files",
                &complaints.files,
                "put the files of the machine where the program was dumped at the same paths, or have the dump carry them (`hetckpt dump --bundle all`)",
            ),
            (
                "process-files",
                &complaints.process_files,
                "dump the program when it does not have that open",
            ),
            (
                "output-files",
                &complaints.outputs,
                "`--rewind-outputs` cuts files that have grown back to what they were and keeps a copy, `--own-stdio` gives the program this command's stdin, stdout and stderr; else put the files back",
            ),
            (
                "working-folder",
                &complaints.working_folders,
                "make the folder, or name another one: --cwd FOLDER",
            ),
        ] {
            if !wrong.is_empty() {
                let mut finding = Finding::problem(check, named(wrong.iter(), "; "), help);
                finding.code = Some(CODE);
                findings.push(finding);
            }
        }
        if !self.rewound.is_empty() {
            let names = self.rewound.keys().map(|path| path.display().to_string());
            let found = format!("to be cut back: {}", named(names, ", "));
            findings.push(Finding::ok("output-files", found));
        }
        findings
    }
}

/// The first few, and how many more there are.
fn named(items: impl ExactSizeIterator<Item = impl AsRef<str>>, between: &str) -> String {
    let more = items.len().saturating_sub(MAX_NAMED);
    let mut text = items.take(MAX_NAMED).fold(String::new(), |mut text, item| {
        if !text.is_empty() {
            text.push_str(between);
        }
        text + item.as_ref()
    });
    if more > 0 {
        text += &format!("{between}and {more} more");
    }
    text
}

/// Regular files that were stdin, stdout or stderr of the root.
fn replaced(needs: &Needs, manifest: &Manifest) -> BTreeMap<usize, PathBuf> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    let stdio = manifest
        .header
        .stdio
        .iter()
        .enumerate()
        .take(3)
        .map(|(fd, name)| (fd, PathBuf::from(name)));
    stdio
        .filter(|(_, path)| {
            let is_it = |file: &&NeededFile| file.path() == path && file.role != Role::Mapped;
            let found = needs.files.iter().find(is_it);
            found.is_some_and(|file| file.regular.mode.is_some_and(|mode| mode & S_IFMT == S_IFREG))
        })
        .collect()
}

fn absent(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => format!("{} is missing", path.display()),
        _ => format!("{}: {error}", path.display()),
    }
}

/// What is wrong with a file, if anything.
fn complaint(file: &NeededFile) -> Option<String> {
    let path = file.path();
    let name = path.display();
    let regular = &file.regular;
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(e) => return Some(absent(path, &e)),
    };
    if let Some(mode) = regular.mode.filter(|mode| *mode != found.mode()) {
        return Some(format!("{name} has mode {:o} instead of {mode:o}", found.mode()));
    }
    if !found.is_file() {
        return None;
    }
    if let Some(size) = regular
        .size
        .filter(|size| *size != found.len() && !is_appended_to(regular.flags))
    {
        return Some(format!("{name} has {} bytes instead of {size}", found.len()));
    }
    let is_other = !regular.build_id.is_empty() && build_id::read(path).is_some_and(|id| id != regular.build_id);
    is_other.then(|| format!("{name} is another build"))
}

/// True if the file was open for appending alone.
fn is_appended_to(flags: u32) -> bool {
    const O_ACCMODE: u32 = 0o3;
    const O_WRONLY: u32 = 0o1;
    const O_APPEND: u32 = 0o2000;
    flags & O_ACCMODE == O_WRONLY && flags & O_APPEND != 0
}

/// Is the working folder of a program that may come here? What else it needs is known when it is stopped.
pub fn working_folder(folder: &Path) -> Finding {
    const CHECK: &str = "working-folder";
    match folder.is_dir() {
        true => Finding::ok(CHECK, format!("{} is there", folder.display())),
        false => Finding {
            code: Some(Code::FileDiffers),
            ..Finding::problem(
                CHECK,
                format!("{} is missing", folder.display()),
                "make the folder, or name another one: --cwd FOLDER",
            )
        },
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
