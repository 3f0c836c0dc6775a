use super::*;
use crate::migration::message::new_id;
use hetckpt_ring::failure_code::Code;

fn record(state: State) -> Record {
    Record {
        state,
        root_pid: 7,
        command: vec!["app".into()],
        owner: None,
    }
}

/// A folder with one prepared snapshot; its number.
fn prepared(folder: &Path) -> (Depot, String) {
    let depot = Depot::open(folder).unwrap();
    let id = prepare(&depot);
    (depot, id)
}

/// The number of one more.
fn prepare(depot: &Depot) -> String {
    let id = new_id().unwrap();
    let incoming = depot.begin(&id, None).unwrap();
    incoming.take(3, b"def").unwrap();
    incoming.take(0, b"abc").unwrap();
    let path = incoming.prepare(&record(State::Prepared)).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"abcdef");
    id
}

#[test]
fn what_is_prepared_outlives_us_and_is_released_once() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, id) = prepared(folder.path());
    drop(depot);
    let depot = Depot::open(folder.path()).unwrap();
    assert_eq!(depot.records(), [(id.clone(), record(State::Prepared))]);
    assert_eq!(depot.release(&id, None).unwrap(), Release::Now);
    assert_eq!(depot.release(&id, None).unwrap(), Release::Before);
    assert!(!depot.withdraw(&id, None), "it is started by now");
    assert_eq!(depot.record(&id).unwrap().state, State::Released);
    assert!(depot.file(&id, "hetsnap").exists());
}

#[test]
fn what_is_withdrawn_is_gone_and_cannot_be_released() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, id) = prepared(folder.path());
    assert!(depot.withdraw(&id, None) && depot.withdraw(&id, None));
    assert_eq!(depot.release(&id, None).unwrap(), Release::Unknown);
    assert_eq!(depot.records(), []);
    assert!(!depot.file(&id, "hetsnap").exists());
}

#[test]
fn what_is_withdrawn_while_it_comes_is_never_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let depot = Depot::open(folder.path()).unwrap();
    let id = new_id().unwrap();
    let incoming = depot.begin(&id, None).unwrap();
    assert!(depot.withdraw(&id, None));
    assert!(incoming.prepare(&record(State::Prepared)).is_err());
    assert_eq!(depot.release(&id, None).unwrap(), Release::Unknown);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["serve.lock"]);
}

#[test]
fn what_was_not_received_to_its_end_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, kept) = prepared(folder.path());
    let id = new_id().unwrap();
    drop(depot.begin(&id, None).unwrap());
    assert!(!depot.file(&id, "part").exists());
    // As if we had been killed before the archive got its name.
    fs::write(depot.file(&id, "part"), "x").unwrap();
    depot.write(&id, &record(State::Prepared)).unwrap();
    assert_eq!(depot.release(&id, None).unwrap(), Release::Unknown);
    drop(depot);
    let depot = Depot::open(folder.path()).unwrap();
    assert_eq!(depot.records(), [(kept, record(State::Prepared))]);
    assert!(!depot.file(&id, "part").exists());
}

#[test]
fn one_uses_a_folder_and_names_do_not_lead_out_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let depot = Depot::open(folder.path()).unwrap();
    assert_eq!(Depot::open(folder.path()).unwrap_err().code, Code::CannotListen);
    for id in ["", "../x", "serve"] {
        assert!(depot.begin(id, None).is_err());
        assert_eq!(depot.release(id, None).unwrap(), Release::Unknown);
        assert!(depot.record(id).is_none());
    }
}

#[test]
fn a_program_that_has_ended_leaves_its_record_and_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, id) = prepared(folder.path());
    let other = prepare(&depot);
    for (extension, text) in [("started", "{}"), ("pid", "7"), ("stdout", "x"), ("stderr", "")] {
        fs::write(depot.file(&id, extension), text).unwrap();
        fs::write(depot.file(&other, extension), text).unwrap();
    }
    depot.remove_ended(&id);
    let left = |id: &str| {
        ["hetsnap", "json", "started", "pid", "stdout", "stderr"].map(|extension| depot.file(id, extension).exists())
    };
    assert_eq!(left(&id), [true, true, false, false, true, false]);
    assert_eq!(left(&other), [true; 6]);
}

#[test]
fn what_was_killed_as_it_wrote_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, id) = prepared(folder.path());
    let other = folder
        .path()
        .join(format!("{RESULT_PREFIX}abc{}.started", new_id().unwrap()));
    let ours = folder.path().join(format!("{RESULT_PREFIX}abc{id}.started"));
    let record = folder.path().join(format!("{RECORD_PREFIX}abc"));
    for path in [&other, &ours, &record] {
        fs::write(path, "").unwrap();
    }
    depot.remove_unfinished(&id);
    assert!(other.exists() && !ours.exists());
    drop(depot);
    let _depot = Depot::open(folder.path()).unwrap();
    assert!(other.exists() && !record.exists());
}

#[test]
fn only_the_node_that_has_sent_it_says_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let depot = Depot::open(folder.path()).unwrap();
    let [owner, other] = ["a", "b"].map(|key| KeyHash(key.to_owned()));
    let id = new_id().unwrap();
    let incoming = depot.begin(&id, Some(owner.clone())).unwrap();
    // A stranger's word changes nothing while it comes, nor when it is here.
    assert!(depot.withdraw(&id, Some(&other)));
    let owned = Record {
        owner: Some(owner.clone()),
        ..record(State::Prepared)
    };
    incoming.prepare(&owned).unwrap();
    assert!(depot.withdraw(&id, Some(&other)) && depot.withdraw(&id, None));
    assert_eq!(depot.release(&id, Some(&other)).unwrap(), Release::Unknown);
    assert_eq!(depot.release(&id, Some(&owner)).unwrap(), Release::Now);
}

#[test]
fn what_nobody_releases_expires() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, released) = prepared(folder.path());
    depot.release(&released, None).unwrap();
    let forgotten = prepare(&depot);
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    assert_eq!(depot.archive_bytes(), 12);
    assert!(depot.expire(now, hour).is_empty());
    assert_eq!(depot.expire(now + 2 * hour, hour), std::slice::from_ref(&forgotten));
    assert!(depot.record(&forgotten).is_none() && !depot.file(&forgotten, "hetsnap").exists());
    assert_eq!(depot.record(&released).unwrap().state, State::Released);
    assert_eq!(depot.archive_bytes(), 6);
}
