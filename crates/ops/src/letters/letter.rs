//! One message in a dead-letter queue.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idempotent_sqs::sqs::{DeadLetter, DeadLetterOutcome};

use super::key::KeyFinder;

/// A message in a dead-letter queue.
pub(crate) struct Letter {
    pub(crate) message: Message,
    pub(crate) origin: Origin,
    /// The idempotency key, if it is known.
    pub(crate) key: Option<String>,
    /// The number of the receive that returned it, from 1.
    pub(crate) receive: u64,
}

/// How the message came into the queue.
pub(crate) enum Origin {
    /// The function sent it, and described why.
    Function(Box<DeadLetter>),
    /// The redrive policy of the queue with this ARN moved it.
    RedrivePolicy(String),
    /// Its attribute [`DeadLetter::ATTRIBUTE`] could not be parsed, for this reason.
    Unparsable(String),
    /// It has neither the attribute nor a source: the message had ten attributes already, or another program sent it.
    Unknown,
}

/// The outcome of letters that a redrive policy moved.
const REDRIVE_POLICY: &str = "REDRIVE_POLICY";

/// The outcome of letters of which neither the function nor SQS says how they came here.
const UNKNOWN: &str = "UNKNOWN";

/// The values of `--outcome`.
pub(crate) fn outcome_words() -> Vec<&'static str> {
    DeadLetterOutcome::ALL.into_iter().map(DeadLetterOutcome::as_str).chain([REDRIVE_POLICY, UNKNOWN]).collect()
}

impl Letter {
    pub(crate) fn new(message: Message, keys: &KeyFinder, receive: u64) -> Self {
        let origin = origin(&message);
        let key = match &origin {
            Origin::Function(letter) => letter.key.clone(),
            Origin::RedrivePolicy(_) | Origin::Unparsable(_) | Origin::Unknown => keys.find(&message, &origin),
        };
        Self { message, origin, key, receive }
    }

    /// The messageId in this queue.
    pub(crate) fn id(&self) -> &str {
        self.message.message_id().unwrap_or_default()
    }

    /// The messageId in the source queue, if it is known.
    pub(crate) fn original_id(&self) -> Option<&str> {
        match &self.origin {
            Origin::Function(letter) => Some(&letter.message_id),
            // The redrive policy keeps it.
            Origin::RedrivePolicy(_) => Some(self.id()),
            Origin::Unparsable(_) | Origin::Unknown => None,
        }
    }

    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.id() == id || self.original_id() == Some(id)
    }

    pub(crate) fn outcome(&self) -> &'static str {
        match &self.origin {
            Origin::Function(letter) => letter.outcome.as_str(),
            Origin::RedrivePolicy(_) => REDRIVE_POLICY,
            Origin::Unparsable(_) | Origin::Unknown => UNKNOWN,
        }
    }

    /// The reason that the function gave, or what is known without it.
    pub(crate) fn reason(&self) -> &str {
        match &self.origin {
            Origin::Function(letter) => &letter.reason,
            Origin::RedrivePolicy(_) => "received too often",
            Origin::Unparsable(_) => "its description cannot be parsed",
            Origin::Unknown => "no description",
        }
    }

    /// What the function wrote.
    pub(crate) fn described(&self) -> Option<&DeadLetter> {
        match &self.origin {
            Origin::Function(letter) => Some(letter),
            Origin::RedrivePolicy(_) | Origin::Unparsable(_) | Origin::Unknown => None,
        }
    }

    pub(crate) fn source_queue_arn(&self) -> Option<&str> {
        match &self.origin {
            Origin::Function(letter) => letter.source_queue_arn.as_deref(),
            Origin::RedrivePolicy(arn) => Some(arn),
            Origin::Unparsable(_) | Origin::Unknown => None,
        }
    }

    pub(crate) fn group(&self) -> Option<&str> {
        self.system(&MessageSystemAttributeName::MessageGroupId)
    }

    /// A system attribute of SQS.
    pub(crate) fn system(&self, name: &MessageSystemAttributeName) -> Option<&str> {
        system(&self.message, name)
    }

    /// When it was sent, by SQS's clock: to this queue, except if the redrive policy of a standard queue moved it.
    /// Its `SentTimestamp` is then that of the source queue.
    pub(crate) fn sent(&self) -> Option<SystemTime> {
        self.time(&MessageSystemAttributeName::SentTimestamp)
    }

    fn time(&self, name: &MessageSystemAttributeName) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.system(name)?.parse().ok()?))
    }

    /// When it was first received from this queue, or from the source queue if a redrive policy moved it, by SQS's
    /// clock.
    pub(crate) fn first_received(&self) -> Option<SystemTime> {
        self.time(&MessageSystemAttributeName::ApproximateFirstReceiveTimestamp)
    }

    /// Whether it was sent after this time, by SQS's clock.
    pub(crate) fn is_later_than(&self, time: SystemTime) -> bool {
        self.sent().is_some_and(|sent| sent > time)
    }

    /// Time since it was sent; zero if that is later by this machine's clock.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        Some(now.duration_since(self.sent()?).unwrap_or_default())
    }
}

pub(super) fn system<'a>(message: &'a Message, name: &MessageSystemAttributeName) -> Option<&'a str> {
    message.attributes()?.get(name).map(String::as_str)
}

fn origin(message: &Message) -> Origin {
    // First, because the attribute of a message that SQS moved is not of this move: it is from before a redrive by SQS,
    // or from the producer, who must not choose the queue that a redrive sends to.
    if let Some(arn) = system(message, &MessageSystemAttributeName::DeadLetterQueueSourceArn) {
        return Origin::RedrivePolicy(arn.to_owned());
    }
    let attribute = message.message_attributes().and_then(|attributes| attributes.get(DeadLetter::ATTRIBUTE));
    let Some(attribute) = attribute else { return Origin::Unknown };
    match serde_json::from_str(attribute.string_value().unwrap_or_default()) {
        Ok(letter) => Origin::Function(Box::new(letter)),
        Err(error) => Origin::Unparsable(error.to_string()),
    }
}
