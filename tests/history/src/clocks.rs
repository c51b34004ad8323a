//! The clocks of this machine, as numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock. On Linux it is not that of tokio, which the recorded function replaces.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// µs by a monotonic clock, which all processes of this machine share until it is started again.
#[must_use]
pub fn monotonic_us() -> u64 {
    let time = clock_gettime(CLOCK);
    let us = time.tv_sec * 1_000_000 + time.tv_nsec / 1000;
    u64::try_from(us).unwrap_or_default()
}

/// µs since 1970.
pub(crate) fn unix_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
