//! Events of payments, each of an account of its own within a batch, and none ever again.

use std::fmt::Write;
use std::sync::Arc;

/// Far more than a batch has messages, so that none waits for another's account.
pub(crate) const ACCOUNTS: u64 = 1_000;

#[derive(Default)]
pub(crate) struct Payments {
    sequence: u64,
}

impl Payments {
    pub(crate) fn take(&mut self, count: usize, batch: usize) -> Vec<Arc<[u8]>> {
        (0..count).map(|_| self.event(batch)).collect()
    }

    fn event(&mut self, batch: usize) -> Arc<[u8]> {
        let mut event = String::from(r#"{"Records":["#);
        for at in 0..batch {
            self.sequence += 1;
            let (comma, n) = (if at > 0 { "," } else { "" }, self.sequence);
            let account = n % ACCOUNTS;
            // Writing to a String cannot fail.
            let _ = write!(
                event,
                r#"{comma}{{"messageId":"m-{n}","receiptHandle":"m-{n}","body":"{{\"eventId\":\"e-{n}\",\"accountId\":\"a-{account}\",\"amount\":1250,\"sequenceId\":{n},\"type\":\"CREDIT\"}}","attributes":{{"ApproximateReceiveCount":"1"}},"messageAttributes":{{}},"eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:eu-central-1:123456789012:payments","awsRegion":"eu-central-1"}}"#
            );
        }
        event.push_str("]}");
        event.into_bytes().into()
    }
}
