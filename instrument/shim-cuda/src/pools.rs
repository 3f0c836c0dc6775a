//! Memory pools: who has allocated what. The memory of all of them is the device's, and what is freed goes back to it.

use std::collections::BTreeMap;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

/// `CUmemPool_attribute`.
mod attribute {
    pub const FIRST_REUSE: u32 = 1;
    pub const LAST_REUSE: u32 = 3;
    pub const RELEASE_THRESHOLD: u32 = 4;
    pub const RESERVED: u32 = 5;
    pub const MOST_RESERVED: u32 = 6;
    pub const USED: u32 = 7;
    pub const MOST_USED: u32 = 8;
}

/// The device's default pool.
pub const DEFAULT: Handle = Handle(0x6900_0000_0010);

#[derive(Debug)]
struct Pool {
    /// Flags of reuse, which say what a pool may do, not what it must.
    reuse: [bool; 3],
    /// Kept as it was set.
    release_threshold: u64,
    /// First address → size.
    allocations: BTreeMap<u64, u64>,
    used: u64,
    most_used: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            reuse: [true; 3],
            release_threshold: 0,
            allocations: BTreeMap::new(),
            used: 0,
            most_used: 0,
        }
    }
}

/// All pools.
#[derive(Debug)]
pub struct Pools {
    pools: BTreeMap<u64, Pool>,
    current: Handle,
    num_made: u64,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            pools: BTreeMap::from([(DEFAULT.0, Pool::default())]),
            current: DEFAULT,
            num_made: 0,
        }
    }
}

impl Pools {
    /// The one that allocations come from where none is named.
    pub fn current(&self) -> Handle {
        self.current
    }

    /// Changes that.
    pub fn set_current(&mut self, pool: Handle) -> Outcome {
        self.get(pool)?;
        self.current = pool;
        Ok(())
    }

    /// Makes a pool.
    pub fn create(&mut self) -> Handle {
        self.num_made += 1;
        let pool = Handle(DEFAULT.0 + (self.num_made << 4));
        self.pools.insert(pool.0, Pool::default());
        pool
    }

    /// Forgets a pool; what comes from it stays until it is freed.
    pub fn destroy(&mut self, pool: Handle) -> Outcome {
        if pool == DEFAULT || self.pools.remove(&pool.0).is_none() {
            return Err(CuResult::INVALID_VALUE);
        }
        if self.current == pool {
            self.current = DEFAULT;
        }
        Ok(())
    }

    /// That there is such a pool.
    pub fn check(&self, pool: Handle) -> Outcome {
        self.get(pool).map(|_| ())
    }

    fn get(&self, pool: Handle) -> Outcome<&Pool> {
        self.pools.get(&pool.0).ok_or(CuResult::INVALID_VALUE)
    }

    fn get_mut(&mut self, pool: Handle) -> Outcome<&mut Pool> {
        self.pools.get_mut(&pool.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// Enters an allocation.
    pub fn allocated(&mut self, pool: Handle, addr: u64, size_bytes: u64) {
        if let Ok(pool) = self.get_mut(pool) {
            pool.allocations.insert(addr, size_bytes);
            pool.used += size_bytes;
            pool.most_used = pool.most_used.max(pool.used);
        }
    }

    /// Enters that what begins at `addr`, from whatever pool, is freed.
    pub fn freed(&mut self, addr: u64) {
        for pool in self.pools.values_mut() {
            pool.used -= pool.allocations.remove(&addr).unwrap_or(0);
        }
    }

    /// From which pool what begins at `addr` comes.
    pub fn of(&self, addr: u64) -> Option<Handle> {
        let mut pools = self.pools.iter();
        let (&pool, _) = pools.find(|(_, pool)| pool.allocations.contains_key(&addr))?;
        Some(Handle(pool))
    }

    /// An attribute, and true if it is an `int` (else a `cuuint64_t`).
    pub fn attribute(&self, pool: Handle, number: u32) -> Outcome<(u64, bool)> {
        let pool = self.get(pool)?;
        match number {
            attribute::FIRST_REUSE..=attribute::LAST_REUSE => {
                Ok((pool.reuse[(number - attribute::FIRST_REUSE) as usize].into(), true))
            }
            attribute::RELEASE_THRESHOLD => Ok((pool.release_threshold, false)),
            // Nothing is reserved that is not used.
            attribute::RESERVED | attribute::USED => Ok((pool.used, false)),
            attribute::MOST_RESERVED | attribute::MOST_USED => Ok((pool.most_used, false)),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }

    /// Sets an attribute; `value` gives an `int` for true, else a `cuuint64_t`.
    pub fn set_attribute(&mut self, pool: Handle, number: u32, value: impl Fn(bool) -> Outcome<u64>) -> Outcome {
        let pool = self.get_mut(pool)?;
        match number {
            attribute::FIRST_REUSE..=attribute::LAST_REUSE => {
                pool.reuse[(number - attribute::FIRST_REUSE) as usize] = value(true)? != 0;
            }
            attribute::RELEASE_THRESHOLD => pool.release_threshold = value(false)?,
            // Only back to what is used now.
            attribute::MOST_RESERVED | attribute::MOST_USED if value(false)? == 0 => pool.most_used = pool.used,
            _ => return Err(CuResult::INVALID_VALUE),
        }
        Ok(())
    }

    /// Forgets all allocations: the device is reset.
    pub fn clear(&mut self) {
        *self = Self {
            num_made: self.num_made,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pools_count_what_comes_from_them() {
        let mut pools = Pools::default();
        let pool = pools.create();
        pools.set_current(pool).unwrap();
        pools.allocated(pool, 100, 30);
        pools.allocated(pool, 200, 20);
        pools.allocated(DEFAULT, 300, 5);
        pools.freed(100);
        pools.freed(999);
        let used = |pools: &Pools, pool| [5, 6, 7, 8].map(|number| pools.attribute(pool, number).unwrap());
        assert_eq!(used(&pools, pool), [(20, false), (50, false), (20, false), (50, false)]);
        assert_eq!(
            (pools.of(200), pools.of(300), pools.of(100)),
            (Some(pool), Some(DEFAULT), None)
        );
        pools.set_attribute(pool, 8, |_| Ok(0)).unwrap();
        assert_eq!(pools.attribute(pool, 8), Ok((20, false)));
        assert_eq!(pools.set_attribute(pool, 7, |_| Ok(0)), Err(CuResult::INVALID_VALUE));
        pools.set_attribute(pool, 2, |is_int| Ok(u64::from(!is_int))).unwrap();
        assert_eq!(pools.attribute(pool, 2), Ok((0, true)));
        assert_eq!(pools.destroy(DEFAULT), Err(CuResult::INVALID_VALUE));
        pools.destroy(pool).unwrap();
        assert_eq!(
            (pools.current(), pools.check(pool)),
            (DEFAULT, Err(CuResult::INVALID_VALUE))
        );
        pools.freed(200);
    }
}
