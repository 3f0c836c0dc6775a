//! How much of what a pause has to wait for (machine code, copies, fills) one stream gives to the device ahead of its
//! completion: as much as the device does in a few milliseconds, so that a pause waits no longer.

use std::time::Duration;

use hetckpt_order::order::MAX_IN_FLIGHT;

/// What is on the device should be done within this time. One thing that takes longer does, and the next stands behind
/// it, so that the device always has something to do.
pub const LONGEST: Duration = Duration::from_millis(8);
/// While things are done much sooner, there can be more of them.
const SHORT: Duration = Duration::from_millis(2);
/// At first, and at least.
const FEW: usize = 2;

/// A stream's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(usize);

impl Default for Window {
    fn default() -> Self {
        Self(FEW)
    }
}

impl Window {
    /// So much may be on the device at a time.
    #[must_use]
    pub fn most(self) -> usize {
        self.0
    }

    /// Something has landed that was on the device for so long, with what stood before it there.
    pub fn landed(&mut self, after: Duration) {
        if after > LONGEST {
            let shorter = self.0 as f64 * LONGEST.as_secs_f64() / after.as_secs_f64();
            self.0 = (shorter as usize).max(FEW);
        } else if after < SHORT {
            self.0 = (self.0 * 2).min(MAX_IN_FLIGHT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_things_and_few_long_ones() {
        let mut window = Window::default();
        for _ in 0..10 {
            window.landed(Duration::from_micros(50));
        }
        assert_eq!(window.most(), MAX_IN_FLIGHT);
        window.landed(Duration::from_millis(64));
        assert_eq!(window.most(), MAX_IN_FLIGHT / 8);
        window.landed(Duration::from_secs(3));
        assert_eq!(window.most(), FEW);
        window.landed(Duration::from_millis(5));
        assert_eq!(window.most(), FEW);
    }
}
