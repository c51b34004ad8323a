//! Events with malformed records, such as those of a caller that is not SQS.

use history::Rng;
use serde_json::{Value, json};

use crate::producers::KEY_ATTRIBUTE;

/// What is malformed in an event.
#[derive(Clone, Debug, Default)]
pub struct Malformed {
    /// The messages whose record is malformed, and can be named in the response.
    pub messages: Vec<String>,
    /// Those of them whose receive count cannot be read.
    pub receive_counts: Vec<String>,
    /// Those of them whose receipt handle cannot be read.
    pub receipt_handles: Vec<String>,
    /// Messages with an attribute that cannot be read, and is not needed to run them.
    pub attributes: Vec<String>,
    /// Messages whose record names another queue. Their ids are those of messages of this one.
    pub other_queue: Vec<String>,
    /// Whether a record has no messageId, so that no response is possible.
    pub has_unnamed: bool,
}

/// The event with some records malformed: this many of 1000. Four times as many have an attribute that cannot be read.
/// Malformed records of a FIFO queue keep their group, without which later messages of the group would overtake them.
pub fn malform(event: &str, rate: u64, is_fifo: bool, rng: &mut Rng) -> (String, Malformed) {
    let mut malformed = Malformed::default();
    if rate == 0 {
        return (event.to_owned(), malformed);
    }
    let mut event: Value = serde_json::from_str(event).expect("the event is JSON");
    for record in event["Records"].as_array_mut().into_iter().flatten() {
        let message_id = record["messageId"].as_str().unwrap_or_default().to_owned();
        if rng.happens(4 * rate) {
            record["messageAttributes"]["Image"] = json!({"dataType": "Binary", "binaryValue": "%"});
            malformed.attributes.push(message_id.clone());
        }
        if !rng.happens(rate) {
            continue;
        }
        let choice = match rng.draw(0..12) {
            7 | 8 if is_fifo => 5,
            choice => choice,
        };
        match choice {
            0 => record["messageId"] = Value::Null,
            1 => record["messageId"] = json!(7),
            2 => record["messageId"] = json!(""),
            3 | 4 => record["body"] = Value::Null,
            5 | 6 => record["body"] = json!({"payment": 1}),
            7 | 8 => record["attributes"] = json!("none"),
            9 | 10 => record["messageAttributes"]["Idempotency-Key"] = json!({"stringValue": 7}),
            _ => record["receiptHandle"] = json!(7),
        }
        match choice {
            0..3 => malformed.has_unnamed = true,
            7 | 8 => malformed.receive_counts.push(message_id.clone()),
            11 => malformed.receipt_handles.push(message_id.clone()),
            _ => {}
        }
        if choice > 2 {
            malformed.messages.push(message_id);
        }
    }
    (event.to_string(), malformed)
}

/// The event as a mapping with rarer records has it, half of the time: messages with these ids name another queue, to
/// which their redrive policy may have moved them, and those whose key cannot be read have an empty body.
pub fn vary(event: &str, moved: &[String], malformed: &mut Malformed, rng: &mut Rng) -> String {
    let mut event: Value = serde_json::from_str(event).expect("the event is JSON");
    for record in event["Records"].as_array_mut().into_iter().flatten() {
        let message_id = record["messageId"].as_str().unwrap_or_default().to_owned();
        let is_moved = moved.contains(&message_id);
        let has_no_key = record["messageAttributes"][KEY_ATTRIBUTE]["binaryValue"].is_string();
        if malformed.messages.contains(&message_id) || !(is_moved || has_no_key) || rng.happens(500) {
            continue;
        }
        if is_moved {
            let arn = record["eventSourceARN"].as_str().unwrap_or_default().to_owned();
            let (account, name) = arn.rsplit_once(':').unwrap_or_default();
            record["eventSourceARN"] = json!(format!("{account}:other-{name}"));
            malformed.other_queue.push(message_id);
        } else {
            record["body"] = json!("");
            malformed.messages.push(message_id);
        }
    }
    event.to_string()
}
