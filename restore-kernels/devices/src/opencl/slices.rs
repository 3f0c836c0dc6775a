//! Launches of bounded length, for a device whose kernels do not see what the host writes while they run.
//!
//! Such kernels count their looks at the pause word ([`hetckpt_abi::opencl_program::looks`]): after a *slice* of about
//! [`SLICE`] all of them stop, and what is queued behind them is turned away. Nobody may have asked for that; then the
//! server lets everything go on in a new slice. How long a look lasts differs from kernel to kernel by orders of
//! magnitude, so each has its price, which follows from how long its slices were. One number of looks for all of them
//! would make the slice after a change of kernels as long as the two differ.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use hetckpt_abi::opencl_program::looks;

use super::Limits;

/// How long a slice is to last: short beside what a pause may take, long beside what going on costs.
const SLICE: Duration = Duration::from_millis(100);
/// A slice begins anew where nothing runs, unless it has only just begun: that takes a read and a write.
const WORTH_RENEWING: Duration = Duration::from_millis(50);
/// Looks of each multiprocessor in the first slice of a kernel: some milliseconds where it goes round a loop.
const FIRST_LOOKS: u32 = 2048;
/// Threads of a multiprocessor that may look at the same time, generously.
const THREADS_PER_MULTIPROCESSOR: u32 = 4096;
/// By which factors the price of a look changes at most, at once.
const MAX_PRICE_RISE: f64 = 8.0;
const MAX_PRICE_FALL: f64 = 0.25;

/// What looks cost, and the slice that runs.
#[derive(Debug)]
pub(super) struct Slices {
    first_price: u32,
    highest_price: u32,
    current: Mutex<Current>,
}

/// The slice that runs. Its lock orders changes of the pause word.
#[derive(Debug, Default)]
pub(super) struct Current {
    /// By the kernel's name, which its continuations share.
    prices: BTreeMap<String, Price>,
    /// When its first launch was given.
    began: Option<Instant>,
    /// Kernels that were launched in it.
    kernels: BTreeSet<String>,
    /// It is over, and its length taken.
    is_over: bool,
    /// Launches that are being given.
    num_giving: u32,
}

impl Slices {
    pub fn new(limits: &Limits) -> Self {
        let cores = limits.num_multiprocessors.max(1);
        let highest_price = looks::most(cores.saturating_mul(THREADS_PER_MULTIPROCESSOR)).min(looks::BUDGET);
        let first_price = looks::BUDGET / cores.saturating_mul(FIRST_LOOKS);
        Self {
            first_price: first_price.clamp(1, highest_price),
            highest_price,
            current: Mutex::default(),
        }
    }

    pub fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock()
    }

    /// Notes that a launch is given from now on, until [`Self::has_given`]; what its looks cost.
    pub fn gives(&self, current: &mut Current, kernel: &str) -> u32 {
        current.num_giving += 1;
        current.began.get_or_insert_with(Instant::now);
        if !current.kernels.contains(kernel) {
            current.kernels.insert(kernel.to_owned());
        }
        current.prices.get(kernel).map_or(self.first_price, |price| price.now)
    }

    /// The launch is given, or has failed to be.
    pub fn has_given(&self) {
        let mut current = self.current();
        current.num_giving = current.num_giving.saturating_sub(1);
    }

    /// Takes the length of a slice that is over because all is spent.
    pub fn note_end(&self) {
        let mut current = self.current();
        let Some(began) = current.began.filter(|_| !current.is_over) else {
            return;
        };
        current.is_over = true;
        let lasted = began.elapsed();
        for kernel in std::mem::take(&mut current.kernels) {
            let price = current.prices.entry(kernel).or_insert(Price::new(self.first_price));
            *price = price.after(lasted, self.highest_price);
        }
        tracing::trace!(?lasted, prices = ?current.prices, "slice");
    }
}

impl Current {
    /// True if a new slice is worth its while; only where no launch is under way.
    pub fn is_worth_renewing(&self) -> bool {
        self.num_giving == 0 && self.began.is_some_and(|began| began.elapsed() > WORTH_RENEWING)
    }

    /// The next slice begins with the next launch.
    pub fn renew(&mut self) {
        self.began = None;
        self.kernels.clear();
        self.is_over = false;
    }
}

/// What the looks of a kernel cost.
#[derive(Clone, Copy, Debug)]
struct Price {
    now: u32,
    /// The lower price that it was raised from after the slice before, and how long that lasted.
    raised_from: Option<(u32, Duration)>,
}

impl Price {
    fn new(now: u32) -> Self {
        let raised_from = None;
        Self { now, raised_from }
    }

    /// The price after a slice that `lasted` so long.
    ///
    /// Looks that cost more make a slice shorter. Where one has hardly become so, other work of the machine lasts, not
    /// the looks: to raise the price further would leave less and less of each slice to the kernel.
    fn after(self, lasted: Duration, highest: u32) -> Self {
        if let Some((lower, lasted_then)) = self.raised_from {
            let spent = lasted_then.as_secs_f64() * (1.0 - f64::from(lower) / f64::from(self.now));
            if lasted_then.saturating_sub(lasted).as_secs_f64() < spent / 2.0 {
                return Self::new(lower);
            }
        }
        let next = next_price(self.now, lasted, highest);
        Self {
            now: next,
            raised_from: (next > self.now).then_some((self.now, lasted)),
        }
    }
}

/// What looks are to cost after a slice that `lasted` so long.
fn next_price(price: u32, lasted: Duration, highest: u32) -> u32 {
    let factor = (lasted.as_secs_f64() / SLICE.as_secs_f64()).clamp(MAX_PRICE_FALL, MAX_PRICE_RISE);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most eight times 32 bits, and more than 0"
    )]
    let next = (f64::from(price) * factor).ceil() as u64;
    u32::try_from(next).unwrap_or(highest).clamp(1, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(num_multiprocessors: u32) -> Slices {
        Slices::new(&Limits {
            max_shared_bytes: 0,
            num_multiprocessors,
            is_cpu: false,
            max_cooperative_blocks: 1,
            max_stopped_bytes: 0,
        })
    }

    #[test]
    fn prices_come_to_rest_where_a_slice_has_its_length() {
        for look in [20e-9, 3e-6, 1e-3] {
            let highest = 1 << 18;
            let lasts = |price: u32| f64::from(looks::BUDGET) / f64::from(price) * look;
            let mut price = Price::new(1 << 15);
            for _ in 0..12 {
                price = price.after(Duration::from_secs_f64(lasts(price.now)), highest);
            }
            let price = price.now;
            let is_right = (0.05..0.2).contains(&lasts(price));
            assert!(is_right || price == highest, "{look}: {price}, {}", lasts(price));
        }
    }

    #[test]
    fn on_a_busy_machine_looks_stay_cheap() {
        const LOOK: f64 = 3e-6;
        let mut price = Price::new(1 << 15);
        let mut num_looks = 0;
        for _ in 0..100 {
            let looks_now = looks::BUDGET / price.now;
            num_looks += looks_now;
            let lasted = Duration::from_secs_f64(0.5 + f64::from(looks_now) * LOOK);
            price = price.after(lasted, 1 << 18);
        }
        assert!(num_looks > 40 * (looks::BUDGET >> 15), "{num_looks}");
    }

    #[test]
    fn no_number_of_threads_overflows_the_word() {
        for cores in [0, 1, 2, 132, 1 << 14, 1 << 25, u32::MAX] {
            let slices = slices(cores);
            let threads = u64::from(cores.max(1)) * u64::from(THREADS_PER_MULTIPROCESSOR);
            let added = threads.min(u64::from(u32::MAX)) * u64::from(slices.highest_price);
            assert!(added <= u64::from(looks::STOP) || slices.highest_price == 1);
            assert!((1..=slices.highest_price).contains(&slices.first_price));
        }
    }

    #[test]
    fn a_kernel_keeps_its_price() {
        let slices = slices(2);
        let first = slices.gives(&mut slices.current(), "k");
        slices.has_given();
        assert!(!slices.current().is_worth_renewing());
        slices.note_end();
        // Its length is taken once.
        slices.note_end();
        slices.current().renew();
        assert_eq!(slices.gives(&mut slices.current(), "k"), first / 4);
        assert_eq!(slices.gives(&mut slices.current(), "other"), first);
    }
}
