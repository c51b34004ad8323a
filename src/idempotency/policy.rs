//! How records are kept and attempts are judged.

use std::time::Duration;

use crate::results::Results;

/// How records are kept and attempts are judged.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Life of a record from its claim. It should outlive the message in every queue that it
    /// may still come from.
    pub retention: Duration,
    /// Attempts after which a failure is permanent.
    pub max_attempts: u8,
    /// What is done where an earlier attempt may have taken effect.
    pub recovery: Recovery,
    /// Largest result kept in the record, bytes.
    pub result_max_bytes: usize,
    /// Where a larger one is kept; with `None` it is not.
    pub results: Option<Results>,
    /// How far the lease outlasts the deadline, for requests that are still on the wire.
    pub lease_grace: Duration,
    /// The longest lease. A work whose deadline is further away is cut off when it ends. All consumers of a namespace
    /// must agree on it: a lease that lasts longer was taken while the store's clock ran ahead, and is shortened.
    pub longest_lease: Duration,
}

/// What is done where an earlier attempt may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// [`Work::recover`](crate::work::Work::recover) runs.
    Rerun,
    /// Nothing runs: the message fails permanently, for somebody to look at.
    Park,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            // As long as SQS can keep a message.
            retention: Duration::from_hours(14 * 24),
            // An attempt that died before it could be given back counts, so there is room for some of those.
            max_attempts: 10,
            recovery: Recovery::Rerun,
            result_max_bytes: 4096,
            results: None,
            lease_grace: Duration::from_secs(1),
            // Longer than a job takes that is run once a day.
            longest_lease: Duration::from_hours(24),
        }
    }
}
