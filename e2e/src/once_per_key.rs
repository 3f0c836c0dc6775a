//! Values that are expensive to get, each got once however many tests want it at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;

/// A value, once somebody has got it.
type Slot<V> = Arc<Mutex<Option<V>>>;

/// Values by key.
#[derive(Debug)]
pub struct OncePerKey<V>(Mutex<BTreeMap<String, Slot<V>>>);

impl<V: Clone> OncePerKey<V> {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The value of `key`, got by `get` if nobody has it. Who wants the same waits meanwhile, others do not.
    ///
    /// # Errors
    /// Those of `get`; the next one tries again.
    pub fn get_or_try(&self, key: &str, get: impl FnOnce() -> Result<V>) -> Result<V> {
        let slot = {
            let mut slots = self.0.lock();
            Arc::clone(slots.entry(key.to_owned()).or_default())
        };
        let mut slot = slot.lock();
        if let Some(value) = &*slot {
            return Ok(value.clone());
        }
        let value = get()?;
        *slot = Some(value.clone());
        Ok(value)
    }
}

impl<V: Clone> Default for OncePerKey<V> {
    fn default() -> Self {
        Self::new()
    }
}
