//! The steps of one message: acquire → work → settle.

use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Batch;
use super::run::{RECEIVER_PROBED, RECEIVER_UNAVAILABLE, Run};
use crate::idempotency::{
    AttemptResult, Delivery, Fingerprint, Key, NextStep, Outcome, Report, Store, StoreError, Work, WorkError,
    error_chain, own_record, read_own_record,
};
use crate::sqs::extended_client::ExtendedClientError;
use crate::sqs::message::Message;
use crate::sqs::message_report::MessageReport;

/// Longest time to look up whether a message without a payload is done. A message with its key that is acquired meanwhile
/// is in conflict, and comes again when this lease would end.
const LOOK_UP: Duration = Duration::from_secs(5);

impl<S: Store, W: Work<Message>> Run<'_, S, W> {
    /// Runs a message under its record once there is a free slot. `missing` is set if it has no payload: the error of
    /// its attempt, unless the work's own record shows that it is done.
    pub(super) async fn run_once(
        &self,
        message: &Message,
        receiver: &str,
        key: &Key,
        fingerprint: Fingerprint,
        missing: Option<WorkError>,
    ) -> MessageReport {
        let (slot, turn) = loop {
            let Ok(turn) = self.receivers.turn(receiver) else {
                return MessageReport::backed_off(message, RECEIVER_PROBED).with_key(key);
            };
            // The semaphores are never closed.
            let slots = if turn.is_some() { &self.probe_slots } else { &self.slots };
            let slot = slots.acquire().await.ok();
            // Another batch of the process may have found the receiver unavailable meanwhile.
            if turn.is_some() || !self.receivers.is_probed(receiver) {
                break (slot, turn);
            }
        };
        if let Some(report) = self.must_not_start(message, receiver, key) {
            return report.with_key(key);
        }
        let delivery = Delivery::new(key.clone())
            .fingerprint(fingerprint)
            .message_id(&message.id)
            .deadline(if missing.is_some() { self.deadline.at_most(LOOK_UP) } else { self.deadline })
            .without_result()
            .owner(self.owners.next());
        let has_payload = missing.is_none();
        match self.run_steps(&delivery, message, receiver, missing, (slot, turn)).await {
            // Nothing ran, and the attempt was not counted: a corrected setting may make the payload readable.
            Ok(Report { outcome: Outcome::Unavailable { error }, .. }) if !has_payload && is_of_payload(&error) => {
                MessageReport::unreadable_payload(error_chain(&error), message).with_key(key)
            }
            Ok(report) => {
                let report = MessageReport::of(report, message, has_payload).with_key(key);
                self.ran.fetch_or(report.ran, Ordering::Relaxed);
                report
            }
            Err(error) => MessageReport::store_error(&error, message).with_key(key),
        }
    }

    /// Acquire → work → settle. `turn` ends before settling.
    async fn run_steps(
        &self,
        delivery: &Delivery,
        message: &Message,
        receiver: &str,
        missing: Option<WorkError>,
        turn: impl Sized,
    ) -> Result<Report, StoreError> {
        let Batch { idempotency, work, .. } = self.batch;
        let (deadline, timings) = (&self.deadline, self.timings);

        let began = timings.map(|_| Instant::now());
        let next = idempotency.acquire(delivery, work).await;
        timings.inspect(|timings| timings.store.add_since(began));
        let claim = match next {
            Ok(NextStep::Work(claim)) => claim,
            Ok(NextStep::Report(report)) => {
                if let Outcome::Unavailable { error } = &report.outcome {
                    self.receivers.observe_error(receiver, error);
                }
                return Ok(report);
            }
            Err(failed) => return Err(self.release_later(failed)),
        };

        let result = if let Some(missing) = missing {
            let recorded = match own_record(work) {
                // Boxed, because this rare case would enlarge the future of every message.
                Some(record) => Box::pin(read_own_record(record, claim.request(), claim.ends())).await,
                None => Ok(None),
            };
            // The work may have been done, and the payload deleted afterwards.
            match recorded {
                Ok(Some(result)) => AttemptResult::DoneWithoutPayload(result),
                Ok(None) => AttemptResult::NotRun(missing),
                Err(error) => {
                    self.receivers.observe_error(receiver, &error);
                    AttemptResult::NotRun(error)
                }
            }
        } else if self.receivers.is_unavailable(receiver) {
            // Found while this message was being acquired.
            AttemptResult::NotRun(WorkError::unavailable(RECEIVER_UNAVAILABLE))
        } else if !self.has_time_for(message) {
            // The acquire took long, or the process was frozen.
            AttemptResult::NotStarted
        } else {
            self.started.fetch_or(!idempotency.parks(&claim, work), Ordering::Relaxed);
            let began = timings.map(|_| Instant::now());
            let result = idempotency.attempt_work(&claim, work, message, deadline).await;
            timings.filter(|_| result.ran()).inspect(|timings| timings.work.add_since(began));
            result
        };
        self.receivers.observe(receiver, &result);

        // The next message starts while this one is settled.
        drop(turn);
        let began = timings.map(|_| Instant::now());
        let report = idempotency.settle(&claim, result, own_record(work).is_some(), deadline).await;
        timings.inspect(|timings| timings.store.add_since(began));
        // The error is not that of the store, and concerns every message.
        let report = report.inspect_err(|error| self.outages.record(None, error))?;
        if let Some(timings) = timings.filter(|_| report.is_settled) {
            timings.lease_remaining.add(claim.lease_ends().saturating_duration_since(Instant::now()));
        }
        Ok(report)
    }
}

/// Whether this error is that of the payload. Others are of the work's own record: a later look-up may show that the
/// work is done.
fn is_of_payload(error: &WorkError) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<ExtendedClientError>)
}
