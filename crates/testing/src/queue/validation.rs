//! Which messages SQS rejects.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

use super::number::number;
use super::settings::{LONGEST_DELAY, is_whole_seconds};
use super::{Queue, SqsError};
use crate::send_request::{Attribute, SendRequest, hex};

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const LARGEST_MESSAGE: usize = 1024 * 1024;

/// Longest `MessageGroupId` and `MessageDeduplicationId`.
const LONGEST_ID: usize = 128;

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const MOST_ATTRIBUTES: usize = 10;

const LONGEST_ATTRIBUTE_NAME: usize = 256;

fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether SQS accepts the character in a body and in the text of an attribute:
/// <https://www.w3.org/TR/REC-xml/#charsets>
fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The rules of a name:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#message-attribute-components>
fn is_attribute_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_reserved = ["aws.", "amazon."].iter().any(|prefix| lower.starts_with(prefix));
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=LONGEST_ATTRIBUTE_NAME).contains(&name.len())
        && name.bytes().all(is_allowed)
        && name.split('.').all(|part| !part.is_empty())
        && !is_reserved
}

/// The message as SQS stores it:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
pub(super) fn accepted(queue: &Queue, mut message: SendRequest) -> Result<SendRequest, SqsError> {
    check_content(&message)?;
    for value in message.attributes.values_mut() {
        if let Attribute::Number(text) = value {
            *text = number(text).ok_or(invalid("Can't cast the value of message attribute to a number."))?;
        }
    }
    if !message.group.iter().chain(&message.deduplication_id).all(|id| is_id(id)) {
        return Err(invalid(
            "MessageGroupId and MessageDeduplicationId can only include alphanumeric and punctuation characters. \
             1 to 128 in length.",
        ));
    }
    if message.delay.is_some_and(|delay| delay > LONGEST_DELAY || !is_whole_seconds(delay)) {
        return Err(invalid("DelaySeconds must be an integer between 0 and 900."));
    }
    if queue.settings().is_fifo() { for_fifo(queue, message) } else { for_standard(message) }
}

fn check_content(message: &SendRequest) -> Result<(), SqsError> {
    if message.body.is_empty() {
        return Err(missing("The request must contain the parameter MessageBody."));
    }
    if message.size() > LARGEST_MESSAGE {
        return Err(invalid("One or more parameters are invalid. Reason: Message is too long."));
    }
    if !message.texts().all(|text| text.chars().all(is_xml)) {
        let reason = "Invalid characters found. Valid unicode characters are XML's.";
        return Err(SqsError { code: "InvalidMessageContents", reason });
    }
    if message.attributes.len() > MOST_ATTRIBUTES {
        return Err(invalid("Number of message attributes exceeds the allowed maximum [10]."));
    }
    if !message.attributes.iter().all(|(name, value)| is_attribute_name(name) && !value.bytes().is_empty()) {
        return Err(invalid("A message attribute must have a valid name and a value that is not empty."));
    }
    Ok(())
}

fn for_standard(message: SendRequest) -> Result<SendRequest, SqsError> {
    match message.deduplication_id {
        Some(_) => Err(invalid("MessageDeduplicationId is for FIFO queues.")),
        None => Ok(message),
    }
}

fn for_fifo(queue: &Queue, mut message: SendRequest) -> Result<SendRequest, SqsError> {
    if message.group.is_none() {
        return Err(missing("The request must contain the parameter MessageGroupId."));
    }
    if message.delay.is_some_and(|delay| delay > Duration::ZERO) {
        return Err(invalid("DelaySeconds is not valid for this queue type."));
    }
    // A delay of zero is that of the queue.
    message.delay = None;
    if message.deduplication_id.is_none() && queue.settings().content_based_deduplication {
        message.deduplication_id = Some(hex(digest(&SHA256, message.body.as_bytes()).as_ref()));
    }
    match message.deduplication_id {
        Some(_) => Ok(message),
        None => Err(invalid(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
             explicitly.",
        )),
    }
}

const fn invalid(reason: &'static str) -> SqsError {
    SqsError { code: "InvalidParameterValue", reason }
}

const fn missing(reason: &'static str) -> SqsError {
    SqsError { code: "MissingParameter", reason }
}
