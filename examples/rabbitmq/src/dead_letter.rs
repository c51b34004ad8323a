//! Messages that cannot succeed, with the reason.

use std::fmt;

use lapin::message::Delivery;
use lapin::types::LongString;
use serde::Serialize;

use crate::message::{DEAD_LETTERS, DELIVERIES, count};
use crate::publish::{Publisher, copied};

/// Header with the [`DeadLetter`] as JSON.
pub(crate) const DEAD_LETTER: &str = "Idempotency-Dead-Letter";

/// Longest detail, bytes.
const MAX_DETAIL_BYTES: usize = 1024;

/// Why a message was dead-lettered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeadLetter {
    #[serde(rename = "outcome")]
    pub(crate) reason: Reason,
    /// An error of the work, or a fixed text. It contains no payload.
    #[serde(rename = "reason")]
    pub(crate) detail: String,
    /// Number of attempts, if known.
    pub(crate) attempts: Option<u8>,
}

/// The reasons, named as for SQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Reason {
    /// The payment failed permanently.
    FailedPermanently,
    /// The last attempt failed.
    AttemptsUsedUp,
    /// An earlier delivery failed permanently or used up the attempts. Nothing ran in this one.
    Failed,
    /// The key was used for another payment.
    Mismatch,
    /// The message has no usable key.
    NoKey,
    /// The body is not a payment.
    Unreadable,
}

impl DeadLetter {
    pub(crate) fn new(reason: Reason, detail: impl fmt::Display) -> Self {
        Self { reason, detail: detail.to_string(), attempts: None }
    }

    fn to_json(&self) -> LongString {
        let detail = self.detail[..self.detail.floor_char_boundary(MAX_DETAIL_BYTES)].to_owned();
        serde_json::json!(Self { detail, ..self.clone() }).to_string().into()
    }
}

impl Publisher {
    /// Publishes the message to the dead-letter queue, and returns whether the broker accepted it.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) async fn dead_letter(&self, delivery: &Delivery, letter: &DeadLetter) -> lapin::Result<bool> {
        let properties = &delivery.properties;
        let dead_letters = count(properties, DEAD_LETTERS).saturating_add(1);
        let properties = copied(
            properties,
            [
                (DEAD_LETTER, letter.to_json().into()),
                // A redrive is another message than the one that failed, and starts with the shortest backoff.
                (DEAD_LETTERS, i64::from(dead_letters).into()),
                (DELIVERIES, 0_i64.into()),
            ],
        );
        self.copy(delivery, &self.queues.dead(), properties).await
    }
}
