//! How the time of an invocation is divided.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The end of an invocation, and the points before it at which each step must end.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Deadline {
    /// Work is cancelled at this time, and none is started after it.
    pub work: Instant,
    /// Settling stops at this time.
    pub settle: Instant,
    /// Changes of visibility timeouts and the sending of traces stop at this time, so that the response is returned
    /// before the end.
    pub answer: Instant,
    /// The invocation is killed at this time.
    pub end: Instant,
}

impl Deadline {
    /// Time reserved for settling and responding: two replies from Redis at its default timeout.
    const RESERVE: Duration = Duration::from_secs(1);

    /// Ten years, the longest retention in the settings. Some systems cannot represent much later instants, and the
    /// Redis scripts cannot represent a lease that ends much later.
    const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

    /// A deadline `remaining` from now, at most ten years. One second of it, or a quarter if that is less, is
    /// reserved for settling and for the response.
    ///
    /// The lease of a claim lasts `remaining` plus [`Policy::lease_grace`](super::Policy::lease_grace), at most
    /// [`Policy::longest_lease`](super::Policy::longest_lease). If the process dies, the key is in conflict until the
    /// lease ends.
    #[must_use]
    pub fn within(remaining: Duration) -> Self {
        let remaining = remaining.min(Self::LONGEST);
        let end = Instant::now() + remaining;
        let reserve = Self::RESERVE.min(remaining / 4);
        Self { work: end - reserve, settle: end - reserve / 3, answer: end - reserve / 8, end }
    }

    /// The deadline of an invocation that ends at `end` by this machine's wall clock, as Lambda states it. Later
    /// changes of that clock have no effect.
    ///
    /// cargo-lambda's emulator sends the function's timeout, counted from 1970, instead of a point in time. A value
    /// less than 24 hours after 1970 is therefore taken as the remaining time. Without a configured timeout the
    /// emulator sends ten minutes, so leases last ten minutes too.
    #[must_use]
    pub fn at(end: SystemTime) -> Self {
        const EMULATED: Duration = Duration::from_hours(24);
        let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let remaining = end.duration_since(SystemTime::now()).unwrap_or_default();
        Self::within(if since_1970 < EMULATED { since_1970 } else { remaining })
    }

    /// This deadline, or the one `remaining` from now, whichever is earlier.
    #[cfg(feature = "lambda")]
    pub(crate) fn at_most(self, remaining: Duration) -> Self {
        let other = Self::within(remaining);
        if other.end < self.end { other } else { self }
    }

    /// Whether it is too late to start any work.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.work
    }
}
