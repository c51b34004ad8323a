//! The partial batch response.

use std::collections::HashSet;

use serde::Serialize;

use super::disposition::Disposition;
use super::message::Message;

/// The partial batch response. SQS delivers the named messages again and deletes the others:
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html>
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SqsBatchResponse {
    /// The failed messages.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// A failed message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchItemFailure {
    /// Its messageId.
    pub item_identifier: String,
}

/// Builds the partial batch response. It always has a list, and the list has only messageIds of this event, each once:
/// without a list SQS would delete every message, and with an unknown or empty identifier it would deliver all again.
pub fn response<'a>(reports: impl IntoIterator<Item = (&'a Message, Disposition)>) -> SqsBatchResponse {
    let mut named = HashSet::new();
    let failed = reports.into_iter().filter(|(message, disposition)| match disposition {
        Disposition::Redeliver { after: _ } => named.insert(&message.id),
        Disposition::Done | Disposition::DeadLetter => false,
    });
    let failures = failed.map(|(message, _)| BatchItemFailure { item_identifier: message.id.clone() });
    SqsBatchResponse { batch_item_failures: failures.collect() }
}
