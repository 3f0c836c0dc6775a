//! Where a store is: what its URL says.

use std::path::{Path, PathBuf};

use url::Url;

/// Why a URL is none of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is no URL.
    #[error("it is no URL")]
    NoUrl,
    /// Another scheme.
    #[error("stores are folders, s3://, gs://, az://, http:// and https://")]
    Scheme,
    /// A name or a password.
    #[error("names and passwords are taken from the environment, not from a URL")]
    Secret,
    /// A query or fragment.
    #[error("it has a query or a fragment (`?`, `#`)")]
    Query,
    /// No bucket, container or host.
    #[error("it names no bucket, container or host")]
    NoHost,
    /// The path.
    #[error("its path has empty parts, or is of a form that object stores do not take")]
    Path,
    /// It is too short to name a job or a snapshot.
    #[error("it names no job, snapshot or archive in a store")]
    NoObject,
    /// The settings in the environment.
    #[error("the settings in the environment do not do for it: {0}")]
    Settings(crate::redact::Told),
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In this folder.
    Folder(PathBuf),
    /// In an object store.
    Remote(Url),
}

/// True if `text` has the form of a URL of a store, rather than that of a path.
#[must_use]
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(
        scheme.as_deref(),
        Some("file" | "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss" | "adl" | "http" | "https")
    )
}

impl Location {
    pub(crate) fn parse(text: &str) -> Result<Self, BadUrl> {
        if !text.contains("://") {
            return match text.is_empty() {
                true => Err(BadUrl::NoUrl),
                false => Ok(Self::Folder(PathBuf::from(text))),
            };
        }
        if !is_url(text) {
            return Err(BadUrl::Scheme);
        }
        let url = Url::parse(text).map_err(|_| BadUrl::NoUrl)?;
        if !matches!(url.scheme(), "abfs" | "abfss") && (!url.username().is_empty() || url.password().is_some()) {
            return Err(BadUrl::Secret);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(BadUrl::Query);
        }
        if url.scheme() == "file" {
            return url.to_file_path().map(Self::Folder).map_err(|()| BadUrl::Path);
        }
        match url.host_str() {
            Some(host) if !host.is_empty() => Ok(Self::Remote(url)),
            _ => Err(BadUrl::NoHost),
        }
    }

    /// The parent, and the last part of the path.
    pub(crate) fn split(&self) -> Option<(Self, String)> {
        match self {
            Self::Folder(path) => {
                let name = path.file_name()?.to_str()?.to_owned();
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                Some((Self::Folder(parent.unwrap_or(Path::new(".")).to_owned()), name))
            }
            Self::Remote(url) => {
                let parts: Vec<&str> = url.path_segments()?.filter(|part| !part.is_empty()).collect();
                let (last, before) = parts.split_last()?;
                let mut parent = url.clone();
                parent.set_path(&format!("/{}", before.join("/")));
                Some((Self::Remote(parent), (*last).to_owned()))
            }
        }
    }

    /// As people read it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Remote(url) => url.as_str().trim_end_matches('/').to_owned(),
        }
    }
}

/// `text` for a message: without what stands before an `@`, and without a query.
pub(crate) fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_a_store_is() {
        let folder = |path: &str| Ok(Location::Folder(PathBuf::from(path)));
        assert_eq!(Location::parse("/srv/a b"), folder("/srv/a b"));
        assert_eq!(Location::parse("relative"), folder("relative"));
        assert_eq!(Location::parse("file:///srv/a%20b"), folder("/srv/a b"));
        assert_eq!(Location::parse("s3://bucket/a/b").unwrap().name(), "s3://bucket/a/b");
        for (text, why) in [
            ("ftp://h/x", BadUrl::Scheme),
            ("https://me:secret@h/x", BadUrl::Secret),
            ("s3://b/x?sig=1", BadUrl::Query),
            ("s3:///x", BadUrl::NoHost),
            ("", BadUrl::NoUrl),
        ] {
            assert_eq!(Location::parse(text), Err(why), "{text}");
        }
        assert_eq!(shown("https://me:secret@h/x?sig=1"), "https://…@h/x");
    }

    #[test]
    fn urls_are_split() {
        let split = |text: &str| {
            Location::parse(text)
                .unwrap()
                .split()
                .map(|(parent, name)| (parent.name(), name))
        };
        assert_eq!(split("s3://b/p/KEY"), Some(("s3://b/p".to_owned(), "KEY".to_owned())));
        assert_eq!(split("s3://b/KEY/"), Some(("s3://b".to_owned(), "KEY".to_owned())));
        assert_eq!(split("s3://b"), None);
        assert_eq!(split("file:///srv/KEY"), Some(("/srv".to_owned(), "KEY".to_owned())));
    }
}
