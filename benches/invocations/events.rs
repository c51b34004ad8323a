//! SQS events as Lambda sends them to a function.

use std::fmt::Write as _;
use std::sync::Arc;

/// Generates events in which every message has another id.
pub(crate) struct Events {
    /// Messages per event.
    batch: usize,
    /// The JSON of a message before and after its id.
    before_id: String,
    after_id: String,
    random: u64,
}

impl Events {
    /// Events of `batch` messages with bodies of `body` bytes.
    pub(crate) fn new(batch: usize, body: usize) -> Self {
        // The body is JSON in a JSON string.
        let body = order(body).replace('"', "\\\"");
        let after_id = format!(
            r#"","receiptHandle":"AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a7bTqhn2ZLzHWV0tvzsgB5hAKv5OCvTPjDmCuDPmFBuvNgj","body":"{body}","attributes":{{"ApproximateReceiveCount":"1","SentTimestamp":"1795080483117","SenderId":"AROA4YSNI2G3IITN5XVKT:payments-api","ApproximateFirstReceiveTimestamp":"1795080483148"}},"messageAttributes":{{}},"md5OfBody":"e4e68fb7bd0e697a0ae8f1bb342846b3","eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:eu-central-1:123456789012:payments","awsRegion":"eu-central-1"}}"#
        );
        // Any seed but zero.
        Self { batch, before_id: r#"{"messageId":""#.to_owned(), after_id, random: 0x9e37_79b9_7f4a_7c15 }
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<Arc<[u8]>> {
        (0..count).map(|_| self.event()).collect()
    }

    fn event(&mut self) -> Arc<[u8]> {
        // 36 characters of the id, and a comma.
        let record = self.before_id.len() + 37 + self.after_id.len();
        let mut event = String::with_capacity(16 + self.batch * record);
        event.push_str(r#"{"Records":["#);
        for index in 0..self.batch {
            let comma = if index > 0 { "," } else { "" };
            let (high, low) = (self.random(), self.random());
            // Writing to a String cannot fail.
            let _ = write!(
                event,
                "{comma}{}{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}{}",
                self.before_id,
                high >> 32,
                high >> 16 & 0xffff,
                high & 0xfff,
                low >> 48 & 0xfff,
                low & 0xffff_ffff_ffff,
                self.after_id
            );
        }
        event.push_str("]}");
        event.into_bytes().into()
    }

    /// Marsaglia's xorshift64, whose period exceeds the length of any run.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// An order as JSON of this many bytes.
fn order(bytes: usize) -> String {
    const ITEM: &str = r#"{"sku":"A-1001","quantity":2,"price":"12.50"}"#;
    let empty = r#"{"order":"2026-000123","items":[],"note":""}"#.len();
    let items = bytes.saturating_sub(empty) / (ITEM.len() + 1);
    let items = vec![ITEM; items].join(",");
    let note = "x".repeat(bytes.saturating_sub(empty + items.len()));
    format!(r#"{{"order":"2026-000123","items":[{items}],"note":"{note}"}}"#)
}
