//! A store in an object store.
//!
//! Each request is repeated if the store does not answer, with growing intervals, and all together have a limit. Large
//! objects go in parts, several at a time. All runs on one thread, in [`Remote::run`]; what reads, hashes and encrypts
//! is on another, and the two share no more than a few parts.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::SigSet;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

use crate::error::StoreError;
use crate::folder::Found;
use crate::location::BadUrl;
use crate::parts::{Part, PartReader, PartWriter, Sizes};
use crate::record::MAX_RECORD_BYTES;
use crate::redact::told;
use crate::watch::Watch;

/// How often whoever waits is asked whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How often a part is tried again that has failed for a reason that may pass, beside the requests' own repetitions.
const PART_RETRIES: u32 = 2;

/// Environment variable with the longest time for a request of an object store, seconds.
pub const TIMEOUT_ENV: &str = "HETCKPT_STORE_TIMEOUT";

/// How long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest time for one request with its repetitions.
    pub request: Duration,
    /// How often a request is repeated at most.
    pub retries: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(300),
            retries: 8,
        }
    }
}

impl Patience {
    /// What the environment says, else the default.
    #[must_use]
    pub fn of_environment() -> Self {
        let seconds = std::env::var(TIMEOUT_ENV).ok().and_then(|text| text.parse().ok());
        let request = seconds.filter(|&seconds| seconds > 0).map(Duration::from_secs);
        let default = Self::default();
        Self {
            request: request.unwrap_or(default.request),
            ..default
        }
    }
}

/// The store.
pub(crate) struct Remote {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    parts: Option<Arc<dyn MultipartStore>>,
    root: Path,
    name: String,
    limit: Duration,
}

/// A part's number, its length in bytes, and what came of it within its time.
type SentPart = (usize, u64, Result<Result<PartId, Error>, tokio::time::error::Elapsed>);

/// Version of an object, for [`Remote::put_if`].
#[derive(Clone, Debug)]
pub(crate) struct Version(UpdateVersion);

/// An object that a request is about, for errors.
struct About<'a> {
    store: &'a str,
    limit: Duration,
    action: &'static str,
    object: &'a str,
}

impl About<'_> {
    fn failed(&self, error: &Error) -> StoreError {
        let (store, object) = (self.store.to_owned(), self.object.to_owned());
        let action = self.action;
        match error {
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                StoreError::NotSupported { store, action, object }
            }
            _ => StoreError::Remote {
                store,
                action,
                object,
                source: told(error),
            },
        }
    }

    fn silent(&self) -> StoreError {
        StoreError::Silent {
            store: self.store.to_owned(),
            action: self.action,
            object: self.object.to_owned(),
            seconds: self.limit.as_secs(),
        }
    }

    /// The outcome of `request`, which has its time.
    async fn ask<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        self.ask_for(request).await?.map_err(|error| self.failed(&error))
    }

    async fn ask_for<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, StoreError> {
        tokio::time::timeout(self.limit, request)
            .await
            .map_err(|_| self.silent())
    }
}

/// What `build` has made, as both of its traits.
macro_rules! both {
    ($built:expr) => {{
        let built = Arc::new($built);
        let parts: Arc<dyn MultipartStore> = built.clone();
        (built as Arc<dyn ObjectStore>, Some(parts))
    }};
}

impl Remote {
    /// Opens the store at `url`. Credentials and settings come from the environment.
    pub(crate) fn open(url: &Url, name: String, patience: Patience) -> Result<Self, StoreError> {
        // If another has been chosen, that does too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bad = |source| StoreError::Url {
            url: name.clone(),
            source,
        };
        let settings = |error: Error| bad(BadUrl::Settings(told(&error)));
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: patience.retries,
            retry_timeout: patience.request,
        };
        // Some of these requests may fail and be repeated within the time that all have.
        let request = format!("{} s", (patience.request.as_secs() / 3).max(1));
        let options = [
            (ClientConfigKey::Timeout, request.as_str()),
            (ClientConfigKey::ConnectTimeout, "5 s"),
        ];
        let text = url.as_str();
        let (store, parts) = match url.scheme() {
            "s3" | "s3a" => {
                let builder = AmazonS3Builder::from_env().with_url(text).with_retry(retry);
                let builder = options.iter().fold(builder, |builder, (key, value)| {
                    builder.with_config(AmazonS3ConfigKey::Client(*key), *value)
                });
                both!(builder.build().map_err(settings)?)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(text).with_retry(retry);
                let builder = options.iter().fold(builder, |builder, (key, value)| {
                    builder.with_config(GoogleConfigKey::Client(*key), *value)
                });
                both!(builder.build().map_err(settings)?)
            }
            "http" | "https" => {
                let mut base = url.clone();
                base.set_path("/");
                let allow_http = url.scheme() == "http" && is_http_allowed();
                let client = options
                    .iter()
                    .fold(ClientOptions::new(), |client, (key, value)| {
                        client.with_config(*key, *value)
                    })
                    .with_allow_http(allow_http);
                let builder = HttpBuilder::new().with_url(base.as_str()).with_retry(retry);
                let built = builder.with_client_options(client).build().map_err(settings)?;
                (Arc::new(built) as Arc<dyn ObjectStore>, None)
            }
            _ => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(text).with_retry(retry);
                let builder = options.iter().fold(builder, |builder, (key, value)| {
                    builder.with_config(AzureConfigKey::Client(*key), *value)
                });
                both!(builder.build().map_err(settings)?)
            }
        };
        let root = Path::from_url_path(url.path()).map_err(|_| bad(BadUrl::Path))?;
        Self::of(store, parts, root, name, patience)
    }

    /// The store `store`, below `root`.
    pub(crate) fn of(
        store: Arc<dyn ObjectStore>,
        parts: Option<Arc<dyn MultipartStore>>,
        root: Path,
        name: String,
        patience: Patience,
    ) -> Result<Self, StoreError> {
        // Names are looked up on other threads. A signal is for whoever waits for it, as dumps do, and not for these.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_start(|| {
                // Where it fails, the signal only comes to the wrong one.
                let _ = SigSet::all().thread_block();
            })
            .build();
        Ok(Self {
            runtime: runtime.map_err(StoreError::Runtime)?,
            store,
            parts,
            root,
            name,
            limit: patience.request,
        })
    }

    fn about<'a>(&'a self, action: &'static str, object: &'a str) -> About<'a> {
        About {
            store: &self.name,
            limit: self.limit,
            action,
            object,
        }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.root.clone(), |path, part| path.join(part))
    }

    /// The outcome of `request`.
    fn run<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime.block_on(request)
    }

    /// What is in the small object `name`, if it is there, and its version.
    pub(crate) fn get(&self, name: &str) -> Result<Option<(Vec<u8>, Version)>, StoreError> {
        self.run(small(&self.store, self.path(name), self.about("read", name)))
    }

    /// The same of many, in their order.
    pub(crate) fn get_all(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.run(async {
            let mut asked = VecDeque::new();
            let mut all = Vec::with_capacity(names.len());
            let mut left = names.iter();
            loop {
                while asked.len() < Sizes::AT_A_TIME
                    && let Some(name) = left.next()
                {
                    let (store, path) = (self.store.clone(), self.path(name));
                    let (about_store, limit, object) = (self.name.clone(), self.limit, name.clone());
                    asked.push_back(tokio::spawn(async move {
                        let about = About {
                            store: &about_store,
                            limit,
                            action: "read",
                            object: &object,
                        };
                        small(&store, path, about).await
                    }));
                }
                let Some(next) = asked.pop_front() else { break };
                all.push(joined(next).await??.map(|(bytes, _)| bytes));
            }
            Ok(all)
        })
    }

    /// Writes the small object `name`, in the place of what has that name.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (path, payload) = (self.path(name), PutPayload::from(bytes.to_vec()));
        let about = self.about("write", name);
        self.run(about.ask(self.store.put(&path, payload))).map(drop)
    }

    /// Writes the small object `name` if there is none (`replaced` is none) or if it still has the version `replaced`.
    /// Gives its version; none if it is not so.
    pub(crate) fn put_if(
        &self,
        name: &str,
        bytes: &[u8],
        replaced: Option<&Version>,
    ) -> Result<Option<Version>, StoreError> {
        let path = self.path(name);
        let about = self.about("write", name);
        let mode = replaced.map_or(PutMode::Create, |version| PutMode::Update(version.0.clone()));
        let payload = PutPayload::from(bytes.to_vec());
        let put = self.store.put_opts(&path, payload.clone(), PutOptions::from(mode));
        let version = |put: object_store::PutResult| {
            Some(Version(UpdateVersion {
                e_tag: put.e_tag,
                version: put.version,
            }))
        };
        match self.run(about.ask_for(put))? {
            Ok(put) => Ok(version(put)),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => Ok(None),
            // Two at the same moment are not told apart then, but by reading the object again.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if replaced.is_none() && self.get(name)?.is_some() {
                    return Ok(None);
                }
                self.run(about.ask(self.store.put(&path, payload))).map(version)
            }
            Err(error) => Err(about.failed(&error)),
        }
    }

    /// Size of the object `name`, bytes, if it is there.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let path = self.path(name);
        let about = self.about("look at", name);
        match self.run(about.ask_for(self.store.head(&path)))? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(about.failed(&error)),
        }
    }

    /// The jobs' folders.
    pub(crate) fn folders(&self) -> Result<Vec<String>, StoreError> {
        let about = self.about("list", "the jobs");
        let listed = self.run(about.ask(self.store.list_with_delimiter(Some(&self.root))))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        Ok(names.map(str::to_owned).collect())
    }

    /// What is in a job's folder.
    pub(crate) fn list(&self, job: &str) -> Result<Vec<Found>, StoreError> {
        let path = self.path(job);
        let about = self.about("list", job);
        let listed = self.run(about.ask(self.store.list_with_delimiter(Some(&path))))?;
        let found = |meta: object_store::ObjectMeta| {
            Some(Found {
                name: meta.location.filename()?.to_owned(),
                bytes: meta.size,
                modified: meta.last_modified.into(),
            })
        };
        Ok(listed.objects.into_iter().filter_map(found).collect())
    }

    /// Removes the object `name`, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        let about = self.about("remove", name);
        match self.run(about.ask_for(self.store.delete(&path)))? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(about.failed(&error)),
        }
    }

    /// Ends an upload in parts that nobody ends.
    pub(crate) fn abort_upload(&self, name: &str, upload: &str) -> Result<(), StoreError> {
        let (Some(parts), path) = (&self.parts, self.path(name)) else {
            return Ok(());
        };
        let about = self.about("end the upload of", name);
        match self.run(about.ask_for(parts.abort_multipart(&path, &upload.to_owned())))? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(about.failed(&error)),
        }
    }

    /// Writes what `produce` writes, about `bytes` if that is known, as the object `name`. `note` is told the upload's
    /// id before its first part.
    pub(crate) fn write<T: Send>(
        &self,
        name: &str,
        bytes: Option<u64>,
        watch: &mut Watch<'_>,
        note: impl FnOnce(&str) -> Result<(), StoreError>,
        produce: impl FnOnce(&mut PartWriter) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let sizes = Sizes::for_upload(bytes);
        let (sender, receiver) = mpsc::channel(1);
        thread::scope(|scope| {
            let producer = scope.spawn(move || {
                let mut out = PartWriter::new(sender, sizes.part);
                let produced = produce(&mut out)?;
                // If nobody takes it, that is told there.
                let _ = out.finish();
                Ok(produced)
            });
            let sent = self.send(name, sizes, receiver, watch, note);
            let produced = producer.join().map_err(|_| died())?;
            match sent {
                Ok(true) => produced,
                // It ended without a last part: it has failed.
                Ok(false) => produced.and_then(|_| Err(died())),
                Err(error) => Err(error),
            }
        })
    }

    /// Sends the parts. False if the last one does not come; then there is no object.
    fn send(
        &self,
        name: &str,
        sizes: Sizes,
        mut receiver: mpsc::Receiver<Part>,
        watch: &mut Watch<'_>,
        note: impl FnOnce(&str) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let path = self.path(name);
        let about = self.about("write", name);
        let first = match self.run(receiver.recv()) {
            None => return Ok(false),
            Some(Part { bytes, is_last: true }) => {
                let length = bytes.len() as u64;
                self.run(watched(watch, about.ask(self.store.put(&path, bytes.into()))))??;
                watch.done(length)?;
                return Ok(true);
            }
            Some(part) => part,
        };
        let Some(parts) = &self.parts else {
            return Err(about.failed(&Error::NotImplemented {
                operation: String::new(),
                implementer: String::new(),
            }));
        };
        let id = self.run(watched(watch, about.ask(parts.create_multipart(&path))))??;
        let sent = note(&id)
            .and_then(|()| self.run(self.send_parts(parts, &path, &about, &id, first, sizes, &mut receiver, watch)));
        if !matches!(sent, Ok(true)) {
            drop(receiver);
            // If that fails too, `prune` does it; what has failed first is told.
            let limit = self.limit.min(Duration::from_secs(10));
            let _ = self.run(async { tokio::time::timeout(limit, parts.abort_multipart(&path, &id)).await });
        }
        sent
    }

    #[expect(clippy::too_many_arguments, reason = "a part of `send` that is a future")]
    async fn send_parts(
        &self,
        parts: &Arc<dyn MultipartStore>,
        path: &Path,
        about: &About<'_>,
        id: &String,
        first: Part,
        sizes: Sizes,
        receiver: &mut mpsc::Receiver<Part>,
        watch: &mut Watch<'_>,
    ) -> Result<bool, StoreError> {
        let mut tasks: JoinSet<SentPart> = JoinSet::new();
        let mut ids: Vec<Option<PartId>> = vec![];
        let (mut next, mut has_last, mut done, mut total) = (Some(first), false, 0, 0);
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        loop {
            if let Some(part) = next.take() {
                let (number, length) = (ids.len(), part.bytes.len() as u64);
                ids.push(None);
                has_last = part.is_last;
                total += length;
                let (parts, path, id, limit) = (parts.clone(), path.clone(), id.clone(), self.limit);
                tasks.spawn(async move {
                    let payload = PutPayload::from(part.bytes);
                    let sent =
                        again(|| tokio::time::timeout(limit, parts.put_part(&path, &id, number, payload.clone())));
                    (number, length, sent.await)
                });
            }
            if has_last && tasks.is_empty() {
                break;
            }
            tokio::select! {
                part = receiver.recv(), if !has_last && tasks.len() < sizes.at_a_time => match part {
                    Some(part) => next = Some(part),
                    None => return Ok(false),
                },
                Some(sent) = tasks.join_next() => {
                    let (number, length, sent) = sent.map_err(|_| died())?;
                    let part = sent.map_err(|_| about.silent())?.map_err(|error| about.failed(&error))?;
                    ids[number] = Some(part);
                    done += length;
                    watch.done(done)?;
                }
                _ = looks.tick() => watch.look()?,
            }
        }
        let ids = ids.into_iter().flatten().collect();
        let completed = watched(watch, about.ask(parts.complete_multipart(path, id, ids))).await?;
        if let Err(error) = completed {
            // The answer may have been lost, and the upload be complete: then it is not there any more.
            let found = about.ask(self.store.head(path)).await;
            if !found.is_ok_and(|meta| meta.size == total) {
                return Err(error);
            }
        }
        Ok(true)
    }

    /// The bytes of a range of the object `name`, all of them. Several threads may ask at once.
    pub(crate) fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let about = self.about("read", name);
        let path = self.path(name);
        let asked = self.run(again(|| {
            tokio::time::timeout(self.limit, whole_range(&self.store, &path, range.clone()))
        }));
        asked.map_err(|_| about.silent())?.map_err(|error| about.failed(&error))
    }

    /// Reads `bytes` of the object `name` and gives them to `consume`.
    pub(crate) fn read<T: Send>(
        &self,
        name: &str,
        bytes: u64,
        watch: &mut Watch<'_>,
        consume: impl FnOnce(&mut PartReader) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = mpsc::channel(1);
        thread::scope(|scope| {
            let consumer = scope.spawn(move || consume(&mut PartReader::new(receiver)));
            let fetched = self.run(self.fetch(name, bytes, sender, watch));
            let consumed = consumer.join().map_err(|_| died())?;
            match fetched {
                Ok(()) => consumed,
                Err(error) => Err(error),
            }
        })
    }

    /// Sends the object's bytes, in their order, until nobody takes them.
    async fn fetch(
        &self,
        name: &str,
        bytes: u64,
        sender: mpsc::Sender<Part>,
        watch: &mut Watch<'_>,
    ) -> Result<(), StoreError> {
        let about = self.about("read", name);
        let path = self.path(name);
        let mut asked: VecDeque<JoinHandle<_>> = VecDeque::new();
        let (mut position, mut done) = (0, 0);
        if bytes == 0 {
            let (bytes, is_last) = (Bytes::new(), true);
            // Who does not take it tells why.
            let _ = sender.send(Part { bytes, is_last }).await;
        }
        let fetched = loop {
            while position < bytes && asked.len() < Sizes::AT_A_TIME {
                let range = position..bytes.min(position + Sizes::RANGE);
                position = range.end;
                let (store, path, limit) = (self.store.clone(), path.clone(), self.limit);
                asked.push_back(tokio::spawn(async move {
                    again(|| tokio::time::timeout(limit, whole_range(&store, &path, range.clone()))).await
                }));
            }
            let Some(next) = asked.pop_front() else {
                break Ok(());
            };
            let part = match watched(watch, joined(next)).await {
                Err(error) | Ok(Err(error)) => break Err(error),
                Ok(Ok(Err(_))) => break Err(about.silent()),
                Ok(Ok(Ok(Err(error)))) => break Err(about.failed(&error)),
                Ok(Ok(Ok(Ok(part)))) => part,
            };
            done += part.len() as u64;
            let part = Part {
                bytes: part,
                is_last: done == bytes,
            };
            if let Err(error) = watch.done(done) {
                break Err(error);
            }
            // Who does not take it tells why.
            if sender.send(part).await.is_err() {
                break Ok(());
            }
        };
        asked.iter().for_each(JoinHandle::abort);
        fetched
    }
}

/// True if plain HTTP is allowed, as for S3.
fn is_http_allowed() -> bool {
    std::env::var("AWS_ALLOW_HTTP")
        .is_ok_and(|value| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes"))
}

/// What is in the small object at `path`, if it is there.
async fn small(
    store: &Arc<dyn ObjectStore>,
    path: Path,
    about: About<'_>,
) -> Result<Option<(Vec<u8>, Version)>, StoreError> {
    let options = GetOptions::new().with_range(Some(0..MAX_RECORD_BYTES + 1));
    let get = async {
        let found = store.get_opts(&path, options).await?;
        let version = Version(UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        });
        Ok((found.bytes().await?.to_vec(), version))
    };
    match about.ask_for(get).await? {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(about.failed(&error)),
    }
}

/// The bytes of a range, all of them.
async fn whole_range(store: &Arc<dyn ObjectStore>, path: &Path, range: Range<u64>) -> Result<Bytes, Error> {
    let expected = range.end - range.start;
    let bytes = store.get_range(path, range).await?;
    match bytes.len() as u64 == expected {
        true => Ok(bytes),
        false => Err(Error::Generic {
            store: "object store",
            source: "it gave fewer bytes than it was asked for".into(),
        }),
    }
}

/// The outcome of `ask`, asked again if it has failed for a reason that may pass.
async fn again<T, E, F>(mut ask: impl FnMut() -> F) -> Result<Result<T, Error>, E>
where
    F: Future<Output = Result<Result<T, Error>, E>>,
{
    let mut tries = 0;
    loop {
        let outcome = ask().await;
        match &outcome {
            Ok(Err(Error::Generic { .. })) if tries < PART_RETRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(500 << tries)).await;
            }
            _ => return outcome,
        }
    }
}

/// The outcome of `request`, unless whoever waits ends it.
async fn watched<T>(watch: &Watch<'_>, request: impl Future<Output = T>) -> Result<T, StoreError> {
    let mut request = std::pin::pin!(request);
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            outcome = &mut request => return Ok(outcome),
            _ = looks.tick() => watch.look()?,
        }
    }
}

async fn joined<T>(task: JoinHandle<T>) -> Result<T, StoreError> {
    task.await.map_err(|_| died())
}

/// A thread or task has panicked, or ended before its time.
fn died() -> StoreError {
    StoreError::Runtime(io::Error::other("a thread of the transfer has died"))
}
