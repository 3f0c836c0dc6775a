//! Removes programs that were prepared and of which their sources have said nothing more for too long, if `serve` is
//! told to.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hetckpt_report::remark;

use crate::migration::launch::Launcher;

/// Most looks in the time after which one expires.
const LOOKS: u32 = 10;

/// Longest time between two looks.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Shortest time between two looks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Looks again and again, in a thread of its own.
pub fn start(launcher: &Arc<Launcher>) {
    let Some(after) = launcher.options.expire.map(Duration::from_secs) else {
        return;
    };
    let launcher = Arc::clone(launcher);
    std::thread::spawn(move || {
        loop {
            for id in launcher.depot.expire(SystemTime::now(), after) {
                remark::note(format!(
                    "{id}: removed, its source has not said for {} s whose the program is",
                    after.as_secs()
                ));
            }
            std::thread::sleep((after / LOOKS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL));
        }
    });
}
