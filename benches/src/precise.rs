//! A wait that is exact to microseconds.

use std::hint::spin_loop;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A sleeping thread wakes late on Linux, by its timer slack of 50 µs and more. The thread spins during the last part
/// of a wait.
const SLACK: Duration = Duration::from_micros(100);

/// Blocks the thread until this time.
pub fn wait_until(until: Instant) {
    sleep(until.saturating_duration_since(Instant::now() + SLACK));
    while Instant::now() < until {
        spin_loop();
    }
}
