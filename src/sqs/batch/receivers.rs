//! Which receivers are unavailable, so that a batch does not call one of them for each of its messages.
//!
//! - Once a message finds its receiver unavailable, no further message of the batch is sent there.
//! - Later batches of the process send one message at a time, until the receiver does the work of one of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{self, OwnedMutexGuard, TryLockError};

use crate::idempotency::{AttemptResult, RecordedAttempt, WorkError};

/// How many receivers are remembered. Without a limit, messages that name ever new receivers would use more and more
/// memory.
const MAX_REMEMBERED: usize = 1000;

/// The receivers that were unavailable when they were last called, by [`Work::receiver`](crate::Work::receiver). The
/// batches of a process share them. Beyond [`MAX_REMEMBERED`], one of them is forgotten for each new one.
#[derive(Debug, Default)]
pub(super) struct KnownUnavailable(Mutex<HashSet<String>>);

/// The receivers of one batch.
pub(super) struct Receivers<'a> {
    known: &'a KnownUnavailable,
    /// Receivers that this batch found unavailable.
    found: KnownUnavailable,
    /// By receiver: held while a message is sent to one that is known to be unavailable.
    turns: Mutex<HashMap<String, Arc<sync::Mutex<()>>>>,
}

/// Held while a message is sent to a receiver that is known to be unavailable.
pub(super) type Turn = OwnedMutexGuard<()>;

impl KnownUnavailable {
    fn contains(&self, receiver: &str) -> bool {
        self.lock().contains(receiver)
    }

    fn remember(&self, receiver: &str) {
        let mut receivers = self.lock();
        if receivers.len() >= MAX_REMEMBERED
            && !receivers.contains(receiver)
            && let Some(other) = receivers.iter().next().cloned()
        {
            receivers.remove(&other);
        }
        receivers.insert(receiver.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Receivers<'a> {
    pub(super) fn new(known: &'a KnownUnavailable) -> Self {
        Self { known, found: KnownUnavailable::default(), turns: Mutex::default() }
    }

    /// The turn of this message, if its receiver [is probed](Self::is_probed). This method does not wait for a turn:
    /// the receiver may hang, and the wait would delay messages for other receivers.
    ///
    /// # Errors
    /// If another message has the turn.
    pub(super) fn turn(&self, receiver: &str) -> Result<Option<Turn>, TryLockError> {
        if self.is_probed(receiver) { self.turns_of(receiver).try_lock_owned().map(Some) } else { Ok(None) }
    }

    /// Waits until no message has the turn of this receiver.
    ///
    /// ## Cancel safety
    /// Cancel safe.
    pub(super) async fn wait_for_free_turn(&self, receiver: &str) {
        drop(self.turns_of(receiver).lock().await);
    }

    fn turns_of(&self, receiver: &str) -> Arc<sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(receiver.to_owned()).or_default())
    }

    /// Whether one message at a time is sent to the receiver, until it does the work of one.
    pub(super) fn is_probed(&self, receiver: &str) -> bool {
        self.is_known_unavailable(receiver) && !self.is_unavailable(receiver)
    }

    /// Whether the receiver was unavailable when it was last called, by this batch or an earlier one.
    pub(super) fn is_known_unavailable(&self, receiver: &str) -> bool {
        self.known.contains(receiver)
    }

    /// Whether every receiver responded when it was last called.
    pub(super) fn none_known_unavailable(&self) -> bool {
        self.known.lock().is_empty()
    }

    /// Whether this batch found the receiver unavailable. No further message is sent there.
    pub(super) fn is_unavailable(&self, receiver: &str) -> bool {
        self.found.contains(receiver)
    }

    /// Learns from how an attempt ended. An error other than unavailable does not show whether the receiver responds:
    /// it may be a timeout, or be found before the receiver was called.
    pub(super) fn observe(&self, receiver: &str, result: &AttemptResult) {
        match result {
            AttemptResult::Returned(RecordedAttempt::Unreachable(_)) => self.insert(receiver),
            AttemptResult::Failed(error) => self.observe_error(receiver, error),
            AttemptResult::NotRun(_) | AttemptResult::Parked | AttemptResult::NotStarted => {}
            AttemptResult::Returned(_) | AttemptResult::DoneWithoutPayload(_) => {
                self.known.lock().remove(receiver);
            }
        }
    }

    /// Learns from an error of the receiver, such as that of a database in which the work's own record is read.
    pub(super) fn observe_error(&self, receiver: &str, error: &WorkError) {
        if error.is_unavailable() {
            self.insert(receiver);
        }
    }

    fn insert(&self, receiver: &str) {
        self.known.remember(receiver);
        self.found.lock().insert(receiver.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            AttemptResult::DoneWithoutPayload(Vec::new()),
        ] {
            assert!(!stays_unavailable(&responds));
        }
        for shows_nothing in [
            AttemptResult::Failed(WorkError::uncertain("no answer")),
            AttemptResult::Failed(WorkError::retryable("refused")),
            AttemptResult::Failed(WorkError::busy_after("in use", after)),
            AttemptResult::Failed(WorkError::permanent("no such account")),
            AttemptResult::NotRun(WorkError::permanent("no payload")),
            AttemptResult::Parked,
            AttemptResult::NotStarted,
        ] {
            assert!(stays_unavailable(&shows_nothing));
        }
    }

    #[test]
    fn a_receiver_that_cannot_be_reached_is_unavailable() {
        for is_out_of_reach in [
            AttemptResult::Returned(RecordedAttempt::Unreachable("no connection".into())),
            AttemptResult::Failed(WorkError::unavailable("no connection")),
        ] {
            let known = KnownUnavailable::default();
            let receivers = Receivers::new(&known);
            receivers.observe("database", &is_out_of_reach);
            assert!(receivers.is_unavailable("database") && receivers.is_known_unavailable("database"));
        }
    }

    #[test]
    fn at_most_a_thousand_unavailable_receivers_are_remembered_and_always_the_last_one() {
        let known = KnownUnavailable::default();
        for number in 0..3000 {
            let receivers = Receivers::new(&known);
            let receiver = format!("webhook-{number}");
            receivers.observe_error(&receiver, &WorkError::unavailable("no connection"));
            receivers.observe_error(&receiver, &WorkError::unavailable("no connection"));
            assert!(receivers.is_known_unavailable(&receiver));
            assert_eq!(known.lock().len(), 1000.min(number + 1));
        }
    }

    #[test]
    fn one_message_at_a_time_has_the_turn_until_the_receiver_responds() {
        let known = KnownUnavailable::default();
        known.lock().insert("webhook".into());
        let receivers = Receivers::new(&known);
        let first = receivers.turn("webhook");
        assert!(matches!(first, Ok(Some(_))) && receivers.turn("webhook").is_err());
        drop(first);
        assert!(matches!(receivers.turn("webhook"), Ok(Some(_))));
        receivers.observe("webhook", &AttemptResult::Returned(RecordedAttempt::Done(Vec::new())));
        assert!(matches!(receivers.turn("webhook"), Ok(None)));
    }
}
