//! What is wrong with a folder of images.

use std::io;

use hetckpt_criu::image_error::ImageError;
use hetckpt_state::summary::DescriptionError;

/// Why a folder of images cannot be used. Unless it says otherwise, the input is damaged, hostile or not a whole dump.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// An image of CRIU's.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The folder cannot be listed or found (host).
    #[error("{0}")]
    Folder(io::Error),
    /// A file's name is no text.
    #[error("{name} has a name that is no text")]
    NameIsNoText {
        /// As much of it as is text.
        name: String,
    },
    /// A file cannot be read (host).
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// Something that does not belong into an archive, as a link or a folder.
    #[error("`{name}` is no regular file")]
    NotAFile {
        /// Its name.
        name: String,
    },
    /// The images are not whole without those of an earlier dump.
    #[error(
        "the images are of an incremental dump: the link `parent` leads to the earlier one. Dump again without --prev-images-dir"
    )]
    EarlierDump,
    /// A description is no file, or too large for one.
    #[error("{name} describes no device state")]
    NoDescription {
        /// The file.
        name: String,
    },
    /// A description cannot be read.
    #[error("{name}: {}", cause(.source))]
    Description {
        /// The file.
        name: String,
        /// Cause.
        source: DescriptionError,
    },
    /// A list names a file that is not for it to name.
    #[error("{name} names a file that is none of its own")]
    ForeignFile {
        /// The list.
        name: String,
    },
    /// A file has another length than its description says.
    #[error("{name} has {found_bytes} of {expected_bytes} bytes")]
    Length {
        /// The file.
        name: String,
        /// Its length.
        found_bytes: u64,
        /// What it should have.
        expected_bytes: u64,
    },
    /// The list of carried files is no file, or too large for one.
    #[error("{name} lists no carried files")]
    NoList {
        /// The list.
        name: &'static str,
    },
    /// The list of carried files is no list.
    #[error("{name}: {source}")]
    List {
        /// The list.
        name: &'static str,
        /// Cause.
        source: serde_json::Error,
    },
    /// A carried file is to lie where none may.
    #[error("{name} lists `{}`, which is not allowed", path.escape_debug())]
    Path {
        /// The list.
        name: &'static str,
        /// Where.
        path: String,
    },
    /// CRIU used the plugin, but there is no state of devices.
    #[error("the images need device state, of which there is none")]
    NoDeviceState,
}

/// The reason that a description gives, without what it says of itself.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
