//! The messages of a run.

use harness::event::MARKER;
use harness::http::TOKEN;
use history::Pointer;
use idempotent_sqs_testing::{Attribute, SendRequest};
use serde_json::json;

use super::objects::{LIMIT, Name, PLANS, Plan, Reply, Stored, Text};

/// The attribute and the class in the pointers of the extended client, and of its older versions:
/// <https://github.com/awslabs/amazon-sqs-java-extended-client-lib>
const CURRENT: (&str, &str) = ("ExtendedPayloadSize", "software.amazon.payloadoffloading.PayloadS3Pointer");
const OLDER: (&str, &str) = ("SQSLargePayloadSize", "com.amazon.sqs.javamessaging.MessageS3Pointer");

/// The time in the X-Ray traces of the messages:
/// <https://docs.aws.amazon.com/xray/latest/devguide/xray-api-sendingdata.html#xray-api-traceids>
const TRACE_TIME: &str = "5759e988";

/// One message of the producer.
pub(super) struct Message {
    pub(super) key: String,
    /// The trace that it is sent in, if it has one.
    trace: Option<u64>,
    /// The body that the queue delivers.
    pub(super) body: String,
    /// Its payload in S3.
    pub(super) stored: Option<Stored>,
}

/// The messages of this run. Every tenth one is another message with the key and payload of the one before. One in
/// eight has its payload in S3, with the answers of each plan in turn.
pub(super) fn messages(seed: u64, count: u64) -> Vec<Message> {
    let first = usize::try_from(seed).unwrap() * 17;
    let mut plans = PLANS.iter().cycle().skip(first % PLANS.len());
    let mut messages: Vec<Message> = Vec::new();
    for message in 0..count {
        let number = key_number(message);
        let trace = (!number.is_multiple_of(3)).then_some(number);
        if !is_stored(number) {
            let key = key(seed, message);
            messages.push(Message { body: body(&key), key, trace, stored: None });
            continue;
        }
        let key = format!("in-s3-{seed}-{number}");
        let stored = match messages.last() {
            Some(before) if number != message => copy(message, before.stored.as_ref().unwrap()),
            _ => new(message, &key, plans.next().unwrap()),
        };
        let location = json!({ "s3BucketName": stored.bucket, "s3Key": stored.name });
        let body = json!([client(message).1, location]).to_string();
        messages.push(Message { key, body, trace, stored: Some(stored) });
    }
    messages
}

/// The payload of a message, by the answers of this plan.
fn new(message: u64, key: &str, plan: &'static Plan) -> Stored {
    let payload = json!({ "paymentId": key, "note": MARKER }).to_string();
    let text = match plan.text {
        Text::Short => payload,
        Text::Empty => String::new(),
        Text::Largest => format!("{payload:LIMIT$}"),
    };
    let payment = format!("payment-{message}-{TOKEN}");
    let (bucket, name) = match plan.name {
        Name::Plain => ("payloads", payment),
        Name::Escaped => ("payloads", format!("größe/%2e%2e/a b+c?d=1#e/{payment}")),
        Name::Slashes => ("payloads", format!("a//{payment}/")),
        Name::OtherBucket => ("secrets", payment),
        Name::Above => ("payloads", format!("../secrets/{payment}")),
        Name::Beside => ("payloads", format!("a/../{payment}")),
        Name::Dot => ("payloads", format!("./{payment}")),
    };
    Stored { bucket, name, text, plan, attribute: client(message).0 }
}

/// Another object with this payload, which is deleted when the work was done.
fn copy(message: u64, of: &Stored) -> Stored {
    const COPY: &Plan =
        &Plan { name: Name::Plain, text: Text::Short, first: &[], then: Reply::DeletedOnceDone, has_attribute: true };
    let (name, attribute) = (format!("copy-{message}-{TOKEN}"), client(message).0);
    Stored { bucket: "payloads", name, text: of.text.clone(), plan: COPY, attribute }
}

/// Whether payloads under keys with this number are in S3. Their keys have no plans of the webhook.
const fn is_stored(number: u64) -> bool {
    number % 10 == 5 || number % 40 == 28
}

/// The version of the extended client that sends this message.
const fn client(message: u64) -> (&'static str, &'static str) {
    if message % 10 == 5 { CURRENT } else { OLDER }
}

const fn key_number(message: u64) -> u64 {
    message - (message % 10 == 9) as u64
}

/// The key of a message. Some have characters that a header cannot have, or that are escaped in it.
fn key(seed: u64, message: u64) -> String {
    let number = key_number(message);
    let name = if number % 7 == 3 { "größe %41 " } else { "pay" };
    format!("{name}-{seed}-{number}")
}

/// The body of the messages with this key: JSON, or not.
fn body(key: &str) -> String {
    if key.ends_with('4') { format!("paymentId={key}") } else { format!("{{\"paymentId\":\"{key}\"}}") }
}

impl Message {
    pub(super) fn request(&self) -> SendRequest {
        let request = SendRequest::new(&self.body);
        let request = match self.trace {
            Some(trace) => {
                request.trace_header(format!("Root=1-{TRACE_TIME}-{trace:024x};Parent=53995c3f42cd8ad8;Sampled=1"))
            }
            None => request.trace_header("Root=1-odd"),
        };
        let Some(stored) = &self.stored else { return request.attribute("Idempotency-Key", self.key.clone()) };
        let size = Attribute::Number(stored.text.len().to_string());
        let request = request.attribute(stored.attribute, size);
        if stored.plan.has_attribute { request.attribute("Idempotency-Key", self.key.clone()) } else { request }
    }

    /// The trace that it is sent in, in hexadecimal digits.
    pub(super) fn sender(&self) -> Option<String> {
        self.trace.map(|trace| format!("{TRACE_TIME}{trace:024x}"))
    }

    /// What the webhook is to get.
    pub(super) fn payload(&self) -> &str {
        self.stored.as_ref().map_or(&self.body, |stored| &stored.text)
    }

    pub(super) fn pointer(&self) -> Option<Pointer> {
        let stored = self.stored.as_ref()?;
        Some(Pointer { object: stored.object(), payload: stored.plan.payload() })
    }

    /// Whether its key has a record in the end.
    pub(super) fn has_record(&self) -> bool {
        self.stored.as_ref().is_none_or(|stored| stored.plan.has_record())
    }
}
