//! The outcome of one delivery.

use std::time::Duration;

use super::owner::Fence;
use super::record::State;
use super::store::StoreError;
use super::work_error::WorkError;

/// The outcome of one delivery. [`decision`](Report::decision) turns it into an instruction for the broker.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// What happened.
    pub outcome: Outcome,
    /// Fence of the claim, if there is one.
    pub fence: Option<Fence>,
    /// Number of attempts, if known.
    pub attempts: Option<u8>,
    /// Whether the work was started.
    pub ran: bool,
    /// Whether this run was a recovery.
    pub recovery: bool,
    /// Whether the store confirmed that it recorded how the claim ended. If not, the key may be in conflict until the
    /// lease ends. It is false without a claim.
    pub is_settled: bool,
}

impl Report {
    /// Of a delivery that has no claim.
    pub(super) fn without_claim(outcome: Outcome, fence: Option<Fence>, attempts: Option<u8>) -> Self {
        Self { outcome, fence, attempts, ran: false, recovery: false, is_settled: false }
    }
}

/// What happened to a delivery.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done and recorded.
    Done {
        /// The result of the work.
        result: Vec<u8>,
    },
    /// The work was done before. Nothing ran.
    Duplicate {
        /// The result of the earlier run. `None` if it was not kept, could not be read, or was not requested.
        result: Option<Vec<u8>>,
    },
    /// Another owner holds the lease. Nothing ran.
    Conflict {
        /// Remaining time of that lease. For work with its own record, the time until the other attempt has probably
        /// ended.
        lease_remains: Duration,
    },
    /// Another payload was completed under this key, or may have taken effect. Nothing ran.
    Mismatch,
    /// An earlier attempt failed permanently, or all attempts are used up. Nothing ran.
    FailedBefore,
    /// The work was not started, because its deadline had passed, or because its lease, which lasts at most
    /// [`Policy::longest_lease`](super::Policy::longest_lease), had ended. Nothing ran. The attempt is not counted if
    /// the store could be reached.
    NotStarted,
    /// The receiver of the work is unavailable, or something that this message needs is in use. The work had no effect.
    /// The attempt is not counted if the store could be reached.
    Unavailable {
        /// The error of the work.
        error: WorkError,
    },
    /// The attempt failed and was recorded. The next delivery is another attempt.
    Failed {
        /// The error of the work. A panic and a cancellation are also errors.
        error: WorkError,
        /// Whether this or an earlier attempt may have taken effect. The next attempt is then a recovery.
        uncertain: bool,
    },
    /// The attempt failed and no other is made for this message: the error is permanent, or all attempts are used up.
    FailedPermanently {
        /// The error of the work. Its kind is that of this attempt, even if the attempts are exhausted.
        error: WorkError,
        /// Whether this or an earlier attempt may have taken effect.
        uncertain: bool,
    },
    /// Another owner acquired the record during the work.
    Lost {
        /// State of the record now.
        state: State,
        /// Whether the work succeeded in this run. The message is then acknowledged, whatever the other owner does. If
        /// the work failed, it is not, because a completed record may be of another payload.
        done: bool,
    },
    /// The outcome of the attempt could not be recorded before the deadline. The work ran if [`Report::ran`]. The next
    /// delivery is a recovery, unless the store executes the settle call later.
    Unsettled {
        /// The last error of the store.
        error: StoreError,
    },
    /// The work is done according to its own record, such as the row of an inbox, but not according to the store:
    /// another owner holds that record, or it could not be written.
    DoneByOwnRecord {
        /// The result of the work.
        result: Vec<u8>,
    },
}
