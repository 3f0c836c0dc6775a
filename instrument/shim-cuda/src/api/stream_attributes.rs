//! Attributes of streams. All of them are hints for speed, which change no result: they are kept and given back, and
//! launches do not heed them.

use crate::guard::Current;
use crate::handles::Handle;
use crate::objects::{AttributeValue, StreamAttributes};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

entry_points! {
    context cuStreamSetAttribute "cuStreamSetAttribute" 11000
        (stream: Handle, attribute: u32, value: In<AttributeValue>) => set, cuStreamSetAttribute_ptsz 11000;
    context cuStreamGetAttribute "cuStreamGetAttribute" 11000
        (stream: Handle, attribute: u32, value: Out<AttributeValue>) => get, cuStreamGetAttribute_ptsz 11000;
    context cuStreamCopyAttributes "cuStreamCopyAttributes" 11000
        (to: Handle, from: Handle) => copy, cuStreamCopyAttributes_ptsz 11000;
}

/// `CUstreamAttrID`, of `CUlaunchAttributeID` those that streams have.
const ACCESS_POLICY_WINDOW: u32 = 1;
const SYNCHRONIZATION_POLICY: u32 = 3;
const PRIORITY: u32 = 8;
const MEM_SYNC_DOMAIN_MAP: u32 = 9;
const MEM_SYNC_DOMAIN: u32 = 10;
/// `CU_SYNC_POLICY_AUTO`, which is what a stream begins with.
const SYNC_POLICY_AUTO: u32 = 1;
/// Domains of a stream that nobody has mapped: the default one is 0, the remote one 1.
const UNMAPPED_DOMAINS: u32 = 0x0100;

fn set(current: Current, stream: Handle, attribute: u32, value: In<AttributeValue>) -> Outcome {
    let (stream, value) = (current.stream(stream)?, value.get()?);
    match attribute {
        ACCESS_POLICY_WINDOW | SYNCHRONIZATION_POLICY | PRIORITY | MEM_SYNC_DOMAIN_MAP | MEM_SYNC_DOMAIN => {}
        _ => return Err(CuResult::INVALID_VALUE),
    }
    let mut all = current.session.stream_attributes.lock();
    all.entry(stream).or_default().insert(attribute, value);
    Ok(())
}

fn get(current: Current, stream: Handle, attribute: u32, value: Out<AttributeValue>) -> Outcome {
    let id = current.stream(stream)?;
    let kept = |all: &StreamAttributes| all.get(&attribute).copied();
    if let Some(kept) = current.session.stream_attributes.lock().get(&id).and_then(kept) {
        return value.set(kept);
    }
    let first_word = match attribute {
        ACCESS_POLICY_WINDOW | MEM_SYNC_DOMAIN => 0,
        SYNCHRONIZATION_POLICY => SYNC_POLICY_AUTO,
        PRIORITY => super::stream::priority_of(&current, stream)?.cast_unsigned(),
        MEM_SYNC_DOMAIN_MAP => UNMAPPED_DOMAINS,
        _ => return Err(CuResult::INVALID_VALUE),
    };
    let mut initial = AttributeValue::default();
    initial[0] = first_word;
    value.set(initial)
}

fn copy(current: Current, to: Handle, from: Handle) -> Outcome {
    let (to, from) = (current.stream(to)?, current.stream(from)?);
    let mut all = current.session.stream_attributes.lock();
    let copied = all.get(&from).cloned().unwrap_or_default();
    all.insert(to, copied);
    Ok(())
}
