//! SQS events as Lambda sends them, and payloads in S3.

use std::time::SystemTime;

#[cfg(feature = "lambda")]
use idempotent_sqs::sqs::Message;
use serde_json::{Value, json};

/// Part of every default body. It must not appear in a log.
pub const MARKER: &str = "SECRET-PAYLOAD";

/// One record of an event. Its key is in the first attribute that the function reads.
#[derive(Clone)]
pub struct Record(Value);

impl Record {
    /// A record of a standard queue, received for the first time.
    pub fn new(message_id: &str) -> Self {
        Self(json!({
            "messageId": message_id,
            "receiptHandle": message_id,
            "body": json!({ "amount": 1250, "note": MARKER }).to_string(),
            "attributes": {
                "ApproximateReceiveCount": "1",
                "SentTimestamp": "1795080483117",
                "SenderId": "AROA4YSNI2G3IITN5XVKT:payments-api",
                "ApproximateFirstReceiveTimestamp": milliseconds(SystemTime::now()),
            },
            "messageAttributes": {},
            "md5OfBody": "4a4a0b220c8c93a97f85048aec228806",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments",
            "awsRegion": "eu-central-1",
        }))
    }

    pub fn key(self, key: &str) -> Self {
        let key = json!({ "stringValue": key, "stringListValues": [], "binaryListValues": [], "dataType": "String" });
        self.attribute("Idempotency-Key", key)
    }

    /// Adds a message attribute.
    pub fn attribute(mut self, name: &str, value: Value) -> Self {
        self.0["messageAttributes"][name] = value;
        self
    }

    pub fn body(self, body: &str) -> Self {
        self.with("body", body.into())
    }

    pub fn received(mut self, times: u32) -> Self {
        self.0["attributes"]["ApproximateReceiveCount"] = times.to_string().into();
        self
    }

    pub fn first_received(mut self, at: SystemTime) -> Self {
        self.0["attributes"]["ApproximateFirstReceiveTimestamp"] = milliseconds(at).into();
        self
    }

    /// Makes it a record of a FIFO queue, in this group.
    pub fn group(mut self, group: &str) -> Self {
        self.0["attributes"]["MessageGroupId"] = group.into();
        self.0["attributes"]["MessageDeduplicationId"] = self.0["messageId"].clone();
        self.with("eventSourceARN", "arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into())
    }

    /// Sets the X-Ray trace header of the sender.
    pub fn trace_header(mut self, header: &str) -> Self {
        self.0["attributes"]["AWSTraceHeader"] = header.into();
        self
    }

    /// Sets the deduplicationId, which is the messageId by default.
    pub fn deduplication_id(mut self, id: &str) -> Self {
        self.0["attributes"]["MessageDeduplicationId"] = id.into();
        self
    }

    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }

    pub fn without(mut self, field: &str) -> Self {
        self.0.as_object_mut().unwrap().remove(field);
        self
    }
}

/// A time as SQS writes it, ms since 1970.
fn milliseconds(time: SystemTime) -> String {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis().to_string()
}

/// The body of a message whose payload the extended client has put into S3.
pub fn pointer(bucket: &str, name: &str) -> String {
    json!(["software.amazon.payloadoffloading.PayloadS3Pointer", { "s3BucketName": bucket, "s3Key": name }]).to_string()
}

/// Makes it a message whose payload the extended client has put into S3.
#[cfg(feature = "lambda")]
pub fn set_pointer(message: &mut Message, bucket: &str, name: &str) {
    message.body = Some(pointer(bucket, name));
    message.attributes.insert("ExtendedPayloadSize".to_owned(), "300000".into());
}

/// An event with these records.
pub fn event(records: impl IntoIterator<Item = Record>) -> String {
    let records: Vec<_> = records.into_iter().map(|Record(record)| record).collect();
    json!({ "Records": records }).to_string()
}
