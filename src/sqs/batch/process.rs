//! Reads the key and the payload of a message, and runs it once for all messages of the batch that have both.

use std::sync::{Arc, PoisonError};

use super::run::{Run, SharedReport};
use crate::idempotency::{Fingerprint, Key, Location, Store, Work, WorkError, error_chain};
use crate::sqs::extended_client::ExtendedClientError;
use crate::sqs::key::KeySource;
use crate::sqs::message::Message;
use crate::sqs::message_report::MessageReport;
use crate::sqs::payload::Payload;

impl<S: Store, W: Work<Message>> Run<'_, S, W> {
    pub(super) async fn process(&self, index: usize) -> MessageReport {
        let (message, payload) = (&self.messages[index], &self.payloads[index]);
        // The receiver of the message as SQS delivered it, because the receiver decides which slots the message needs
        // before a payload is fetched.
        let receiver = self.receiver(message);
        match (payload.pointer(), &self.keys[index]) {
            (Some(location), _) => self.process_pointer(index, receiver, location).await,
            (None, Ok(key)) => self.process_payload(message, receiver, key, payload).await,
            (None, Err(report)) => report.clone(),
        }
    }

    /// Fetches the payload from S3 and processes it. It is not fetched earlier, because the payloads of a whole batch
    /// may not fit in memory.
    async fn process_pointer(&self, index: usize, receiver: &str, location: &Location) -> MessageReport {
        let message = &self.messages[index];
        // The lanes of receivers that were unavailable and have recovered run beside the others.
        let is_probe = self.receivers.is_probed(receiver);
        let _slot = if is_probe { None } else { self.payload_slots.acquire().await.ok() };
        if let Some(report) = self.cannot_run(message, receiver, self.keys[index].as_ref().ok()) {
            return self.with_known_key(index, report);
        }
        let settings = &self.batch.settings;
        match settings.extended_client.fetch(message, location, self.deadline.work).await {
            Ok(message) => {
                let payload = Payload::of(&message, settings.envelopes);
                match key_of(&message, &payload, &settings.keys) {
                    Ok(key) => self.process_payload(&message, receiver, &key, &payload).await,
                    Err(report) => report,
                }
            }
            Err(error) if error.is_transient() => {
                self.with_known_key(index, MessageReport::payload_unavailable(&error, message))
            }
            // The work may have been done before the payload became unreadable, or another owner may be doing it.
            Err(error) => match &self.keys[index] {
                Ok(key) => {
                    let is_gone = matches!(error, ExtendedClientError::NotFound);
                    let missing = if is_gone { WorkError::permanent(error) } else { WorkError::busy(error) };
                    self.run_once(message, receiver, key, Fingerprint::NONE, Some(missing)).await
                }
                Err(_) => self.look_up_id(index, receiver, error).await,
            },
        }
    }

    /// The report on a message whose key may be in its unreadable payload. Its id is looked up: no other message has this
    /// id, so its record is of this message. A key of another source may be that of another message.
    async fn look_up_id(&self, index: usize, receiver: &str, error: ExtendedClientError) -> MessageReport {
        let message = &self.messages[index];
        let Some(id) = KeySource::id_without_envelope(&self.batch.settings.keys, &self.payloads[index]) else {
            return MessageReport::unreadable_payload(error_chain(&error), message);
        };
        // No failure is recorded, as the payload may be an envelope with another id: the record is released.
        let missing = Some(WorkError::busy(error));
        let report = self.run_once(message, receiver, &id, Fingerprint::NONE, missing).await;
        // A redrive of the dead letter would keep a key that it names.
        MessageReport { key: None, ..report }
    }

    /// The report on a message that was not started, with its key if that is known.
    pub(super) fn with_known_key(&self, index: usize, report: MessageReport) -> MessageReport {
        match &self.keys[index] {
            Ok(key) => report.with_key(key),
            Err(_) => report,
        }
    }

    /// Processes a message, or waits for the report on an earlier one with the same key and payload.
    async fn process_payload(
        &self,
        message: &Message,
        receiver: &str,
        key: &Key,
        payload: &Payload<'_>,
    ) -> MessageReport {
        let fingerprint = self.batch.settings.fingerprint.compute(payload);
        if !self.has_pointers && !self.repeated_keys.contains(key) {
            return self.run_once(message, receiver, key, fingerprint, None).await;
        }
        let shared = self.shared_report(key.clone(), fingerprint);
        let mut is_first = false;
        let report = shared
            .get_or_init(|| {
                is_first = true;
                self.run_once(message, receiver, key, fingerprint, None)
            })
            .await;
        if is_first { report.clone() } else { report.for_in_batch_duplicate(message) }
    }

    fn shared_report(&self, key: Key, fingerprint: Fingerprint) -> SharedReport {
        let mut reports = self.shared_reports.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(reports.entry((key, fingerprint)).or_default())
    }
}

/// The key of a message from these sources, or the report on a message without one.
pub(super) fn key_of(message: &Message, payload: &Payload<'_>, sources: &[KeySource]) -> Result<Key, MessageReport> {
    if message.body.is_none() {
        return Err(MessageReport::unreadable(message));
    }
    KeySource::find(sources, payload).map_err(|error| MessageReport::no_key(error.to_string(), message))
}
