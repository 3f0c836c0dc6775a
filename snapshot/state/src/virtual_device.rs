//! The device that the process sees, fixed at its first call.

use crate::budget::decode_fields;
use bincode::Encode;
use serde::{Deserialize, Serialize};

/// The virtual device.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Serialize, Deserialize)]
pub struct VirtualDevice {
    /// Name.
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Memory that the process may use, in bytes.
    pub total_bytes: u64,
    /// Device attributes (`CUdevice_attribute`) by ascending number.
    pub attributes: Vec<(u32, i32)>,
}

decode_fields!(VirtualDevice {
    name: text,
    uuid: value,
    total_bytes: value,
    attributes: list,
});

impl VirtualDevice {
    /// An attribute's value; `None` if the device has no such attribute.
    #[must_use]
    pub fn attribute(&self, number: u32) -> Option<i32> {
        let at = self.attributes.binary_search_by_key(&number, |&(n, _)| n).ok()?;
        self.attributes.get(at).map(|&(_, value)| value)
    }
}
