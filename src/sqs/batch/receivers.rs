//! Which receivers are unavailable, so that a batch does not call one of them for each of its messages.
//!
//! - Once a message finds its receiver unavailable, no further message of the batch is sent there.
//! - Later batches of the process send one message at a time, until the receiver responds to one of them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync;

use crate::idempotency::{AttemptResult, RecordedAttempt, WorkErrorKind};

/// The receivers that were unavailable when they were last called, by [`Work::receiver`](crate::Work::receiver). The
/// batches of a process share them.
#[derive(Debug, Default)]
pub(super) struct KnownUnavailable(Mutex<HashSet<String>>);

/// The receivers of one batch.
pub(super) struct Receivers<'a> {
    known: &'a KnownUnavailable,
    /// Receivers that this batch found unavailable.
    found: KnownUnavailable,
    /// Held while a message is sent to a receiver that is known to be unavailable.
    probe: sync::Mutex<()>,
}

impl KnownUnavailable {
    fn contains(&self, receiver: &str) -> bool {
        self.lock().contains(receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Receivers<'a> {
    pub(super) fn new(known: &'a KnownUnavailable) -> Self {
        Self { known, found: KnownUnavailable::default(), probe: sync::Mutex::new(()) }
    }

    /// Waits until this message may be sent. If the receiver is known to be unavailable, the next message waits until
    /// the returned guard is dropped.
    ///
    /// ## Cancel safety
    /// Cancel safe.
    pub(super) async fn turn(&self, receiver: &str) -> Option<sync::MutexGuard<'_, ()>> {
        if !self.known.contains(receiver) {
            return None;
        }
        let probe = self.probe.lock().await;
        let is_still_unavailable = self.known.contains(receiver) && !self.is_unavailable(receiver);
        is_still_unavailable.then_some(probe)
    }

    /// Whether this batch found the receiver unavailable. No further message is sent there.
    pub(super) fn is_unavailable(&self, receiver: &str) -> bool {
        self.found.contains(receiver)
    }

    /// Learns from how an attempt ended. An uncertain one, such as a timeout, does not show whether the receiver is
    /// available.
    pub(super) fn observe(&self, receiver: &str, result: &AttemptResult) {
        let is_available = match result {
            AttemptResult::Failed(error) => match error.kind() {
                WorkErrorKind::Unavailable { .. } => false,
                WorkErrorKind::Retryable { .. } | WorkErrorKind::Busy { .. } | WorkErrorKind::Permanent => true,
                WorkErrorKind::Uncertain => return,
            },
            AttemptResult::Returned(RecordedAttempt::Unreachable(_))
            | AttemptResult::NotRun(_)
            | AttemptResult::NotStarted => return,
            AttemptResult::Returned(_) => true,
        };
        if is_available {
            self.known.lock().remove(receiver);
        } else {
            self.known.lock().insert(receiver.to_owned());
            self.found.lock().insert(receiver.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::idempotency::WorkError;

    /// Whether the receiver is known to be unavailable after this attempt, if it was before.
    fn stays_unavailable(result: &AttemptResult) -> bool {
        let known = KnownUnavailable::default();
        known.lock().insert("webhook".into());
        Receivers::new(&known).observe("webhook", result);
        known.contains("webhook")
    }

    #[test]
    fn a_receiver_is_available_once_an_attempt_shows_that_it_responds() {
        let after = Duration::from_secs(1);
        for responds in [
            AttemptResult::Returned(RecordedAttempt::Done(Vec::new())),
            AttemptResult::Returned(RecordedAttempt::DoneBefore(Vec::new())),
            AttemptResult::Returned(RecordedAttempt::Busy { after }),
            AttemptResult::Returned(RecordedAttempt::Mismatch),
            AttemptResult::Failed(WorkError::retryable("refused")),
            AttemptResult::Failed(WorkError::busy_after("in use", after)),
            AttemptResult::Failed(WorkError::permanent("no such account")),
        ] {
            assert!(!stays_unavailable(&responds));
        }
        for shows_nothing in [
            AttemptResult::Returned(RecordedAttempt::Unreachable("no connection".into())),
            AttemptResult::Failed(WorkError::unavailable("no connection")),
            AttemptResult::Failed(WorkError::uncertain("no answer")),
            AttemptResult::NotRun(WorkError::permanent("parked")),
            AttemptResult::NotStarted,
        ] {
            assert!(stays_unavailable(&shows_nothing));
        }
    }
}
