//! Who is at the other end of a connection.

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use serde::{Deserialize, Serialize};

/// Which node a caller is: a hash of its public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(pub String);

/// The failure for an end that is not, or does not believe the other to be, who it should be.
pub fn refused(peer: &str, why: String) -> Failure {
    Failure::new(Code::NotTrusted, format!("{peer} and this node do not trust each other"))
        .note(why)
        .help("give each node a certificate that has not expired and that the authority in the other node's --ca has signed; the target's certificate must name the target's host")
}
