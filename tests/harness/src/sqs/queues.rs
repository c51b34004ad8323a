//! `CreateQueue` and `StartMessageMoveTask`.

use std::panic::catch_unwind;
use std::time::Duration;

use idempotent_sqs_testing::{DeadLetter, DeduplicationScope, Queue, QueueSettings, SqsError};
use serde_json::{Value, json};

const INVALID: SqsError =
    SqsError { code: "InvalidAttributeValue", reason: "Invalid value for an attribute of the queue." };

/// Creates a queue.
pub(super) fn create(queues: &mut Vec<Queue>, input: &Value) -> Result<Value, SqsError> {
    let attribute = |name: &str| input["Attributes"][name].as_str();
    let seconds = |name: &str, default| match attribute(name).map(str::parse) {
        None => Ok(default),
        Some(seconds) => seconds.map(Duration::from_secs).map_err(|_| INVALID),
    };
    let default = QueueSettings::default();
    let dead_letter = attribute("RedrivePolicy").map(|policy| {
        let policy: Value = serde_json::from_str(policy).unwrap();
        let receives = &policy["maxReceiveCount"];
        let receives = receives.as_u64().or_else(|| receives.as_str()?.parse().ok()).expect("a maxReceiveCount");
        DeadLetter {
            queue: by_arn(queues, &policy["deadLetterTargetArn"]).expect("the dead-letter queue").clone(),
            max_receive_count: u32::try_from(receives).unwrap(),
        }
    });
    let settings = QueueSettings {
        name: input["QueueName"].as_str().expect("a QueueName").into(),
        visibility_timeout: seconds("VisibilityTimeout", default.visibility_timeout)?,
        retention: seconds("MessageRetentionPeriod", default.retention)?,
        delay: seconds("DelaySeconds", default.delay)?,
        dead_letter,
        content_based_deduplication: attribute("ContentBasedDeduplication") == Some("true"),
        deduplication_scope: match attribute("DeduplicationScope") {
            Some("messageGroup") => DeduplicationScope::MessageGroup,
            _ => DeduplicationScope::Queue,
        },
        ..default
    };
    let seed = queues.len() as u64;
    let queue = catch_unwind(|| Queue::new(settings, seed)).map_err(|_| INVALID)?;
    let url = queue.url();
    queues.push(queue);
    Ok(json!({ "QueueUrl": url }))
}

/// Moves all messages at once.
pub(super) fn start_message_move_task(queues: &[Queue], input: &Value) -> Result<Value, SqsError> {
    const NOT_FOUND: SqsError =
        SqsError { code: "ResourceNotFoundException", reason: "The resource that you specified does not exist." };
    let source = by_arn(queues, &input["SourceArn"]).ok_or(NOT_FOUND)?;
    source.redrive_to(by_arn(queues, &input["DestinationArn"]).ok_or(NOT_FOUND)?)?;
    Ok(json!({ "TaskHandle": "task" }))
}

fn by_arn<'a>(queues: &'a [Queue], arn: &Value) -> Option<&'a Queue> {
    queues.iter().find(|queue| queue.arn() == *arn)
}
