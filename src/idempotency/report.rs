//! What became of a delivery.

use std::time::Duration;

use crate::record::{Failure, Fence, State};
use crate::store::StoreError;
use crate::work::WorkError;

/// What became of a delivery.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub outcome: Outcome,
    /// Fence of the claim, where there is one.
    pub fence: Option<Fence>,
    /// Count of attempts, where it is known.
    pub attempt: Option<u8>,
    /// Whether this run was a recovery.
    pub recovery: bool,
}

/// What happened to a delivery.
#[derive(Debug)]
pub enum Outcome {
    /// The work is done and recorded.
    Done {
        /// What the work returned.
        result: Vec<u8>,
    },
    /// The work was done before.
    Duplicate {
        /// What it returned then; `None` where the result was not kept, cannot be had, or was not
        /// asked for.
        result: Option<Vec<u8>>,
    },
    /// Another owner is at work.
    Conflict {
        /// How long its lease lasts.
        lease_remains: Duration,
    },
    /// The key stands for another payload, which was completed or may have taken effect. Nothing ran.
    Mismatch,
    /// An earlier attempt failed for good, or all attempts are used up. Nothing ran.
    Failed,
    /// No time was left to start the work. Nothing ran, and the attempt is not counted if the store could be told.
    NotStarted,
    /// What the work needs is out of reach or overloaded. Nothing happened, and the attempt is not counted if the store
    /// could be told.
    Unavailable {
        /// What the work said.
        error: WorkError,
    },
    /// The work failed, and that is recorded.
    WorkFailed {
        /// What the work said, or what befell it.
        error: WorkError,
        /// As it was recorded. Permanent also where this was the last attempt.
        failure: Failure,
    },
    /// The record went to somebody else while the work ran.
    Lost {
        /// The state it is in now.
        state: State,
        /// Whether the work was done. Where it failed, what others completed may be another payload.
        done: bool,
    },
    /// The work ran, and its record could not be written in time. The next delivery is a recovery,
    /// unless the write arrives late.
    Unsettled {
        /// What the store said last.
        error: StoreError,
    },
    /// The work is done by its [own record](crate::work::Work::keeps_record), which the store's does not tell: it went
    /// to somebody else, or could not be written.
    Kept {
        /// What the work returned.
        result: Vec<u8>,
    },
}
