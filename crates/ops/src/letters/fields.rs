//! The fields of a letter, as JSON.

use std::time::SystemTime;

use aws_sdk_sqs::types::MessageSystemAttributeName as Name;
use serde_json::{Value, json};

use super::letter::{Letter, Origin};
use crate::format;

/// A letter without its attributes and body.
pub(crate) fn json(letter: &Letter, now: SystemTime) -> Value {
    let described = letter.described();
    let parse_error = match &letter.origin {
        Origin::Unparsable(error) => Some(error),
        Origin::Function(_) | Origin::RedrivePolicy(_) | Origin::Unknown => None,
    };
    json!({
        "message_id": letter.id(),
        "original_message_id": letter.original_id(),
        "outcome": letter.outcome(),
        "reason": letter.reason(),
        "parse_error": parse_error,
        "key": letter.key,
        "attempts": described.and_then(|described| described.attempts),
        "fence": described.and_then(|described| described.fence),
        "source_queue_arn": letter.source_queue_arn(),
        "group": letter.group(),
        "age_ms": letter.age(now).map(format::ms),
        "first_receive": described.and_then(|described| described.first_receive.as_deref()),
        "last_receive": described.and_then(|described| described.last_receive.as_deref()),
        "function": described.and_then(|described| described.function.as_deref()),
        "version": described.and_then(|described| described.version.as_deref()),
        "receives": letter.system(&Name::ApproximateReceiveCount).and_then(|count| count.parse::<u64>().ok()),
        "body_bytes": letter.message.body().unwrap_or_default().len(),
    })
}
