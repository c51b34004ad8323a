//! Why a message was moved to the dead-letter queue, as one of its message attributes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::idempotency::{Outcome, Report, WorkErrorKind};

/// Longest reason in a dead letter, bytes.
pub(super) const MAX_REASON_BYTES: usize = 1024;

/// What a message attribute of a dead letter says about it: a JSON object in the attribute [`DeadLetter::ATTRIBUTE`].
/// The key is as the producer chose it. Nothing else is taken from the message, but an error of the work can contain
/// whatever the work puts into it, except addresses.
///
/// ```
/// use idempotent_sqs::sqs::{DeadLetter, DeadLetterOutcome};
///
/// let attribute = r#"{"outcome":"MISMATCH","reason":"the key was used with another payload","key":"pay_7f3a",
///     "source_queue_arn":"arn:aws:sqs:eu-central-1:123456789012:payments","message_id":"0191d3a2"}"#;
/// let letter: DeadLetter = serde_json::from_str(attribute)?;
/// assert_eq!(letter.outcome, DeadLetterOutcome::Mismatch);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Why no further attempt can succeed.
    pub outcome: DeadLetterOutcome,
    /// The reason of the log line. A long one is cut off, and addresses in it are replaced.
    pub reason: String,
    /// The idempotency key. `None` if the message has none, or if its payload could not be read and may have another.
    #[serde(default)]
    pub key: Option<String>,
    /// Number of attempts, if known.
    #[serde(default)]
    pub attempts: Option<u8>,
    /// Fence of the last claim, if there was one in this delivery.
    #[serde(default)]
    pub fence: Option<u64>,
    /// ARN of the queue that the message came from.
    #[serde(default)]
    pub source_queue_arn: Option<String>,
    /// The messageId in that queue. In the dead-letter queue the message has another.
    pub message_id: String,
    /// When the message was first received, as in `2026-11-22T09:31:05.123Z`.
    #[serde(default)]
    pub first_receive: Option<String>,
    /// When the function received the batch of the last delivery, in the same format.
    #[serde(default)]
    pub last_receive: Option<String>,
    /// Name of the Lambda function.
    #[serde(default)]
    pub function: Option<String>,
    /// Version of the Lambda function.
    #[serde(default)]
    pub version: Option<String>,
}

impl DeadLetter {
    /// The name of the message attribute.
    pub const ATTRIBUTE: &str = "Idempotency-Dead-Letter";

    /// The letter as the text of an attribute, with its reason shortened so that name, type and text have at most `max`
    /// bytes. `None` if it does not fit without its reason.
    pub(super) fn text_within(mut self, max: usize) -> Option<String> {
        let max = max.checked_sub(Self::ATTRIBUTE.len() + "String".len())?;
        loop {
            // SQS refuses these two characters, and JSON does not escape them:
            // https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
            let text = serde_json::to_string(&self).ok()?.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff");
            let excess = match text.len().checked_sub(max) {
                None | Some(0) => return Some(text),
                Some(excess) => excess,
            };
            if self.reason.is_empty() {
                return None;
            }
            // A character of the reason takes at least as many bytes in JSON.
            self.reason = shortened(&self.reason, self.reason.len().saturating_sub(excess.max("…".len()))).to_owned();
        }
    }
}

/// Why a message cannot succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum DeadLetterOutcome {
    /// The work failed permanently.
    FailedPermanently,
    /// The last attempt failed.
    AttemptsUsedUp,
    /// An earlier attempt may have taken effect, and the policy parks recoveries.
    Parked,
    /// An earlier delivery failed permanently, or used up the attempts. Nothing ran in this one.
    Failed,
    /// Another payload was completed under the key, or may have taken effect.
    Mismatch,
    /// The message has no usable key.
    NoKey,
    /// The payload could not be read.
    Unreadable,
}

impl DeadLetterOutcome {
    /// The outcome of this report, if no further attempt at the message can succeed.
    pub(super) fn of(report: &Report) -> Option<Self> {
        match &report.outcome {
            Outcome::Mismatch => Some(Self::Mismatch),
            Outcome::FailedBefore => Some(Self::Failed),
            // The work's own record does not show that it is done.
            Outcome::FailedPermanently { .. } if report.fence.is_none() => Some(Self::Failed),
            Outcome::FailedPermanently { .. } if report.recovery && !report.ran => Some(Self::Parked),
            Outcome::FailedPermanently { error, .. } if error.kind() == WorkErrorKind::Permanent => {
                Some(Self::FailedPermanently)
            }
            Outcome::FailedPermanently { .. } => Some(Self::AttemptsUsedUp),
            Outcome::Done { .. }
            | Outcome::Duplicate { .. }
            | Outcome::Conflict { .. }
            | Outcome::NotStarted
            | Outcome::Unavailable { .. }
            | Outcome::Failed { .. }
            | Outcome::Lost { .. }
            | Outcome::Unsettled { .. }
            | Outcome::DoneByOwnRecord { .. } => None,
        }
    }

    /// Every outcome.
    pub const ALL: [Self; 7] = [
        Self::FailedPermanently,
        Self::AttemptsUsedUp,
        Self::Parked,
        Self::Failed,
        Self::Mismatch,
        Self::NoKey,
        Self::Unreadable,
    ];

    /// The outcome in the attribute: `ATTEMPTS_USED_UP`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The name of its metric: `DeadLettersAttemptsUsedUp`.
    #[must_use]
    pub fn metric(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::FailedPermanently => ("FAILED_PERMANENTLY", "DeadLettersFailedPermanently"),
            Self::AttemptsUsedUp => ("ATTEMPTS_USED_UP", "DeadLettersAttemptsUsedUp"),
            Self::Parked => ("PARKED", "DeadLettersParked"),
            Self::Failed => ("FAILED", "DeadLettersFailed"),
            Self::Mismatch => ("MISMATCH", "DeadLettersMismatch"),
            Self::NoKey => ("NO_KEY", "DeadLettersNoKey"),
            Self::Unreadable => ("UNREADABLE", "DeadLettersUnreadable"),
        }
    }
}

impl fmt::Display for DeadLetterOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a [`DeadLetterOutcome`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an outcome of a dead letter")]
pub struct DeadLetterOutcomeError(String);

impl FromStr for DeadLetterOutcome {
    type Err = DeadLetterOutcomeError;

    fn from_str(outcome: &str) -> Result<Self, DeadLetterOutcomeError> {
        let found = Self::ALL.into_iter().find(|known| known.as_str() == outcome);
        found.ok_or_else(|| DeadLetterOutcomeError(outcome.to_owned()))
    }
}

/// The reason of a report without addresses, which may contain secrets.
pub(super) fn reason(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    for word in reason.split_inclusive(char::is_whitespace) {
        match word.find("://") {
            Some(scheme_end) => {
                let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
                let before = word[..scheme_end].trim_end_matches(is_scheme);
                text.push_str(before);
                text.push_str("<address>");
                text.extend(word.chars().next_back().filter(|c| c.is_whitespace()));
            }
            None => text.push_str(word),
        }
    }
    match text.len() {
        0..=MAX_REASON_BYTES => text,
        _ => format!("{}…", shortened(&text, MAX_REASON_BYTES - "…".len())),
    }
}

/// The longest start of the text with at most `max` bytes.
fn shortened(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_contains_no_address() {
        for (with_address, without) in [
            ("no answer from https://user:secret@host/path?token=1 in time", "no answer from <address> in time"),
            ("error for url (http://host/?token=1): closed", "error for url (<address> closed"),
            ("redis://:secret@host\nfailed", "<address>\nfailed"),
            ("a://b://c", "<address>"),
            ("no address: // or :/", "no address: // or :/"),
        ] {
            assert_eq!(reason(with_address), without);
        }
    }

    #[test]
    fn a_long_reason_is_shortened_between_two_characters() {
        let long = reason(&"ö".repeat(MAX_REASON_BYTES));
        assert!(long.len() <= MAX_REASON_BYTES && long.ends_with("ö…"), "{long}");
        assert_eq!(reason(&"x".repeat(MAX_REASON_BYTES)), "x".repeat(MAX_REASON_BYTES));
    }

    #[test]
    fn a_letter_has_only_characters_that_sqs_accepts() {
        let letter = DeadLetter {
            outcome: DeadLetterOutcome::Mismatch,
            reason: "a\u{1}b\u{ffff}".into(),
            key: Some("\u{fffe}\u{0}ö\u{10ffff}".into()),
            attempts: None,
            fence: None,
            source_queue_arn: None,
            message_id: "m1".into(),
            first_receive: None,
            last_receive: None,
            function: None,
            version: None,
        };
        let text = letter.clone().text_within(1_048_576).unwrap();
        let is_accepted =
            |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        assert!(text.chars().all(is_accepted), "{text}");
        assert_eq!(serde_json::from_str::<DeadLetter>(&text).unwrap(), letter);
    }
}
