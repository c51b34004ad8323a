//! Why a message was moved to the dead-letter queue, as one of its message attributes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::idempotency::{Outcome, Report, WorkErrorKind};

/// What a message attribute of a dead letter says about it: a JSON object in the attribute
/// [`DeadLetter::ATTRIBUTE`]. The key is as the producer chose it. Nothing else is taken from the message, but an error of
/// the work can contain whatever the work puts into it, except addresses.
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
    /// The idempotency key, if the message has one.
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
