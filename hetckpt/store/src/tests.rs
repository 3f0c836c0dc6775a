//! What holds for every kind of store, on a folder and on an object store in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use age::secrecy::ExposeSecret;
use age::x25519::Identity;
use object_store::memory::InMemory;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::claim::{Claim, STALE_AFTER};
use crate::encryption::{Encryption, KeyError};
use crate::error::{Damage, StoreError};
use crate::folder::Folder;
use crate::in_place::StoredArchive;
use crate::keep::Keep;
use crate::name::{ARCHIVE, Key, RECORD, SnapshotId, object};
use crate::objects::Objects;
use crate::prune::{UNFINISHED_AFTER, Why};
use crate::record::Draft;
use crate::record::Record;
use crate::record::tests::draft;
use crate::remote::{Patience, Remote};
use crate::store::Store;
use crate::verify::State;
use crate::watch::{Watch, unwatched};

fn memory() -> Objects {
    let store = Arc::new(InMemory::new());
    let remote = Remote::of(
        store.clone(),
        Some(store),
        "root".into(),
        "memory".to_owned(),
        Patience::default(),
    );
    Objects::Remote(Box::new(remote.unwrap()))
}

fn store_of(objects: Objects, encryption: Option<Encryption>) -> Store {
    let name = "test".to_owned();
    Store {
        objects,
        encryption,
        name,
    }
}

/// Runs `body` on a store of each kind.
fn on_each(encryption: Option<&Encryption>, body: impl Fn(&Store, &Path)) {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    body(
        &store_of(Objects::Folder(Folder { root }), encryption.cloned()),
        scratch.path(),
    );
    body(&store_of(memory(), encryption.cloned()), scratch.path());
}

fn key() -> Key {
    "job-1".parse().unwrap()
}

fn encryption() -> Encryption {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), Identity::generate().to_string().expose_secret()).unwrap();
    Encryption::open(file.path()).unwrap()
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn put(store: &Store, scratch: &Path, content: &[u8]) -> Record {
    put_that_needs(store, scratch, content, &[])
}

fn put_that_needs(store: &Store, scratch: &Path, content: &[u8], needs: &[&Record]) -> Record {
    let archive = scratch.join("archive");
    fs::write(&archive, content).unwrap();
    let draft = Draft {
        needs: needs.iter().map(|record| record.id().clone()).collect(),
        ..draft(store.new_id(&key()).unwrap())
    };
    unwatched(|watch| store.put(&key(), draft, &archive, watch)).unwrap()
}

fn get(store: &Store, scratch: &Path, record: &Record) -> Result<Vec<u8>, StoreError> {
    let to = scratch.join("fetched");
    let _ = fs::remove_file(&to);
    match unwatched(|watch| store.get(&record.job, record.id(), &to, watch)) {
        Ok(_) => {
            assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
            Ok(fs::read(&to).unwrap())
        }
        Err(error) => {
            assert!(!to.exists(), "a part of an archive has its name");
            Err(error)
        }
    }
}

fn states(store: &Store) -> BTreeMap<SnapshotId, &'static str> {
    let verified = unwatched(|watch| store.verify(None, watch)).unwrap();
    verified
        .into_iter()
        .map(|snapshot| (snapshot.id, snapshot.state.name()))
        .collect()
}

#[test]
fn archives_come_back_as_they_were() {
    for encryption in [None, Some(encryption())] {
        on_each(encryption.as_ref(), |store, scratch| {
            // Encryption is slow where nothing is optimised.
            let lengths: &[usize] = match encryption {
                None => &[0, 1, 1000, (16 << 20) - 1, 16 << 20, (16 << 20) + 1, 50 << 20],
                Some(_) => &[0, 1, 1000, 65_536, 65_537, 17 << 20],
            };
            for &length in lengths {
                let content = bytes(length);
                let record = put(store, scratch, &content);
                assert_eq!(record.archive_bytes, length as u64);
                assert_eq!(record.encrypted, encryption.is_some());
                assert!(get(store, scratch, &record).unwrap() == content, "{length}");
                assert_eq!(store.latest(&key()).unwrap().unwrap(), record);
            }
            let listing = store.list(None).unwrap();
            assert_eq!((listing.records.len(), listing.unusable.len()), (lengths.len(), 0));
            assert!(listing.records.is_sorted_by(|a, b| a.id() > b.id()));
            assert!(states(store).values().all(|state| *state == "good"));
            store.remove_job(&key()).unwrap();
            assert!(store.list(None).unwrap().records.is_empty());
        });
    }
}

#[test]
fn what_was_changed_is_never_taken() {
    for encryption in [None, Some(encryption())] {
        on_each(encryption.as_ref(), |store, scratch| {
            let good = put(store, scratch, b"the one before");
            let record = put(store, scratch, &bytes(100_000));
            let name = object(&key(), record.id(), ARCHIVE);
            let stored = unwatched(|watch| {
                store.objects.read(&name, record.stored_bytes, watch, |stored| {
                    let mut all = vec![];
                    stored.read_to_end(&mut all).unwrap();
                    Ok(all)
                })
            })
            .unwrap();
            for position in [0, 40, stored.len() / 2, stored.len() - 1] {
                let mut changed = stored.clone();
                changed[position] ^= 1;
                store.objects.put(&name, &changed).unwrap();
                let error = get(store, scratch, &record).unwrap_err();
                let is_hash = matches!(
                    &error,
                    StoreError::Damaged {
                        source: Damage::Hash,
                        ..
                    }
                );
                assert!(is_hash, "{error:?}");
                assert_eq!(states(store)[record.id()], "damaged");
            }
            for cut in [0, 1, stored.len() - 1] {
                store.objects.put(&name, &stored[..cut]).unwrap();
                let error = get(store, scratch, &record).unwrap_err();
                let is_size = matches!(
                    &error,
                    StoreError::Damaged {
                        source: Damage::Size { .. },
                        ..
                    }
                );
                assert!(is_size, "{error:?}");
                assert_eq!(states(store)[record.id()], "damaged");
                assert_eq!(store.latest(&key()).unwrap().unwrap(), good);
            }
            store.objects.remove(&name).unwrap();
            assert_eq!(states(store)[record.id()], "missing");
            assert!(matches!(
                get(store, scratch, &record),
                Err(StoreError::NoSuchSnapshot { .. })
            ));
            assert_eq!(states(store)[good.id()], "good");
        });
    }
}

#[test]
fn archives_are_read_where_they_are() {
    let scratch = tempfile::tempdir().unwrap();
    let content = bytes((9 << 20) + 77);
    for encryption in [None, Some(encryption())] {
        for objects in [
            memory(),
            Objects::Folder(Folder {
                root: scratch.path().join("store"),
            }),
        ] {
            let store = store_of(objects, encryption.clone());
            let record = put(&store, scratch.path(), &content);
            let name = object(&record.job, record.id(), ARCHIVE);
            let archive = StoredArchive::open(store, name, "it", record.stored_bytes).unwrap();
            assert_eq!(archive.size_bytes(), content.len() as u64);
            let read = |offset: usize, size: usize| {
                let mut out = vec![0; size];
                let mut filled = 0;
                while filled < size {
                    match archive.read_at(&mut out[filled..], (offset + filled) as u64).unwrap() {
                        0 => break,
                        count => filled += count,
                    }
                }
                out.truncate(filled);
                assert!(content[offset.min(content.len())..].starts_with(&out));
                filled
            };
            std::thread::scope(|scope| {
                for start in [0, 1, 65_535, (2 << 20) - 1, 5 << 20, content.len() - 3] {
                    scope.spawn(move || {
                        for size in [1, 512, 70_000, 4 << 20, 9 << 20] {
                            assert_eq!(read(start, size), size.min(content_left(start)));
                        }
                    });
                }
            });
            assert_eq!(read(content.len(), 10), 0);
            assert_eq!(read(content.len() + 5, 10), 0);
        }
    }

    fn content_left(start: usize) -> usize {
        (9 << 20) + 77 - start
    }
}

#[test]
fn encrypted_archives_are_read_where_they_are_only_with_their_key_and_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let secret = encryption();
    let open = |record: &Record, key: Option<&Encryption>, bytes| {
        let root = scratch.path().join("store");
        let store = store_of(Objects::Folder(Folder { root }), key.cloned());
        let name = object(&record.job, record.id(), ARCHIVE);
        StoredArchive::open(store, name, "it", bytes).map(drop)
    };
    let root = scratch.path().join("store");
    let store = store_of(Objects::Folder(Folder { root }), Some(secret.clone()));
    let record = put(&store, scratch.path(), &bytes(200_000));
    open(&record, Some(&secret), record.stored_bytes).unwrap();
    assert!(matches!(
        open(&record, None, record.stored_bytes),
        Err(StoreError::Key(KeyError::Needed { .. }))
    ));
    assert!(matches!(
        open(&record, Some(&encryption()), record.stored_bytes),
        Err(StoreError::Key(KeyError::Other { .. }))
    ));
    assert!(matches!(
        open(&record, Some(&secret), record.stored_bytes - 1),
        Err(StoreError::Damaged {
            source: Damage::Encryption,
            ..
        })
    ));
}

#[test]
fn without_a_record_there_is_no_snapshot() {
    on_each(None, |store, scratch| {
        let good = put(store, scratch, b"good");
        let cut_short = put(store, scratch, b"cut short");
        store.objects.remove(&object(&key(), cut_short.id(), RECORD)).unwrap();
        assert_eq!(store.latest(&key()).unwrap().unwrap(), good);
        assert_eq!(store.list(None).unwrap().records, std::slice::from_ref(&good));
        assert!(matches!(
            get(store, scratch, &cut_short),
            Err(StoreError::NoSuchSnapshot { .. })
        ));
        // Damaged records are told and hide nothing.
        store
            .objects
            .put(&object(&key(), cut_short.id(), RECORD), b"{\"format_version\": 1")
            .unwrap();
        let listing = store.list(Some(&key())).unwrap();
        assert_eq!((listing.records.len(), listing.unusable.len()), (1, 1));
        assert_eq!(store.latest(&key()).unwrap().unwrap(), good);
        assert!(store.new_id(&key()).unwrap() > *cut_short.id());
    });
}

#[test]
fn encrypted_archives_need_their_key() {
    let (ours, other) = (encryption(), encryption());
    let scratch = tempfile::tempdir().unwrap();
    let open = |encryption: Option<&Encryption>| {
        let root = scratch.path().join("store");
        store_of(Objects::Folder(Folder { root }), encryption.cloned())
    };
    let content = b"what nobody else is to read".repeat(100);
    let record = put(&open(Some(&ours)), scratch.path(), &content);
    let stored = fs::read(scratch.path().join("store").join(object(&key(), record.id(), ARCHIVE))).unwrap();
    assert!(!stored.windows(20).any(|window| window == &content[..20]));
    let error = |store: Store| match get(&store, scratch.path(), &record).unwrap_err() {
        StoreError::Key(error) => error,
        error => panic!("{error}"),
    };
    assert!(matches!(error(open(None)), KeyError::Needed { .. }));
    assert!(matches!(error(open(Some(&other))), KeyError::Other { .. }));
    assert_eq!(get(&open(Some(&ours)), scratch.path(), &record).unwrap(), content);
    // Without a key the hash can be compared all the same.
    let verified = unwatched(|watch| open(None).verify(None, watch)).unwrap();
    assert_eq!(verified[0].state, State::Good { is_locked: true });
    assert_eq!(open(Some(&ours)).local_path(&key(), record.id()).unwrap(), None);
}

#[test]
fn a_dump_may_write_into_a_folder_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("a/b");
    let store = Store::open(root.to_str().unwrap(), None).unwrap();
    let id = store.new_id(&key()).unwrap();
    let place = store.local_place(&key(), &id).unwrap().unwrap();
    fs::write(&place, b"an archive").unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o644)).unwrap();
    assert!(store.latest(&key()).unwrap().is_none());
    let record = unwatched(|watch| store.record(&key(), draft(id.clone()), watch)).unwrap();
    assert_eq!(store.latest(&key()).unwrap().unwrap(), record);
    assert_eq!(store.local_path(&key(), &id).unwrap().unwrap(), place);
    assert_eq!(get(&store, scratch.path(), &record).unwrap(), b"an archive");
    store.put_ended(&key(), 3).unwrap();
    assert_eq!(store.ended(&key()).unwrap().unwrap().exit_code, 3);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&root), mode(place.parent().unwrap())), (0o700, 0o700));
    for entry in fs::read_dir(place.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn who_waits_ends_a_transfer() {
    on_each(None, |store, scratch| {
        let record = put(store, scratch, &bytes(40 << 20));
        let archive = scratch.join("archive");
        let id = store.new_id(&key()).unwrap();
        let mut seen = 0;
        let mut progress = |done| seen = done;
        let mut watch = Watch::new(&mut progress, &|| true);
        let put = store.put(&key(), draft(id.clone()), &archive, &mut watch);
        assert!(matches!(put, Err(StoreError::Interrupted)), "{put:?}");
        let got = store.get(&key(), record.id(), &scratch.join("fetched"), &mut watch);
        assert!(matches!(got, Err(StoreError::Interrupted)), "{got:?}");
        assert!(!scratch.join("fetched").exists());
        assert!(seen < 40 << 20);
        assert_eq!(store.latest(&key()).unwrap().unwrap(), record);
    });
}

#[test]
fn a_file_that_cannot_be_written_is_not_the_stores_fault() {
    on_each(None, |store, scratch| {
        let record = put(store, scratch, b"archive");
        let to = scratch.join("no/such/folder/file");
        let error = unwatched(|watch| store.get(&key(), record.id(), &to, watch)).unwrap_err();
        assert!(matches!(error, StoreError::Local { .. }), "{error}");
        let missing = scratch.join("nothing");
        let id = store.new_id(&key()).unwrap();
        let error = unwatched(|watch| store.put(&key(), draft(id), &missing, watch)).unwrap_err();
        assert!(matches!(error, StoreError::Local { .. }), "{error}");
    });
}

fn claim(run: u64) -> Claim {
    Claim {
        host: format!("node-{run}"),
        pid: 100,
        run,
    }
}

#[test]
fn a_job_is_one_runs() {
    on_each(None, |store, _| {
        let mut first = store.claim(&key(), &claim(3)).unwrap();
        for run in [1, 2, 3] {
            let Err(StoreError::Claimed { run, host, .. }) = store.claim(&key(), &claim(run)) else {
                panic!("taken");
            };
            assert_eq!((run, &*host), (3, "node-3"));
        }
        for _ in 0..5 {
            first.renew().unwrap();
        }
        // A later run takes it at once, and the earlier one learns of it.
        let mut second = store.claim(&key(), &claim(4)).unwrap();
        assert!(matches!(first.renew(), Err(StoreError::Claimed { run: 4, .. })));
        drop(first);
        second.renew().unwrap();
        second.release().unwrap();
        // What was given up is anybody's.
        let third = store.claim(&key(), &claim(1)).unwrap();
        assert!(store.claim(&key(), &claim(1)).is_err());
        drop(third);
        store.claim(&key(), &claim(1)).unwrap().release().unwrap();
        assert!(store.list(None).unwrap().unusable.is_empty());
    });
}

#[test]
fn a_claim_that_nobody_renews_is_taken_over() {
    on_each(None, |store, _| {
        let name = match &store.objects {
            Objects::Folder(_) => "job-1/claim.7.json",
            Objects::Remote(_) => "job-1/claim.json",
        };
        let note = |age: Duration| {
            let renewed = crate::record::moment(SystemTime::now() - age);
            format!(r#"{{"format_version":1,"owner":"x","host":"h","pid":1,"run":5,"renewed":"{renewed}"}}"#)
        };
        store.objects.put(name, note(STALE_AFTER / 2).as_bytes()).unwrap();
        assert!(store.claim(&key(), &claim(5)).is_err());
        store.objects.put(name, note(STALE_AFTER * 2).as_bytes()).unwrap();
        store.claim(&key(), &claim(2)).unwrap().renew().unwrap();
        // One that cannot be understood is nobody's.
        store.remove_job(&key()).unwrap();
        store.objects.put(name, b"{").unwrap();
        store.claim(&key(), &claim(1)).unwrap();
    });
}

#[test]
fn of_many_at_the_same_moment_one_gets_the_job() {
    let scratch = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let shared = Arc::new(InMemory::new());
        let root = scratch.path().join(round.to_string());
        for kind in ["folder", "memory"] {
            let open = || match kind {
                "folder" => Objects::Folder(Folder { root: root.clone() }),
                _ => {
                    let remote = Remote::of(shared.clone(), None, "r".into(), "m".to_owned(), Patience::default());
                    Objects::Remote(Box::new(remote.unwrap()))
                }
            };
            let won: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            let store = store_of(open(), None);
                            match store.claim(&key(), &claim(1)) {
                                Ok(guard) => {
                                    std::thread::sleep(Duration::from_millis(100));
                                    drop(guard);
                                    true
                                }
                                Err(StoreError::Claimed { .. }) => false,
                                Err(error) => panic!("{error:?}"),
                            }
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            // A thread may have begun after the first had given it up.
            assert!(won.iter().filter(|&&won| won).count() >= 1, "{kind}");
        }
    }
}

#[test]
fn later_runs_that_race_leave_one_owner() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("store");
    for _ in 0..20 {
        let first = store_of(Objects::Folder(Folder { root: root.clone() }), None);
        let _old = first.claim(&key(), &claim(1));
        let owners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (2..8)
                .map(|_| {
                    let root = root.clone();
                    scope.spawn(move || {
                        let store = store_of(Objects::Folder(Folder { root }), None);
                        let Ok(mut guard) = store.claim(&key(), &claim(2)) else {
                            return 0;
                        };
                        std::thread::sleep(Duration::from_millis(150));
                        usize::from(guard.renew().is_ok())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(owners, 1);
        first.remove_job(&key()).unwrap();
    }
}

#[test]
fn pruning_removes_what_was_cut_short_but_only_after_a_day() {
    on_each(None, |store, scratch| {
        let good = put(store, scratch, b"good");
        let [no_record, no_archive] = ["a", "b"].map(|text| put(store, scratch, text.as_bytes()));
        store.objects.remove(&object(&key(), no_record.id(), RECORD)).unwrap();
        store.objects.remove(&object(&key(), no_archive.id(), ARCHIVE)).unwrap();
        if let Objects::Folder(folder) = &store.objects {
            fs::write(folder.path("job-1/.unfinished-1"), b"part").unwrap();
        }
        let now = SystemTime::now();
        let prune = |now, is_dry| store.prune_at(None, &Keep::default(), is_dry, now).unwrap();
        assert!(prune(now, false).removed.is_empty());
        let later = now + UNFINISHED_AFTER + Duration::from_secs(60);
        let planned = prune(later, true).removed;
        let removed = prune(later, false).removed;
        assert_eq!(planned, removed);
        let unfinished = matches!(store.objects, Objects::Folder(_)).then_some(Why::Unfinished);
        let expected: Vec<Why> = [Why::NoRecord, Why::Unusable].into_iter().chain(unfinished).collect();
        assert_eq!(removed.iter().map(|removal| removal.why).collect::<Vec<_>>(), expected);
        assert!(prune(later, false).removed.is_empty());
        assert_eq!(store.list(None).unwrap().records, [good]);
    });
}

#[test]
fn what_a_kept_snapshot_needs_is_kept() {
    on_each(None, |store, scratch| {
        let first = put(store, scratch, b"first");
        let unneeded = put_that_needs(store, scratch, b"unneeded", &[&first]);
        let third = put_that_needs(store, scratch, b"third", &[&first]);
        let last = put_that_needs(store, scratch, b"last", &[&first, &third]);
        assert_eq!([first.format_version, last.format_version], [1, 2]);
        let keep = Keep {
            last: 1,
            ..Keep::default()
        };
        let pruned = store.prune(None, &keep, false).unwrap();
        let removed: Vec<&str> = pruned.removed.iter().map(|removal| &*removal.name).collect();
        assert_eq!(removed, [unneeded.name()]);
        assert_eq!(store.list(None).unwrap().records, [last, third, first]);
    });
}

#[test]
fn the_only_good_snapshot_is_never_removed() {
    on_each(None, |store, scratch| {
        let good = put(store, scratch, b"good");
        let damaged = put(store, scratch, b"damaged");
        store
            .objects
            .put(&object(&key(), damaged.id(), ARCHIVE), b"cut")
            .unwrap();
        let keep = Keep {
            last: 1,
            ..Keep::default()
        };
        let pruned = store.prune(None, &keep, false).unwrap();
        assert_eq!(pruned.kept, [good]);
        assert!(pruned.removed.is_empty());
        let newer = put(store, scratch, b"newer");
        let pruned = store.prune(Some(&key()), &keep, false).unwrap();
        assert_eq!(pruned.kept, std::slice::from_ref(&newer));
        assert_eq!(pruned.removed.len(), 1);
        assert_eq!(store.list(None).unwrap().records, [newer]);
    });
}

/// A server that answers everything with what it was asked, as some do with signatures that are wrong.
fn echoing_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut asked = vec![0; 8192];
            let length = connection.read(&mut asked).unwrap_or(0);
            let told = String::from_utf8_lossy(&asked[..length]).into_owned();
            let body =
                format!("<Error><Code>SignatureDoesNotMatch</Code><StringToSign>{told}</StringToSign>{told}</Error>");
            let _ = write!(
                connection,
                "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    port
}

/// Runs the test `name` of this program again, with `variables` for its environment. True if this is that run.
fn is_within(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os("HETCKPT_TEST_WITHIN").is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("HETCKPT_TEST_WITHIN", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    false
}

const SECRETS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "AKIAQWERTZUIOP"),
    ("AWS_SECRET_ACCESS_KEY", "verysecretsecret"),
    ("AWS_SESSION_TOKEN", "sessionsecret"),
    ("AWS_ALLOW_HTTP", "true"),
];

#[test]
fn no_error_tells_a_secret() {
    if !is_within("tests::no_error_tells_a_secret", &SECRETS) {
        return;
    }
    let port = echoing_server();
    // Nobody else runs in this process.
    let store = {
        let url = url::Url::parse("s3://bucket/path").unwrap();
        let built = object_store::aws::AmazonS3Builder::from_env()
            .with_url(url.as_str())
            .with_endpoint(format!("http://127.0.0.1:{port}"));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = Arc::new(built.build().unwrap());
        let remote = Remote::of(
            built.clone(),
            Some(built),
            "path".into(),
            url.to_string(),
            Patience::default(),
        );
        store_of(Objects::Remote(Box::new(remote.unwrap())), None)
    };
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("archive");
    fs::write(&archive, bytes(20 << 20)).unwrap();
    let id = SnapshotId::new(None).unwrap();
    let errors = [
        unwatched(|watch| store.put(&key(), draft(id.clone()), &archive, watch)).unwrap_err(),
        store.record_at(&key(), &id).unwrap_err(),
        store.list(None).unwrap_err(),
        store.claim(&key(), &claim(1)).err().unwrap(),
        store.remove(&key(), &id).unwrap_err(),
    ];
    for error in errors {
        let failure = crate::failure::failure(&error);
        let told = format!("{error} {error:?} {failure:?}");
        assert!(told.contains("Forbidden") || told.contains("403"), "{told}");
        for (_, secret) in &SECRETS[..3] {
            assert!(!told.contains(secret), "{told}");
        }
        assert!(!told.contains("Signature="), "{told}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_fails_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let variables = [&SECRETS[..], &[("AWS_ENDPOINT", &endpoint)]].concat();
    if !is_within("tests::a_store_that_cannot_be_reached_fails_in_time", &variables) {
        return;
    }
    let patience = Patience {
        request: Duration::from_secs(4),
        retries: 2,
    };
    let start = std::time::Instant::now();
    let store = Store::open_with("s3://bucket/path", None, patience).unwrap();
    // In the run within, somebody listens at the first and does not answer, and nobody at the second.
    let error = store.latest(&key()).unwrap_err();
    let failure = crate::failure::failure(&error);
    assert!(failure.message.contains("s3://bucket/path"), "{failure:?}");
    assert_eq!(failure.code.as_str(), "HK0708");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let http = Store::open_with(&format!("http://{closed}/x"), None, patience).unwrap();
    assert!(http.latest(&key()).is_err());
    assert!(start.elapsed() < Duration::from_secs(30));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever is put, removed, cut off and pruned: what is listed can be got, and is what was put.
    #[test]
    fn what_is_listed_is_what_was_put(steps in proptest::collection::vec((0u8..6, any::<prop::sample::Index>(), 0usize..5000), 1..14)) {
        let scratch: TempDir = tempfile::tempdir().unwrap();
        for objects in [Objects::Folder(Folder { root: scratch.path().join("store") }), memory()] {
            let store = store_of(objects, None);
            let mut contents: BTreeMap<SnapshotId, Vec<u8>> = BTreeMap::new();
            for (step, index, length) in &steps {
                let ids: Vec<SnapshotId> = contents.keys().cloned().collect();
                let chosen = (!ids.is_empty()).then(|| index.get(&ids).clone());
                match (step, chosen) {
                    (0..=2, _) | (_, None) => {
                        let content = bytes(*length);
                        let record = put(&store, scratch.path(), &content);
                        contents.insert(record.id().clone(), content);
                    }
                    (3, Some(id)) => {
                        store.remove(&key(), &id).unwrap();
                        contents.remove(&id);
                    }
                    (4, Some(id)) => {
                        store.objects.put(&object(&key(), &id, ARCHIVE), &bytes(*length + 5001)).unwrap();
                        contents.remove(&id);
                    }
                    (_, Some(_)) => {
                        let last = u32::try_from(length % 3).unwrap();
                        let pruned = store.prune(None, &Keep { last, ..Keep::default() }, false).unwrap();
                        prop_assert!(contents.is_empty() || !pruned.kept.is_empty());
                        contents.retain(|id, _| pruned.kept.iter().any(|record| record.id() == id));
                    }
                }
                let listed = store.list(Some(&key())).unwrap().records;
                prop_assert_eq!(listed.iter().rev().map(|record| record.id().clone()).collect::<Vec<_>>(), contents.keys().cloned().collect::<Vec<_>>());
                for record in &listed {
                    prop_assert_eq!(&get(&store, scratch.path(), record).unwrap(), &contents[record.id()]);
                }
            }
        }
    }
}
