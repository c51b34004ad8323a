//! Sets when a failed message is received again: ChangeMessageVisibility.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::builders::ChangeMessageVisibilityBatchRequestEntryBuilder as EntryBuilder;
use aws_sdk_sqs::types::{BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry as Entry};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::client::{QueueArn, SqsClient};
use super::message::Message;
use crate::aws::AwsConfig;
use crate::credentials::NO_CERTIFICATES;
use crate::idempotency::{catch_async, error_chain};

/// Entries that one call may have:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html>
const MAX_ENTRIES: usize = 10;

/// Calls that run concurrently, each on its own connection. A function may have 1,024 open files, and an execution
/// environment of Lambda Managed Instances runs several invocations at once:
/// <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>
const CONCURRENT_CALLS: usize = 50;

/// Longest time for SQS to reply, including credentials and the TLS handshake of the first call. It is short, because
/// the messages are delivered again even without the change, and the invocation's duration is billed.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Time in which a reply can be expected. A function with little memory needs most of it for the TLS handshake.
const TIME_FOR_A_REPLY: Duration = Duration::from_secs(1);

/// Additional time for each call that waits for an earlier one. The largest batch has 1,000 calls, 20 on each
/// connection, and almost 8 seconds for all: a reply takes some 20 milliseconds, and with little memory a function has
/// so little of a processor that each call takes some milliseconds of it.
const TIMEOUT_PER_CALL: Duration = Duration::from_millis(5);

/// Longest visibility timeout of SQS, counted from the receive:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// How much less is asked for if SQS refuses a visibility timeout. An invocation that Lambda throttled may begin hours
/// after the receive.
const LESS: Duration = Duration::from_secs(3600);

/// Whether SQS refused a visibility timeout because it is too long. An expired receipt handle has the same error code;
/// only the text names the parameter.
fn is_too_long(code: &str, message: Option<&str>) -> bool {
    code.contains("InvalidParameterValue") && message.is_none_or(|message| message.contains("VisibilityTimeout"))
}

/// Changes the visibility timeout of messages that were received and not deleted.
///
/// SQS accepts at most 12 hours, counted from the receive. If it refuses more than an hour, an hour less is asked for,
/// until it accepts. A failed change is only logged: the message is redelivered after the visibility timeout of its
/// queue.
pub struct Visibility {
    sqs: Sqs,
}

/// A change of one visibility timeout.
#[derive(Clone, Copy)]
struct Change<'a> {
    receipt_handle: &'a str,
    after: Duration,
}

impl Change<'_> {
    fn entry(&self) -> EntryBuilder {
        // At most 12 hours.
        let seconds = i32::try_from(whole_seconds(self.after)).unwrap_or(i32::MAX);
        Entry::builder().receipt_handle(self.receipt_handle).visibility_timeout(seconds)
    }

    /// What to ask for if SQS refuses this.
    fn less(self) -> Option<Self> {
        Some(Self { after: less_than(self.after)?, ..self })
    }
}

/// The next shorter visibility timeout.
fn less_than(after: Duration) -> Option<Duration> {
    after.min(LONGEST).checked_sub(LESS).filter(|less| !less.is_zero())
}

/// Destination of the changes.
enum Sqs {
    Client(SqsClient),
    /// A replacement for SQS in tests. It may return why a change failed.
    Replacement(Box<Replacement>),
}

type Replacement = dyn Fn(&Message, Duration) -> Result<(), String> + Send + Sync;

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility").finish_non_exhaustive()
    }
}

impl Visibility {
    /// Changes visibility timeouts in SQS. No connection is opened yet.
    #[must_use]
    pub fn new(aws: AwsConfig) -> Self {
        Self { sqs: Sqs::Client(SqsClient::new(aws)) }
    }

    /// Passes each change to `change` instead of SQS, in whole seconds: for tests with a simulated queue.
    pub fn with_replacement(change: impl Fn(&Message, Duration) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { sqs: Sqs::Replacement(Box::new(change)) }
    }

    /// Makes each message visible again after its delay, rounded up to whole seconds and of at most 12 hours. Calls of
    /// SQS stop at `until`; a replacement gets each change.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the visibility timeouts of some messages may have been changed.
    pub async fn change(&self, changes: &[(&Message, Duration)], until: Instant) {
        match &self.sqs {
            Sqs::Client(client) => {
                // The SDK panics if no certificate of this system can be loaded. The work may be done by now.
                if catch_async(change_in_sqs(client, changes, until)).await.is_none() {
                    log_unchanged(changes.len(), "the AWS SDK panicked", Some(NO_CERTIFICATES));
                }
            }
            Sqs::Replacement(change) => {
                for (message, after) in changes {
                    let mut after = *after;
                    while let Err(reason) = change(message, Duration::from_secs(whole_seconds(after))) {
                        let Some(less) = less_than(after).filter(|_| is_too_long(&reason, Some(&reason))) else {
                            log_unchanged(1, &reason, None);
                            break;
                        };
                        after = less;
                    }
                }
            }
        }
    }
}

/// Logs that there was no reply in this time.
fn log_no_reply(failed: usize, time: Duration) {
    if time < TIME_FOR_A_REPLY {
        log_unchanged(failed, "too little time was left for the call", None);
    } else {
        log_unchanged(failed, "SQS did not reply in time", Some(CALL_ADVICE));
    }
}

async fn change_in_sqs(sqs: &SqsClient, changes: &[(&Message, Duration)], until: Instant) {
    let began = Instant::now();
    let mut by_queue: BTreeMap<QueueArn<'_>, Vec<Change<'_>>> = BTreeMap::new();
    for (message, after) in changes {
        match (QueueArn::of(message), message.receipt_handle.as_deref()) {
            (Some(queue), Some(receipt_handle)) => {
                by_queue.entry(queue).or_default().push(Change { receipt_handle, after: *after });
            }
            (None, _) | (_, None) => {
                log_unchanged(1, "the message has no receipt handle or no ARN of its queue", None);
            }
        }
    }
    let Some(queue) = by_queue.keys().next() else { return };
    let calls: usize = by_queue.values().map(|changes| changes.len().div_ceil(MAX_ENTRIES)).sum();
    let waiting = u32::try_from(calls.saturating_sub(CONCURRENT_CALLS)).unwrap_or(u32::MAX);
    let until = until.min(began + TIMEOUT + TIMEOUT_PER_CALL.saturating_mul(waiting));
    let Ok(client) = timeout_at(until, sqs.get(Some(queue.region))).await else {
        return log_no_reply(changes.len(), began.elapsed());
    };
    let has_timed_out = AtomicBool::new(false);
    let calls = by_queue.iter().flat_map(|(queue, changes)| {
        changes.chunks(MAX_ENTRIES).map(|changes| change_batch(&client, queue, changes.to_vec(), until, &has_timed_out))
    });
    let calls: Vec<_> = calls.collect();
    stream::iter(calls).buffer_unordered(CONCURRENT_CALLS).collect::<()>().await;
}

/// Changes the visibility timeouts of at most ten messages. `has_timed_out`: whether a call had
/// [`TIME_FOR_A_REPLY`] and no reply, after which no other one starts.
async fn change_batch(
    client: &Client,
    queue: &QueueArn<'_>,
    mut changes: Vec<Change<'_>>,
    until: Instant,
    has_timed_out: &AtomicBool,
) {
    while !changes.is_empty() {
        if has_timed_out.load(Ordering::Relaxed) {
            return log_unchanged(changes.len(), "SQS did not reply to an earlier call", Some(CALL_ADVICE));
        }
        // A call that has no time left would still open a connection.
        let began = Instant::now();
        if until <= began {
            return log_no_reply(changes.len(), Duration::ZERO);
        }
        // Numbered, because the id of an entry allows fewer characters than a messageId may have.
        let entries = changes.iter().enumerate().map(|(number, change)| change.entry().id(number.to_string()).build());
        let request = client
            .change_message_visibility_batch()
            .queue_url(queue.url())
            .set_entries(Some(entries.filter_map(Result::ok).collect()));
        let failed = match timeout_at(until.min(began + TIMEOUT), request.send()).await {
            Ok(Ok(reply)) => reply.failed,
            Ok(Err(error)) => {
                return log_unchanged(changes.len(), &error_chain(&error), Some(CALL_ADVICE));
            }
            Err(_elapsed) => {
                has_timed_out.fetch_or(began.elapsed() >= TIME_FOR_A_REPLY, Ordering::Relaxed);
                return log_no_reply(changes.len(), began.elapsed());
            }
        };
        let less = |entry: &BatchResultErrorEntry| {
            let less = changes.get(entry.id.parse::<usize>().ok()?)?.less();
            less.filter(|_| is_too_long(&entry.code, entry.message.as_deref()))
        };
        let (mut again, mut refused) = (Vec::new(), Vec::new());
        for entry in &failed {
            match less(entry) {
                Some(change) => again.push(change),
                None => refused.push(entry),
            }
        }
        if let Some(first) = refused.first() {
            log_unchanged(refused.len(), first.message.as_deref().unwrap_or(&first.code), None);
        }
        changes = again;
    }
}

/// What to do if a call failed. A refused entry is another matter: SQS was reached, and permitted the call.
const CALL_ADVICE: &str = "check that the function may call sqs:ChangeMessageVisibility and can reach SQS";

fn log_unchanged(failed: usize, reason: &str, advice: Option<&str>) {
    tracing::warn!(failed, reason, advice, "visibility timeouts were not changed; the queue's default applies");
}

/// What to ask for: whole seconds, of which SQS accepts no more than [`LONGEST`].
fn whole_seconds(after: Duration) -> u64 {
    let after = after.min(LONGEST);
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_delay_is_rounded_up_to_whole_seconds() {
        let change = |ms| Change { receipt_handle: "r", after: Duration::from_millis(ms) };
        let seconds = |ms| *change(ms).entry().get_visibility_timeout();
        assert_eq!(seconds(0), Some(0));
        assert_eq!(seconds(1), Some(1));
        assert_eq!(seconds(1000), Some(1));
        assert_eq!(seconds(1001), Some(2));
    }

    #[test]
    fn less_is_asked_for_only_if_the_visibility_timeout_is_the_parameter_that_sqs_refused() {
        let refused = |parameter| format!("Value 43200 for parameter {parameter} is invalid. Reason: as told.");
        assert!(is_too_long("InvalidParameterValue", Some(&refused("VisibilityTimeout"))));
        assert!(is_too_long("com.amazonaws.sqs#InvalidParameterValueException", None));
        assert!(!is_too_long("InvalidParameterValue", Some(&refused("ReceiptHandle"))));
        assert!(!is_too_long("ReceiptHandleIsInvalid", None));
    }

    #[test]
    fn a_delay_may_have_any_length() {
        let change = Change { receipt_handle: "r", after: Duration::MAX };
        assert_eq!(*change.entry().get_visibility_timeout(), Some(43_200));
    }

    #[tokio::test]
    async fn a_message_is_not_made_visible_at_once_if_sqs_refuses_even_an_hour() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let changes = Arc::clone(&received);
        let visibility = Visibility::with_replacement(move |_, after| {
            changes.lock().unwrap().push(after);
            Err("InvalidParameterValue for VisibilityTimeout".into())
        });
        visibility.change(&[(&Message::default(), 2 * LESS)], Instant::now()).await;
        assert_eq!(*received.lock().unwrap(), [2 * LESS, LESS]);
    }

    #[tokio::test]
    async fn a_replacement_for_sqs_receives_each_change_in_whole_seconds() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let changes = Arc::clone(&received);
        let visibility = Visibility::with_replacement(move |message, after| {
            changes.lock().unwrap().push((message.id.clone(), after.as_millis()));
            Err("no more".into())
        });
        let messages = ["a", "b"].map(|id| Message { id: id.into(), ..Message::default() });
        let changes = [(&messages[0], Duration::from_millis(1001)), (&messages[1], Duration::ZERO)];
        visibility.change(&changes, Instant::now()).await;
        assert_eq!(*received.lock().unwrap(), [("a".to_owned(), 2000), ("b".to_owned(), 0)]);
    }
}
