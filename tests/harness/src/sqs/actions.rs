//! The actions of the API.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idempotent_sqs_testing::{Attribute, Queue, ReceivedMessage, SendRequest, SqsError};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::Call;
use super::queues::start_message_move_task;

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html>
const LARGEST_BATCH: usize = 1024 * 1024;

/// Longest long poll, seconds:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/best-practices-setting-up-long-polling.html>
const LONGEST_WAIT: u64 = 20;

/// An integer that is negative, has a fraction or is too large.
const OUT_OF_RANGE: SqsError = SqsError {
    code: "InvalidParameterValue",
    reason: "A parameter is invalid. Reason: It must be an integer in its range.",
};

const NO_QUEUE: SqsError = SqsError { code: "QueueDoesNotExist", reason: "The specified queue does not exist." };

/// The output of a call to these queues. A second of `WaitTimeSeconds` takes `second`.
pub async fn run(queues: &[Queue], call: &Call, second: Duration) -> Result<Value, SqsError> {
    let input = &call.input;
    if call.action == "StartMessageMoveTask" {
        return start_message_move_task(queues, input);
    }
    if call.action == "GetQueueUrl" {
        let account = input["QueueOwnerAWSAccountId"].as_str();
        let named = |queue: &&Queue| queue.settings().name == input["QueueName"];
        let owned = |queue: &&Queue| account.is_none_or(|account| account == queue.settings().account);
        let queue = queues.iter().filter(named).find(owned).ok_or(NO_QUEUE)?;
        // Callers send every call to the endpoint, and identify the queue by the path.
        return Ok(json!({ "QueueUrl": queue.url() }));
    }
    let url = input["QueueUrl"].as_str().expect("a QueueUrl");
    let named = |queue: &&Queue| url.ends_with(&format!("/{}/{}", queue.settings().account, queue.settings().name));
    let queue = queues.iter().find(named).ok_or(NO_QUEUE)?;
    match call.action.as_str() {
        "SendMessage" => send(queue, input),
        "SendMessageBatch" if batch_bytes(input) > LARGEST_BATCH => {
            let reason = "Batch requests cannot be longer than 1048576 bytes.";
            Err(SqsError { code: "BatchRequestTooLong", reason })
        }
        "SendMessageBatch" => batch(input, |entry| send(queue, entry)),
        "ReceiveMessage" => receive(queue, input, second).await,
        "DeleteMessage" => delete(queue, input),
        "DeleteMessageBatch" => batch(input, |entry| delete(queue, entry)),
        "ChangeMessageVisibility" => change_visibility(queue, input),
        "ChangeMessageVisibilityBatch" => batch(input, |entry| change_visibility(queue, entry)),
        "GetQueueAttributes" => Ok(attributes(queue, input)),
        action => panic!("{action} is not simulated"),
    }
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatchRequestEntry.html>
fn is_entry_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=80).contains(&id.len()) && id.bytes().all(is_allowed)
}

/// Bytes of all messages of a batch, with their attributes: "the sum of the individual lengths of all of the batched
/// messages", <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html>
fn batch_bytes(input: &Value) -> usize {
    let length = |value: &Value| value.as_str().unwrap_or_default().len();
    let attribute = |(name, value): (&String, &Value)| {
        let bytes = STANDARD.decode(value["BinaryValue"].as_str().unwrap_or_default()).unwrap_or_default();
        name.len() + length(&value["DataType"]) + length(&value["StringValue"]) + bytes.len()
    };
    let message = |entry: &Value| {
        let attributes = entry["MessageAttributes"].as_object().into_iter().flatten();
        length(&entry["MessageBody"]) + attributes.map(attribute).sum::<usize>()
    };
    input["Entries"].as_array().into_iter().flatten().map(message).sum()
}

/// An integer of the input, if it is there.
fn integer(input: &Value, name: &str) -> Result<Option<u64>, SqsError> {
    let value = &input[name];
    if value.is_null() { Ok(None) } else { value.as_u64().map(Some).ok_or(OUT_OF_RANGE) }
}

/// Runs each entry. A failed one does not affect the others.
fn batch(input: &Value, run: impl Fn(&Value) -> Result<Value, SqsError>) -> Result<Value, SqsError> {
    let entries = input["Entries"].as_array().expect("Entries");
    let ids: HashSet<_> = entries.iter().map(|entry| entry["Id"].as_str()).collect();
    let code = match entries.len() {
        0 => Some("EmptyBatchRequest"),
        11.. => Some("TooManyEntriesInBatchRequest"),
        _ if !ids.iter().all(|id| id.is_some_and(is_entry_id)) => Some("InvalidBatchEntryId"),
        number => (ids.len() < number).then_some("BatchEntryIdsNotDistinct"),
    };
    if let Some(code) = code {
        return Err(SqsError { code, reason: "The batch request is invalid." });
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        match run(entry) {
            Ok(mut output) => {
                output["Id"] = entry["Id"].clone();
                successful.push(output);
            }
            Err(SqsError { code, reason }) => {
                failed.push(json!({ "Id": entry["Id"], "Code": code, "Message": reason, "SenderFault": true }));
            }
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}

fn send(queue: &Queue, input: &Value) -> Result<Value, SqsError> {
    let mut message = SendRequest::new(input["MessageBody"].as_str().unwrap_or_default());
    for (name, value) in input["MessageAttributes"].as_object().into_iter().flatten() {
        let text = || value["StringValue"].as_str().unwrap_or_default().to_owned();
        let value = match value["DataType"].as_str() {
            Some("String") => Attribute::String(text()),
            Some("Number") => Attribute::Number(text()),
            Some("Binary") => {
                Attribute::Binary(STANDARD.decode(value["BinaryValue"].as_str().unwrap_or_default()).unwrap())
            }
            other => panic!("the data type {other:?} is not simulated"),
        };
        message = message.attribute(name, value);
    }
    if let Some(group) = input["MessageGroupId"].as_str() {
        message = message.group(group);
    }
    if let Some(id) = input["MessageDeduplicationId"].as_str() {
        message = message.deduplication_id(id);
    }
    if let Some(seconds) = integer(input, "DelaySeconds")? {
        message = message.delay(Duration::from_secs(seconds));
    }
    if let Some(header) = input["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"].as_str() {
        message = message.trace_header(header);
    }
    Ok(json!({ "MessageId": queue.send(message)? }))
}

async fn receive(queue: &Queue, input: &Value, second: Duration) -> Result<Value, SqsError> {
    let max = integer(input, "MaxNumberOfMessages")?.unwrap_or(1);
    let visibility = integer(input, "VisibilityTimeout")?.map(Duration::from_secs);
    let visibility = visibility.unwrap_or(queue.settings().visibility_timeout);
    let wait = integer(input, "WaitTimeSeconds")?.unwrap_or(0);
    if wait > LONGEST_WAIT {
        return Err(OUT_OF_RANGE);
    }
    // Long polling: returns as soon as there is a message, or empty at the end of the wait.
    let end = Instant::now() + second * u32::try_from(wait).unwrap_or(u32::MAX);
    let received = loop {
        let received = queue.receive_for(usize::try_from(max).unwrap_or(usize::MAX), visibility)?;
        if !received.is_empty() || timeout_at(end, queue.changed()).await.is_err() {
            break received;
        }
    };
    if received.is_empty() {
        return Ok(json!({}));
    }
    Ok(json!({ "Messages": received.iter().map(|message| received_message(message, input)).collect::<Vec<_>>() }))
}

/// The message as in the reply, with the attributes that the call asks for.
fn received_message(message: &ReceivedMessage, input: &Value) -> Value {
    let event = serde_json::to_value(message).unwrap();
    let mut reply = json!({
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt_handle,
        "Body": message.body,
        "MD5OfBody": event["md5OfBody"],
    });
    let asked = |list: &str, name: &str| {
        let mut names = input[list].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.any(|asked| asked == "All" || asked == name)
    };
    let system = event["attributes"].as_object().unwrap().clone().into_iter();
    let system: Map<_, _> = system
        .filter(|(name, _)| asked("MessageSystemAttributeNames", name) || asked("AttributeNames", name))
        .collect();
    let own = event["messageAttributes"].as_object().unwrap().clone().into_iter();
    let own: Map<_, _> = own
        .filter(|(name, _)| asked("MessageAttributeNames", name))
        .map(|(name, value)| {
            let mut attribute = json!({ "DataType": value["dataType"] });
            for (from, to) in [("stringValue", "StringValue"), ("binaryValue", "BinaryValue")] {
                if let Some(text) = value.get(from) {
                    attribute[to] = text.clone();
                }
            }
            (name, attribute)
        })
        .collect();
    for (field, attributes) in [("Attributes", system), ("MessageAttributes", own)] {
        if !attributes.is_empty() {
            reply[field] = attributes.into();
        }
    }
    reply
}

fn delete(queue: &Queue, input: &Value) -> Result<Value, SqsError> {
    queue.delete(input["ReceiptHandle"].as_str().unwrap_or_default())?;
    Ok(json!({}))
}

fn change_visibility(queue: &Queue, input: &Value) -> Result<Value, SqsError> {
    let after = integer(input, "VisibilityTimeout")?.map(Duration::from_secs).expect("a VisibilityTimeout");
    queue.change_visibility(input["ReceiptHandle"].as_str().unwrap_or_default(), after)?;
    Ok(json!({}))
}

fn attributes(queue: &Queue, input: &Value) -> Value {
    let all = [
        ("ApproximateNumberOfMessages", queue.visible().to_string()),
        ("ApproximateNumberOfMessagesDelayed", queue.delayed().to_string()),
        ("ApproximateNumberOfMessagesNotVisible", queue.in_flight().to_string()),
        ("QueueArn", queue.arn()),
        ("VisibilityTimeout", queue.settings().visibility_timeout.as_secs().to_string()),
    ];
    let names: Vec<_> = input["AttributeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let asked = all.into_iter().filter(|(name, _)| names.contains(&"All") || names.contains(name));
    json!({ "Attributes": asked.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>() })
}
