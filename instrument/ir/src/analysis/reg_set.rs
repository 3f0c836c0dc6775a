//! A set of registers of one kernel, as a bit vector.

use crate::entity::RegId;

/// Registers of one kernel; bit `i` is the register with [`RegId`] `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegSet {
    words: Vec<u64>,
}

impl RegSet {
    /// The empty set, with room for `num_registers`.
    #[must_use]
    pub fn with_capacity(num_registers: usize) -> Self {
        Self {
            words: vec![0; num_registers.div_ceil(64)],
        }
    }

    /// Adds a register; true if it was not there.
    pub fn insert(&mut self, reg: RegId) -> bool {
        let (word, bit) = (reg.index() / 64, 1u64 << (reg.index() % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Takes a register out.
    pub fn remove(&mut self, reg: RegId) {
        if let Some(word) = self.words.get_mut(reg.index() / 64) {
            *word &= !(1u64 << (reg.index() % 64));
        }
    }

    /// True if the register is in the set.
    #[must_use]
    pub fn contains(&self, reg: RegId) -> bool {
        self.words
            .get(reg.index() / 64)
            .is_some_and(|w| w & (1u64 << (reg.index() % 64)) != 0)
    }

    /// Adds all of `other`; true if that changed the set.
    pub fn union_with(&mut self, other: &RegSet) -> bool {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        let mut changed = false;
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            changed |= more & !*word != 0;
            *word |= more;
        }
        changed
    }

    /// Registers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = RegId> + '_ {
        (0u32..).zip(&self.words).flat_map(|(i, &word)| {
            (0..64u32)
                .filter(move |bit| word & (1u64 << bit) != 0)
                .map(move |bit| RegId(i * 64 + bit))
        })
    }

    /// Number of registers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }
}
