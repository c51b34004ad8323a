//! How the time of an invocation is spent.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The end of an invocation, and how the time before it is spent.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Work is cancelled here, and none is started any more.
    pub work: Instant,
    /// Settling is given up here.
    pub settle: Instant,
    /// The answer is given from here on.
    pub answer: Instant,
    /// The invocation is killed here.
    pub end: Instant,
}

impl Deadline {
    /// Time kept free for settling and answering: two replies that Redis is late with, at its
    /// default timeout.
    const RESERVE: Duration = Duration::from_secs(1);

    /// Ten years, as the longest retention in the settings. An instant that is much further away does not
    /// exist on every system, and Redis's scripts cannot hold a lease that lasts until then.
    const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

    /// A deadline this far from now, and ten years at most. A second of it, and never more than a quarter,
    /// is kept free for settling what was cut off and for the answer.
    ///
    /// A claim's lease lasts as long: what a process leaves when it dies is a conflict until then.
    #[must_use]
    pub fn within(remaining: Duration) -> Self {
        let remaining = remaining.min(Self::LONGEST);
        let end = Instant::now() + remaining;
        let reserve = Self::RESERVE.min(remaining / 4);
        Self { work: end - reserve, settle: end - reserve / 3, answer: end - reserve / 8, end }
    }

    /// The deadline of an invocation that ends then. Lambda names the end by its host's clock; from here
    /// on only durations count.
    #[must_use]
    pub fn at(end: SystemTime) -> Self {
        // cargo-lambda's emulator sends the function's timeout in its place: minutes after 1970.
        const EMULATED: Duration = Duration::from_hours(24);
        let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let remaining = end.duration_since(SystemTime::now()).unwrap_or_default();
        Self::within(if since_1970 < EMULATED { since_1970 } else { remaining })
    }

    /// Whether it is too late to start any work.
    #[must_use]
    pub fn is_too_late(&self) -> bool {
        Instant::now() >= self.work
    }
}
