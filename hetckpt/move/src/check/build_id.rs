//! Build ids of programs and libraries, as CRIU has them.

use object::Object;
use std::fs::File;
use std::path::Path;

use object::read::ReadCache;

/// The build id of the file at `path` as little-endian words, the last one filled up with zeros; `None` if it has none.
pub fn read(path: &Path) -> Option<Vec<u32>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let id = object.build_id().ok()??;
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u32::from_le_bytes(word)
    };
    Some(id.chunks(4).map(word).collect())
}
