//! Events of payments. No payment occurs twice, and those of a batch are on different accounts.

use std::fmt::Write;
use std::sync::Arc;

/// Far more than messages in a batch, so that no transaction waits for the lock of an account.
const ACCOUNTS: u64 = 1_000;

/// The payments of one function. Interleaved functions share no account: a later event of one function would make
/// an earlier one of another obsolete.
pub(crate) struct Payments {
    function: usize,
    sequence: u64,
}

impl Payments {
    pub(crate) fn of(function: usize) -> Self {
        Self { function, sequence: 0 }
    }

    /// The SQL statement that inserts the accounts.
    pub(crate) fn accounts(&self) -> String {
        let function = self.function;
        format!(
            "INSERT INTO ledger_account (account_id) SELECT 'a-{function}-' || n FROM generate_series(0, {ACCOUNTS} - 1) n"
        )
    }

    pub(crate) fn take(&mut self, count: usize, batch: usize) -> Vec<Arc<[u8]>> {
        (0..count).map(|_| self.event(batch)).collect()
    }

    fn event(&mut self, batch: usize) -> Arc<[u8]> {
        let mut event = String::from(r#"{"Records":["#);
        for index in 0..batch {
            self.sequence += 1;
            let (comma, n) = (if index > 0 { "," } else { "" }, self.sequence);
            let (function, account) = (self.function, n % ACCOUNTS);
            // Writing to a String cannot fail.
            let _ = write!(
                event,
                r#"{comma}{{"messageId":"m-{function}-{n}","receiptHandle":"m-{function}-{n}","body":"{{\"eventId\":\"e-{function}-{n}\",\"accountId\":\"a-{function}-{account}\",\"amount\":1250,\"sequenceId\":{n},\"type\":\"CREDIT\"}}","attributes":{{"ApproximateReceiveCount":"1"}},"messageAttributes":{{}},"eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:eu-central-1:123456789012:payments","awsRegion":"eu-central-1"}}"#
            );
        }
        event.push_str("]}");
        event.into_bytes().into()
    }
}
