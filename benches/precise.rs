//! Waits that are as long as they say.

use std::hint::spin_loop;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A sleeper wakes about so much too late on Linux (its timer slack is 50 µs), so the end of a wait
/// is spent awake.
const SLACK: Duration = Duration::from_micros(100);

pub(crate) fn wait_until(until: Instant) {
    sleep(until.saturating_duration_since(Instant::now() + SLACK));
    while Instant::now() < until {
        spin_loop();
    }
}
