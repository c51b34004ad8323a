//! Moves a message that cannot succeed to the dead-letter queue.
//!
//! Sending the message and deleting it from its own queue are two steps, so a crash between them delivers it again.
//! Sending is therefore work under an idempotency record of its own, and a message that was sent before is only deleted.

use std::sync::atomic::{AtomicBool, Ordering};

use super::run::Run;
use crate::idempotency::{
    Claim, Delivery, Fingerprint, Idempotency, Key, Outcome, Policy, Recovery, Report, Store, Work, WorkError,
    error_chain,
};
use crate::sqs::dead_letter_queue::{DeadLetterMessage, DeadLetterQueue};
use crate::sqs::disposition::MessageReport;
use crate::sqs::message::Message;

impl<S: Store, W: Work<Message>> Run<'_, S, W> {
    /// Sends the message to the dead-letter queue, if it cannot succeed and there is such a queue. If it cannot be sent,
    /// the message is delivered again after its backoff, until the redrive policy of its queue moves it.
    pub(super) async fn move_dead_letter(&self, message: &Message, report: MessageReport) -> MessageReport {
        let (Some(outcome), Some(queue)) = (report.dead_letter, &self.batch.settings.dead_letter_queue) else {
            return report;
        };
        let dead_letter = match queue.message(message, queue.letter(outcome, message, &report)) {
            Ok(dead_letter) => dead_letter,
            Err(why) => return report.not_sent(why),
        };
        let work = SendDeadLetter { queue, dead_letter, sent: AtomicBool::new(false) };
        let Ok(key) = Key::new(&format!("dead-letter:{}", message.id)) else { return report };
        let delivery = Delivery::new(key)
            // A producer's key may equal this one. Its payload has another fingerprint.
            .fingerprint(Fingerprint::of(format!("dead letter of {} {:?}", message.id, message.queue_arn).as_bytes()))
            .message_id(&message.id)
            .deadline(self.deadline)
            .owner(self.owners.next());
        let result = self.letters().run(&delivery, &work, message).await;
        let was_sent = work.sent.into_inner();
        self.ran.fetch_or(was_sent, Ordering::Relaxed);
        match result {
            _ if was_sent => report.moved("moved to the dead-letter queue"),
            Ok(Report { outcome: Outcome::Duplicate { .. }, .. }) => report.moved("its dead letter was sent before"),
            Ok(Report { outcome: Outcome::Conflict { .. }, .. }) => {
                report.not_moved("another delivery is sending its dead letter")
            }
            Ok(Report { outcome: Outcome::NotStarted, .. }) => report.not_moved("no time was left to send it"),
            Ok(Report { outcome: Outcome::Unavailable { error }, .. }) => {
                let (reason, advice) = (error_chain(&error), ADVICE);
                tracing::warn!(message_id = message.id, reason, advice, "a dead letter was not sent");
                report.not_sent(&reason)
            }
            Ok(_) => report.not_sent("the record of its dead letter could not be acquired"),
            Err(error) if error.is_unavailable() => {
                self.record_outage(error);
                report.not_moved("the idempotency store is unavailable")
            }
            Err(error) => report.not_sent(&error_chain(&error)),
        }
    }

    /// The core with a policy for sending dead letters: it is tried in each delivery, also after an attempt that may
    /// have succeeded.
    fn letters(&self) -> Idempotency<&S> {
        let mut policy = Policy::default();
        let of_batch = self.batch.idempotency.policy();
        (policy.retention, policy.lease_grace, policy.longest_lease) =
            (of_batch.retention, of_batch.lease_grace, of_batch.longest_lease);
        (policy.max_attempts, policy.recovery) = (u8::MAX, Recovery::Rerun);
        Idempotency::new(self.batch.idempotency.store(), policy)
    }
}

const ADVICE: &str = "check that the function may call sqs:SendMessage on DEAD_LETTER_QUEUE_URL and can reach SQS; until \
                      then the message is delivered again after its backoff";

/// The work that sends a dead letter.
struct SendDeadLetter<'a> {
    queue: &'a DeadLetterQueue,
    dead_letter: DeadLetterMessage,
    sent: AtomicBool,
}

impl Work<Message> for SendDeadLetter<'_> {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        // A refused send is not an attempt, so that no number of them ends the attempts.
        let sent = self.queue.send(self.dead_letter.clone(), message, claim.ends()).await;
        sent.map_err(WorkError::busy)?;
        self.sent.store(true, Ordering::Relaxed);
        Ok(Vec::new())
    }
}
