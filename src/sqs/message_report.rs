//! What happened to each message, and why.

use std::borrow::Cow;
use std::time::Duration;

use tracing::Span;

use super::dead_letter::DeadLetterOutcome;
use super::disposition::Disposition;
use super::extended_client::ExtendedClientError;
use super::message::Message;
use super::outcome::MessageOutcome;
use crate::idempotency::{Fence, Key, Outcome, Report, StoreError, error_chain};
use crate::traces;

/// The reason of a message that was not started, or whose claim was released before its work was started.
const TOO_LATE: &str = "too little time was left to start the work";

/// What happened to one message, and whether it is deleted or delivered again.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "none of them excludes another")]
pub struct MessageReport {
    /// What happened.
    pub outcome: MessageOutcome,
    /// Whether the message is deleted or delivered again.
    pub disposition: Disposition,
    /// The reason, for the log. It never contains the payload.
    pub reason: Cow<'static, str>,
    /// The idempotency key, if there is one.
    pub key: Option<Key>,
    /// Fence of the claim, if there is one.
    pub fence: Option<Fence>,
    /// Number of attempts, if known.
    pub attempts: Option<u8>,
    /// Whether the work was started.
    pub ran: bool,
    /// Whether the work failed and no other attempt is made for this message.
    pub failed_permanently: bool,
    /// Why the message cannot succeed, if so.
    pub dead_letter: Option<DeadLetterOutcome>,
    /// Whether the message could not be sent to the dead-letter queue, other than for lack of time, for lack of the
    /// store, or because another delivery is sending it.
    pub dead_letter_not_sent: bool,
    /// Whether too little time was left to start the work.
    pub(super) too_late: bool,
}

impl MessageReport {
    /// The report on a message that the core has processed.
    pub(super) fn of(report: Report, message: &Message, has_payload: bool) -> Self {
        let dead_letter = match DeadLetterOutcome::of(&report) {
            Some(_) if !has_payload => Some(DeadLetterOutcome::Unreadable),
            outcome => outcome,
        };
        let disposition = Disposition::of(&report, message);
        let acquired = match report.fence {
            // The deadline passed before the acquire.
            None if matches!(report.outcome, Outcome::NotStarted) => MessageOutcome::NotProcessed,
            // The work's own record could not be read, or does not show what took effect.
            None if matches!(report.outcome, Outcome::Unavailable { .. }) => MessageOutcome::Unavailable,
            // The store says that it has failed, and the work's own record does not show that it is done.
            None => MessageOutcome::Failed,
            Some(_) if report.recovery => MessageOutcome::AcquiredStale,
            Some(_) => MessageOutcome::Acquired,
        };
        let too_late = matches!(report.outcome, Outcome::NotStarted);
        let failed_permanently = report.fence.is_some() && matches!(report.outcome, Outcome::FailedPermanently { .. });
        let (outcome, reason) = match report.outcome {
            Outcome::Done { .. } => (acquired, "done".into()),
            Outcome::Duplicate { .. } => (MessageOutcome::Duplicate, "done before".into()),
            Outcome::Conflict { lease_remains } => {
                let reason = format!("another owner holds the lease, for up to {} ms more", lease_remains.as_millis());
                (MessageOutcome::Conflict, reason.into())
            }
            Outcome::Mismatch => {
                let reason = "the key was used with another payload";
                (MessageOutcome::Mismatch, reason.into())
            }
            Outcome::FailedBefore => {
                let reason = "an earlier attempt failed permanently, or all attempts are used up; nothing ran; the log of \
                              the key has the reason";
                (MessageOutcome::Failed, reason.into())
            }
            Outcome::NotStarted => (acquired, TOO_LATE.into()),
            Outcome::Unavailable { error } => (acquired, format!("unavailable: {}", error_chain(&error)).into()),
            Outcome::Failed { error, uncertain } => {
                let kind = if uncertain { "uncertain" } else { "failed" };
                (acquired, format!("{kind}: {}", error_chain(&error)).into())
            }
            Outcome::FailedPermanently { error, uncertain } => {
                let kind = match dead_letter {
                    Some(DeadLetterOutcome::AttemptsUsedUp) => "attempts used up",
                    _ => "failed permanently",
                };
                let effect = if uncertain { ", and may have taken effect" } else { "" };
                (acquired, format!("{kind}{effect}: {}", error_chain(&error)).into())
            }
            Outcome::Lost { state: _, done: true } => {
                (MessageOutcome::Lost, "done; another owner acquired the record during the work".into())
            }
            Outcome::Lost { state: _, done: false } => {
                (MessageOutcome::Lost, "another owner acquired the record during the work".into())
            }
            Outcome::DoneByOwnRecord { .. } => (acquired, "the work is done; the store does not show it yet".into()),
            Outcome::Unsettled { error } => {
                let what = if report.ran { "the work ran, but its outcome" } else { "the work did not run, and this" };
                (acquired, format!("{what} could not be recorded: {}", error_chain(&error)).into())
            }
        };
        let Report { fence, attempts, ran, .. } = report;
        Self {
            outcome,
            disposition,
            reason,
            key: None,
            fence,
            attempts,
            ran,
            failed_permanently,
            dead_letter,
            dead_letter_not_sent: false,
            too_late,
        }
    }

    /// The message could not be parsed.
    pub(super) fn unreadable(message: &Message) -> Self {
        Self::unreadable_payload("the message has no readable body", message)
    }

    /// The payload could not be fetched from S3. A later fetch may succeed.
    pub(super) fn payload_unavailable(error: &ExtendedClientError, message: &Message) -> Self {
        Self::without_claim(MessageOutcome::Unreadable, Disposition::back_off(message), error_chain(error))
    }

    /// The payload in S3 cannot be read.
    pub(super) fn unreadable_payload(reason: impl Into<Cow<'static, str>>, message: &Message) -> Self {
        Self::hopeless(MessageOutcome::Unreadable, DeadLetterOutcome::Unreadable, reason, message)
    }

    /// The message has no usable key.
    pub(super) fn no_key(reason: String, message: &Message) -> Self {
        Self::hopeless(MessageOutcome::NoKey, DeadLetterOutcome::NoKey, reason, message)
    }

    /// The message was not processed.
    pub(super) fn not_processed(disposition: Disposition, reason: &'static str) -> Self {
        Self::without_claim(MessageOutcome::NotProcessed, disposition, reason)
    }

    /// Too little time was left to acquire the message. It is redelivered after the queue's visibility timeout.
    pub(super) fn no_time() -> Self {
        Self { too_late: true, ..Self::not_processed(Disposition::Redeliver { after: None }, TOO_LATE) }
    }

    /// The report on a message that comes after messages of its group that are done. If too little time was left for it,
    /// it is redelivered at once: its group waits for it, and invocations that follow each other make progress. An
    /// in-batch duplicate comes some seconds after the message of another group that it duplicates.
    pub(super) fn behind_done(self) -> Self {
        if !self.too_late {
            return self;
        }
        let at_once = Disposition::Redeliver { after: Some(Duration::ZERO) };
        let is_duplicate = self.outcome == MessageOutcome::InBatchDuplicate;
        Self { disposition: if is_duplicate { at_once.apart() } else { at_once }, ..self }
    }

    /// The message was not started, because the store or its receiver is unavailable.
    pub(super) fn backed_off(message: &Message, reason: &'static str) -> Self {
        Self::not_processed(Disposition::back_off(message), reason)
    }

    /// The store call for this message failed.
    pub(super) fn store_error(error: &StoreError, message: &Message) -> Self {
        let outcome = if error.is_unavailable() { MessageOutcome::Unavailable } else { MessageOutcome::NotARecord };
        Self::without_claim(outcome, Disposition::back_off(message), error_chain(error))
    }

    /// Records the report in the span of its message.
    pub(super) fn record_in(&self, span: &Span) {
        let Self { outcome, key, fence, attempts, .. } = self;
        let failure = (self.disposition != Disposition::Done).then_some(&*self.reason);
        traces::record_outcome(span, outcome.as_str(), key.as_ref(), *fence, *attempts, failure);
    }

    /// The message was moved to the dead-letter queue, now or before, as `note` says.
    pub(super) fn moved(self, note: &str) -> Self {
        let reason = format!("{}; {note}", self.reason);
        Self { disposition: Disposition::DeadLetter, reason: reason.into(), ..self }
    }

    /// The message is not in the dead-letter queue yet.
    pub(super) fn not_moved(self, why: &str) -> Self {
        let reason = format!("{}; not moved to the dead-letter queue: {why}", self.reason);
        Self { reason: reason.into(), ..self }
    }

    /// The message could not be sent to the dead-letter queue.
    pub(super) fn not_sent(self, why: &str) -> Self {
        Self { dead_letter_not_sent: true, ..self.not_moved(why) }
    }

    /// The report if the store was unavailable before any work ran. The invocation then fails, and each message is
    /// delivered again. A message waits as long as `earlier`, the disposition of the message before it in its group.
    /// The first message of a group waits as [`first_in_outage`](Self::first_in_outage) says. Without these delays, a
    /// message would be received again after the visibility timeout, and a long outage would use up its receives. A
    /// message whose key is leased also waits for the end of the lease.
    pub(super) fn in_outage(&self, earlier: Disposition) -> Self {
        let reason = match self.disposition {
            Disposition::Redeliver { after: _ } => self.reason.clone(),
            Disposition::Done | Disposition::DeadLetter => {
                format!("{}; not acknowledged, because the idempotency store is unavailable", self.reason).into()
            }
        };
        // An in-batch duplicate of a conflict waits for the same lease.
        let has_own_delay = matches!(self.outcome, MessageOutcome::Conflict | MessageOutcome::InBatchDuplicate);
        let is_longer = self.disposition.delay() > earlier.delay();
        let disposition = if has_own_delay && is_longer { self.disposition } else { earlier };
        Self { disposition, reason, ..self.clone() }
    }

    /// How long the first message of a group waits in such an invocation. It keeps its delay, because an in-batch
    /// duplicate of it waits longer than that.
    pub(super) fn first_in_outage(&self, message: &Message) -> Disposition {
        match self.disposition {
            Disposition::Redeliver { after: Some(_) } if self.outcome != MessageOutcome::InBatchDuplicate => {
                self.disposition
            }
            Disposition::Redeliver { after: _ } | Disposition::Done | Disposition::DeadLetter => {
                Disposition::back_off(message)
            }
        }
    }

    /// Sets the key.
    pub(super) fn with_key(self, key: &Key) -> Self {
        Self { key: Some(key.clone()), ..self }
    }

    /// The report on another message of the batch with the same key and payload. The work ran once for both. If the
    /// message is redelivered, that happens at another time, so that a permanent failure of one does not also fail the
    /// other.
    pub(super) fn for_in_batch_duplicate(&self, duplicate: &Message) -> Self {
        let reason = format!("same key and payload as another message of the batch: {}", self.reason);
        let outcome = MessageOutcome::InBatchDuplicate;
        // The wait for a lease is not limited.
        let is_conflict = self.outcome == MessageOutcome::Conflict;
        let shared = if is_conflict { self.disposition } else { self.disposition.shared_with(duplicate) };
        let disposition = shared.apart();
        // The record permits an attempt for another messageId, unless it is of another payload.
        let dead_letter = self.dead_letter.filter(|outcome| *outcome == DeadLetterOutcome::Mismatch);
        let (ran, failed_permanently) = (false, false);
        Self { outcome, disposition, reason: reason.into(), ran, failed_permanently, dead_letter, ..self.clone() }
    }

    /// The message cannot succeed, and has no claim.
    fn hopeless(
        outcome: MessageOutcome,
        dead_letter: DeadLetterOutcome,
        reason: impl Into<Cow<'static, str>>,
        message: &Message,
    ) -> Self {
        let dead_letter = Some(dead_letter);
        Self { dead_letter, ..Self::without_claim(outcome, Disposition::back_off(message), reason) }
    }

    fn without_claim(outcome: MessageOutcome, disposition: Disposition, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            outcome,
            disposition,
            reason: reason.into(),
            key: None,
            fence: None,
            attempts: None,
            ran: false,
            failed_permanently: false,
            dead_letter: None,
            dead_letter_not_sent: false,
            too_late: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_whose_deadline_passed_before_its_acquire_was_not_processed() {
        let (outcome, fence, attempts) = (Outcome::NotStarted, None, None);
        let report = Report { outcome, fence, attempts, ran: false, recovery: false, is_settled: false };
        let report = MessageReport::of(report, &Message::default(), true);
        assert_eq!((report.outcome, report.dead_letter), (MessageOutcome::NotProcessed, None));
    }

    #[test]
    fn a_message_that_is_done_is_not_acknowledged_by_an_invocation_that_fails() {
        for disposition in [Disposition::Done, Disposition::DeadLetter, Disposition::Redeliver { after: None }] {
            let report = MessageReport { disposition, ..MessageReport::no_time() };
            let backoff = Disposition::back_off(&Message::default());
            let MessageReport { disposition: now, reason, .. } = report.in_outage(backoff);
            assert!(matches!(now, Disposition::Redeliver { after: Some(_) }), "{now:?}");
            let has_note = reason.ends_with("not acknowledged, because the idempotency store is unavailable");
            assert_eq!(has_note, !matches!(disposition, Disposition::Redeliver { .. }), "{reason}");
        }
    }
}
