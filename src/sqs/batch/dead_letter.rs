//! Moves a message that cannot succeed to the dead-letter queue.
//!
//! Sending the message and deleting it from its own queue are two steps, so a crash between them delivers it again.
//! Sending is therefore work under an idempotency record of its own, and a message that was sent before is only
//! deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::run::Run;
use crate::idempotency::{
    Claim, Deadline, Delivery, Fingerprint, Idempotency, Key, NextStep, Outcome, Policy, Recovery, Report, Store,
    StoreError, Work, WorkError, error_chain,
};
use crate::sqs::dead_letter_queue::{DeadLetterMessage, DeadLetterQueue};
use crate::sqs::message::Message;
use crate::sqs::message_report::MessageReport;

impl<S: Store, W: Work<Message>> Run<'_, S, W> {
    /// Sends the message to the dead-letter queue, if it cannot succeed and there is such a queue. If it cannot be
    /// sent, the message is delivered again after its backoff, until the redrive policy of its queue moves it.
    pub(super) async fn move_dead_letter(&self, message: &Message, report: MessageReport) -> MessageReport {
        let (Some(outcome), Some(queue)) = (report.dead_letter, &self.batch.settings.dead_letter_queue) else {
            return report;
        };
        let letter = queue.letter(outcome, message, &report, self.received);
        let dead_letter = match queue.message(message, letter) {
            Ok(dead_letter) => dead_letter,
            Err(why) => return not_sent(message, report, why, None),
        };
        let is_slow = &self.letters_fail_slowly;
        if is_slow.load(Ordering::Relaxed) {
            return not_sent(message, report, "another dead letter of the batch failed slowly", Some(ADVICE));
        }
        let work = SendDeadLetter { queue, dead_letter, sent: AtomicBool::new(false), is_slow };
        let result = self.send_once(message, &work).await;
        let was_sent = work.sent.into_inner();
        self.ran.fetch_or(was_sent, Ordering::Relaxed);
        match result {
            _ if was_sent => report.moved("moved to the dead-letter queue"),
            Ok(Report { outcome: Outcome::Duplicate { .. }, .. }) => report.moved("its dead letter was sent before"),
            Ok(Report { outcome: Outcome::Conflict { .. }, .. }) => {
                report.not_moved("another delivery is sending its dead letter")
            }
            Ok(Report { outcome: Outcome::Unavailable { error } | Outcome::Failed { error, .. }, .. }) => {
                not_sent(message, report, &error_chain(&error), Some(ADVICE))
            }
            Ok(Report { outcome: Outcome::NotStarted, .. }) => report.not_moved("no time was left to send it"),
            Ok(Report { outcome: Outcome::Mismatch, .. }) => not_sent(message, report, OTHER_QUEUE, None),
            Ok(_) => not_sent(message, report, "its record could not be acquired or settled", None),
            Err(error) if error.is_unavailable() => report.not_moved("the idempotency store is unavailable"),
            Err(error) => not_sent(message, report, &error_chain(&error), None),
        }
    }

    /// Sends the dead letter, unless a record shows that it was sent before.
    async fn send_once(&self, message: &Message, work: &SendDeadLetter<'_>) -> Result<Report, StoreError> {
        // Half of the time reserved for settling is used too, because the reason is known only in this delivery.
        let settling = self.deadline.settle.saturating_duration_since(self.deadline.work);
        let deadline = Deadline { work: self.deadline.work + settling / 2, ..self.deadline };
        let delivery = Delivery::new(Key::of_dead_letter(&message.id))
            .fingerprint(Fingerprint::of(format!("{} {:?}", message.id, message.queue_arn).as_bytes()))
            .message_id(&message.id)
            .deadline(deadline)
            .owner(self.owners.next());
        let letters = self.letters();
        let claim = match letters.acquire(&delivery, work).await {
            Ok(NextStep::Work(claim)) => claim,
            Ok(NextStep::Report(report)) => return Ok(report),
            Err(failed) => return Err(self.release_later(failed)),
        };
        let result = letters.attempt_work(&claim, work, message, &deadline).await;
        // The store is called once. The letter is sent in any case, and its message is deleted.
        letters.settle(&claim, result, true, &deadline).await
    }

    /// The core with a policy for sending dead letters: it is tried in each delivery, also after an attempt that may
    /// have succeeded.
    fn letters(&self) -> Idempotency<&S> {
        let mut policy = Policy::default();
        let of_batch = self.batch.idempotency.policy();
        (policy.retention, policy.lease_grace, policy.longest_lease) =
            (of_batch.retention, of_batch.lease_grace, of_batch.longest_lease);
        (policy.max_attempts, policy.failed_retention) = (u8::MAX, Duration::ZERO);
        policy.recovery = Recovery::Rerun;
        Idempotency::new(self.batch.idempotency.store(), policy)
    }
}

/// After a send that failed as late as this, no further one of the batch is tried: other messages need the time.
const SLOW: Duration = Duration::from_millis(500);

/// What to do if SQS refused the message or did not respond.
const ADVICE: &str = "check that the function may call sqs:SendMessage on DEAD_LETTER_QUEUE_URL and can reach SQS";

/// Why the letter of a message has no record of its own.
const OTHER_QUEUE: &str = "a message of another queue with the same messageId has the record of its dead letter";

/// Logs why the message could not be sent. It is delivered again.
fn not_sent(message: &Message, report: MessageReport, reason: &str, advice: Option<&str>) -> MessageReport {
    tracing::warn!(message_id = message.id, reason, advice, "a dead letter was not sent");
    report.not_sent(reason)
}

/// The work that sends a dead letter.
struct SendDeadLetter<'a> {
    queue: &'a DeadLetterQueue,
    dead_letter: DeadLetterMessage,
    sent: AtomicBool,
    /// Set if the send failed after [`SLOW`].
    is_slow: &'a AtomicBool,
}

impl Work<Message> for SendDeadLetter<'_> {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let begun = Instant::now();
        let sent = self.queue.send(self.dead_letter.clone(), message, claim.ends()).await;
        if sent.is_err() && begun.elapsed() >= SLOW {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        // A refused send is not an attempt, so that no number of them ends the attempts.
        sent.map_err(WorkError::busy)?;
        self.sent.store(true, Ordering::Relaxed);
        Ok(Vec::new())
    }
}
