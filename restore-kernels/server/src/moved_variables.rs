//! Variables of machine code after a restore: the driver places them, and may do so elsewhere than before.
//!
//! What the program does with the address that it was told is carried out where the variable lies now: copies and
//! fills, and launches that are given the address as a parameter, or one inside of the variable. Addresses that lie in
//! device memory cannot be changed for it; [`Pointed`] finds them at a capture, and such a variable must not move.

use std::collections::BTreeMap;
use std::sync::Arc;

use hetckpt_abi::array::BoxPlace;
use hetckpt_ring::command::{Command, Rows};

/// Size of an address, and what addresses in memory and in parameters are aligned to.
const ADDRESS_BYTES: usize = 8;

/// Variables that have moved.
#[derive(Clone, Debug, Default)]
pub struct MovedVariables {
    /// The program's address → what lies there for the program.
    by_address: BTreeMap<u64, Moved>,
}

#[derive(Clone, Copy, Debug)]
struct Moved {
    size_bytes: u64,
    now: u64,
    module: u64,
}

impl MovedVariables {
    /// A variable of `module` of which the program has the address `before` lies at `now`.
    pub fn insert(&mut self, module: u64, before: u64, size_bytes: u64, now: u64) {
        let moved = Moved {
            size_bytes,
            now,
            module,
        };
        self.by_address.insert(before, moved);
    }

    /// Forgets those of a module that is unloaded.
    pub fn forget(&mut self, module: u64) {
        self.by_address.retain(|_, moved| moved.module != module);
    }

    /// Where what the program has at `addr` lies.
    #[must_use]
    pub fn actual(&self, addr: u64) -> u64 {
        let before = self.by_address.range(..=addr).next_back();
        match before {
            Some((start, moved)) if addr - start < moved.size_bytes => moved.now + (addr - start),
            _ => addr,
        }
    }

    /// The command as the device is to carry it out; `None` if it is the same.
    #[must_use]
    pub fn in_command(&self, command: &Command) -> Option<Command> {
        if self.by_address.is_empty() {
            return None;
        }
        let rows = |rows: &mut Rows| rows.addr = self.actual(rows.addr);
        let mut command = command.clone();
        match &mut command {
            Command::CopyIn { dst, .. } | Command::Fill { dst, .. } => rows(dst),
            Command::CopyOut { src, .. } => rows(src),
            Command::Copy { dst, src, .. } => {
                rows(dst);
                *src = self.actual(*src);
            }
            Command::CopyBox { copy, .. } => {
                for place in [&mut copy.dst, &mut copy.src] {
                    if let BoxPlace::Memory { addr, .. } = place {
                        *addr = self.actual(*addr);
                    }
                }
            }
            _ => return None,
        }
        Some(command)
    }

    /// Parameters of a launch as the device is to have them.
    #[must_use]
    pub fn in_params(&self, params: &Arc<[u8]>) -> Arc<[u8]> {
        let is_same = |word: &[u8; ADDRESS_BYTES]| self.actual(u64::from_le_bytes(*word)) == u64::from_le_bytes(*word);
        if self.by_address.is_empty() || params.as_chunks().0.iter().all(is_same) {
            return Arc::clone(params);
        }
        let mut changed = params.to_vec();
        for word in changed.as_chunks_mut::<ADDRESS_BYTES>().0 {
            *word = self.actual(u64::from_le_bytes(*word)).to_le_bytes();
        }
        changed.into()
    }
}

/// Finds the addresses of variables in memory.
#[derive(Clone, Debug, Default)]
pub struct Pointed {
    /// Address → size, and number of the variable.
    variables: BTreeMap<u64, (u64, usize)>,
    /// From the first to the end of the last.
    span: std::ops::Range<u64>,
}

impl Pointed {
    /// For variables at these addresses, of these sizes; each is named by its place.
    pub fn new(variables: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let numbered = variables.into_iter().zip(0..);
        let variables: BTreeMap<u64, (u64, usize)> =
            numbered.map(|((addr, size), number)| (addr, (size, number))).collect();
        let start = variables.first_key_value().map_or(0, |(&addr, _)| addr);
        let ends = variables.iter().map(|(addr, (size, _))| addr.saturating_add(*size));
        let end = ends.max().unwrap_or(0);
        Self {
            variables,
            span: start..end,
        }
    }

    /// The variables into which words of `bytes` point.
    pub fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let words = bytes.as_chunks::<ADDRESS_BYTES>().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word));
        words.filter(|word| self.span.contains(word)).filter_map(|word| {
            let (start, (size, number)) = self.variables.range(..=word).next_back()?;
            (word - start < *size).then_some(*number)
        })
    }
}

#[cfg(test)]
mod tests {
    use hetckpt_ring::command::{FillValue, StreamId};

    use super::*;

    fn moved() -> MovedVariables {
        let mut moved = MovedVariables::default();
        moved.insert(3, 0x1000, 0x100, 0x9000);
        moved
    }

    #[test]
    fn addresses_inside_of_a_variable_move_with_it() {
        let mut moved = moved();
        let moves = |moved: &MovedVariables| [0xfff, 0x1000, 0x10ff, 0x1100].map(|addr| moved.actual(addr));
        assert_eq!(moves(&moved), [0xfff, 0x9000, 0x90ff, 0x1100]);
        moved.forget(3);
        assert_eq!(moves(&moved), [0xfff, 0x1000, 0x10ff, 0x1100]);
    }

    #[test]
    fn commands_and_parameters_are_changed_where_they_name_one() {
        let stream = StreamId(0);
        let fill = |addr| Command::Fill {
            stream,
            dst: Rows::range(addr, 16),
            value: FillValue::U8(0),
        };
        assert_eq!(moved().in_command(&fill(0x1010)), Some(fill(0x9010)));
        assert_eq!(MovedVariables::default().in_command(&fill(0x1010)), None);
        let params: Arc<[u8]> = [5_u64, 0x1008, 0x2000].map(u64::to_le_bytes).concat().into();
        let changed = [5_u64, 0x9008, 0x2000].map(u64::to_le_bytes).concat();
        assert_eq!(*moved().in_params(&params), *changed);
        let others: Arc<[u8]> = vec![1; 12].into();
        assert!(Arc::ptr_eq(&moved().in_params(&others), &others));
    }

    #[test]
    fn pointers_are_found_in_memory() {
        let pointed = Pointed::new([(0x1000, 8), (0x3000, 16)]);
        let bytes = [0x1000_u64, 0x1008, 0x2000, 0x300f, 0x3010]
            .map(u64::to_le_bytes)
            .concat();
        assert_eq!(pointed.find(&bytes).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(Pointed::new([]).find(&bytes).count(), 0);
    }
}
