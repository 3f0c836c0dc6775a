//! The snapshot store: where snapshots lie, in a folder or an object store; how they are kept, checked and removed.
//!
//! Below the store's root each job has a folder, by its key:
//!
//! | name | what |
//! |---|---|
//! | `KEY/ID.hetsnap` | an archive, possibly encrypted |
//! | `KEY/ID.json` | its record ([`record::Record`]), written last: without it the snapshot does not exist |
//! | `KEY/ID.upload` | the note of an upload in parts that goes on, so that one cut short can be removed |
//! | `KEY/ended.json` | how the program ended ([`record::Ended`]) |
//! | `KEY/failed-restores.json` | how many runs in a row could not restore the job |
//! | `KEY/claim.json` | who runs the job ([`claim`]); in a folder `KEY/claim.N.json` |
//!
//! No process is started here, and no archive is looked into. All functions wait until they are done.

pub mod address;
pub mod in_place;
pub mod claim;
pub mod encryption;
pub mod error;
pub mod failure;
mod folder;
pub mod keep;
pub mod location;
pub mod name;
mod objects;
mod parts;
pub mod prune;
pub mod record;
pub mod redact;
pub mod remote;
pub mod store;
pub mod transfer;
pub mod verify;
pub mod watch;

#[cfg(test)]
mod tests;
