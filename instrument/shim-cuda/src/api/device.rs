//! The device: there is one, number 0, as the server described it.

use crate::device::MAX_ATTRIBUTE;
use crate::pointers::{Out, Text, TextOut};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    device cuDeviceGet "cuDeviceGet" 2000 (device: Out<i32>, ordinal: i32) => get;
    device cuDeviceGetCount "cuDeviceGetCount" 2000 (count: Out<i32>) => self::count;
    device cuDeviceGetName "cuDeviceGetName" 2000 (name: TextOut, room: i32, device: i32) => self::name;
    device cuDeviceTotalMem_v2 "cuDeviceTotalMem" 3020 (bytes: Out<u64>, device: i32) => total_memory;
    device cuDeviceGetAttribute "cuDeviceGetAttribute" 2000 (value: Out<i32>, number: i32, device: i32) => attribute;
    device cuDeviceComputeCapability "cuDeviceComputeCapability" 2000
        (major: Out<i32>, minor: Out<i32>, device: i32) => compute_capability;
    device cuDeviceGetUuid "cuDeviceGetUuid" 9020 (uuid: Out<[u8; 16]>, device: i32) => self::uuid;
    device cuDeviceGetUuid_v2 "cuDeviceGetUuid" 11040 (uuid: Out<[u8; 16]>, device: i32) => self::uuid;
    device cuDeviceGetPCIBusId "cuDeviceGetPCIBusId" 4010 (text: TextOut, room: i32, device: i32) => pci_bus_id;
    device cuDeviceGetByPCIBusId "cuDeviceGetByPCIBusId" 4010 (device: Out<i32>, text: Text) => by_pci_bus_id;
    device cuDeviceCanAccessPeer "cuDeviceCanAccessPeer" 4000
        (can: Out<i32>, device: i32, peer: i32) => can_access_peer;
    device cuDeviceGetP2PAttribute "cuDeviceGetP2PAttribute" 8000
        (value: Out<i32>, attribute: i32, source: i32, target: i32) => p2p_attribute;
}

/// Refuses any device but the one there is.
pub fn check(device: i32) -> Outcome {
    if device == 0 {
        Ok(())
    } else {
        Err(CuResult::INVALID_DEVICE)
    }
}

fn get(_: &Session, device: Out<i32>, ordinal: i32) -> Outcome {
    check(ordinal)?;
    device.set(ordinal)
}

fn count(_: &Session, count: Out<i32>) -> Outcome {
    count.set(1)
}

fn name(session: &Session, name: TextOut, room: i32, device: i32) -> Outcome {
    check(device)?;
    name.set(&session.device.description.name, usize::try_from(room).unwrap_or(0))
}

fn total_memory(session: &Session, bytes: Out<u64>, device: i32) -> Outcome {
    check(device)?;
    bytes.set(session.device.description.total_bytes)
}

fn attribute(session: &Session, value: Out<i32>, number: i32, device: i32) -> Outcome {
    let number = u32::try_from(number).ok().filter(|n| (1..=MAX_ATTRIBUTE).contains(n));
    let number = number.ok_or(CuResult::INVALID_VALUE)?;
    check(device)?;
    value.set(session.device.attribute(number))
}

fn compute_capability(session: &Session, major: Out<i32>, minor: Out<i32>, device: i32) -> Outcome {
    check(device)?;
    major.set(session.device.attribute(75))?;
    minor.set(session.device.attribute(76))
}

fn uuid(session: &Session, uuid: Out<[u8; 16]>, device: i32) -> Outcome {
    check(device)?;
    uuid.set(session.device.description.uuid)
}

fn pci_bus_id(session: &Session, text: TextOut, room: i32, device: i32) -> Outcome {
    check(device)?;
    text.set(&bus_id(session), usize::try_from(room).unwrap_or(0))
}

fn by_pci_bus_id(session: &Session, device: Out<i32>, text: Text) -> Outcome {
    let wanted = text.get()?.to_ascii_lowercase();
    let ours = bus_id(session).to_ascii_lowercase();
    // The domain and the function may be left out.
    let short = ours.trim_start_matches("0000:");
    let is_ours = [
        ours.as_str(),
        short,
        short.trim_end_matches(".0"),
        ours.trim_end_matches(".0"),
    ]
    .contains(&wanted.as_str());
    if is_ours {
        device.set(0)
    } else {
        Err(CuResult::INVALID_DEVICE)
    }
}

fn bus_id(session: &Session) -> String {
    let [domain, bus, slot] = [50, 33, 34].map(|number| session.device.attribute_u32(number));
    format!("{domain:04X}:{bus:02X}:{slot:02X}.0")
}

fn can_access_peer(_: &Session, can: Out<i32>, device: i32, peer: i32) -> Outcome {
    check(device)?;
    check(peer)?;
    can.set(0)
}

fn p2p_attribute(_: &Session, value: Out<i32>, _attribute: i32, source: i32, target: i32) -> Outcome {
    check(source)?;
    check(target)?;
    value.set(0)?;
    // A device is no peer of itself.
    Err(CuResult::INVALID_DEVICE)
}
