//! When a failed message comes again: ChangeMessageVisibility.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Entry;
use aws_sdk_sqs::types::builders::ChangeMessageVisibilityBatchRequestEntryBuilder as EntryBuilder;
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::message::Message;

/// Entries that one call may carry:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html>
const ENTRIES_A_CALL: usize = 10;

/// Longest wait for SQS, with a first call's certificates and credentials: the messages come again
/// without it too, and the invocation is paid for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Changes the visibility of messages that were received and not deleted.
///
/// A change that fails is logged, never more: the message comes by its queue's visibility timeout.
#[derive(Default)]
pub struct Visibility {
    client: OnceCell<Client>,
    in_place_of_sqs: Option<Box<Told>>,
}

/// Who is told of a change in place of SQS, and may say why it cannot be.
type Told = dyn Fn(&Message, Duration) -> Result<(), String> + Send + Sync;

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility").finish_non_exhaustive()
    }
}

impl Visibility {
    /// Tell `told` of each change in place of SQS: a test's queue, say. It is given whole seconds.
    pub fn told(told: impl Fn(&Message, Duration) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { in_place_of_sqs: Some(Box::new(told)), ..Self::default() }
    }

    /// Make each message visible again after so long, rounded up to whole seconds.
    ///
    /// ## Cancel safety
    /// Dropped, it may have changed some.
    pub async fn change(&self, changes: &[(&Message, Duration)], until: Instant) {
        if let Some(told) = &self.in_place_of_sqs {
            for (message, after) in changes {
                if let Err(reason) = told(message, Duration::from_secs(seconds(*after))) {
                    left_to_the_queue(1, &reason);
                }
            }
            return;
        }
        let until = until.min(Instant::now() + PATIENCE);
        let mut by_queue: BTreeMap<Queue<'_>, Vec<EntryBuilder>> = BTreeMap::new();
        for (message, after) in changes {
            match (Queue::of(message), entry(message, *after)) {
                (Some(queue), Some(entry)) => by_queue.entry(queue).or_default().push(entry),
                (None, _) | (_, None) => left_to_the_queue(1, "the message has no receipt handle, or no queue's ARN"),
            }
        }
        let Some(queue) = by_queue.keys().next() else { return };
        let client = match timeout_at(until, self.client(queue.region)).await {
            Ok(client) => client,
            Err(elapsed) => return left_to_the_queue(changes.len(), &elapsed.to_string()),
        };
        let calls = by_queue.iter().flat_map(|(queue, entries)| {
            entries.chunks(ENTRIES_A_CALL).map(|entries| call(client, queue, entries, until))
        });
        join_all(calls).await;
    }

    /// Made at the first use: loading certificates takes longer than starting the function.
    async fn client(&self, region: &str) -> &Client {
        self.client
            .get_or_init(|| async {
                let region = Region::new(region.to_owned());
                let behaviour = aws_config::BehaviorVersion::latest();
                Client::new(&aws_config::defaults(behaviour).region(region).load().await)
            })
            .await
    }
}

async fn call(client: &Client, queue: &Queue<'_>, entries: &[EntryBuilder], until: Instant) {
    // Numbered, as an entry's id takes fewer characters than a messageId may have.
    let numbered = entries.iter().enumerate().map(|(at, entry)| entry.clone().id(at.to_string()).build());
    let request = client
        .change_message_visibility_batch()
        .queue_url(queue.url())
        .set_entries(Some(numbered.filter_map(Result::ok).collect()));
    match timeout_at(until, request.send()).await {
        Ok(Ok(answer)) => {
            if let Some(first) = answer.failed.first() {
                let reason = first.message.as_deref().unwrap_or(&first.code);
                left_to_the_queue(answer.failed.len(), reason);
            }
        }
        Ok(Err(error)) => left_to_the_queue(entries.len(), &DisplayErrorContext(error).to_string()),
        Err(elapsed) => left_to_the_queue(entries.len(), &elapsed.to_string()),
    }
}

fn left_to_the_queue(failed: usize, reason: &str) {
    let advice = "may the function call sqs:ChangeMessageVisibility, and can it reach SQS?";
    tracing::warn!(failed, reason, advice, "visibility left to the queue");
}

fn entry(message: &Message, after: Duration) -> Option<EntryBuilder> {
    let handle = message.receipt_handle.as_ref()?;
    Some(Entry::builder().receipt_handle(handle).visibility_timeout(i32::try_from(seconds(after)).ok()?))
}

fn seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

/// A queue, by the parts of its ARN: `arn:aws:sqs:eu-central-1:123456789012:payments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queue<'a> {
    partition: &'a str,
    region: &'a str,
    account: &'a str,
    name: &'a str,
}

impl<'a> Queue<'a> {
    fn of(message: &'a Message) -> Option<Self> {
        let mut parts = message.queue_arn.as_deref()?.splitn(6, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        match (next()?, next()?, next()?, next()?, next()?, next()?) {
            ("arn", partition, "sqs", region, account, name) => Some(Self { partition, region, account, name }),
            _ => None,
        }
    }

    /// The queue's URL, which SQS wants for an address.
    fn url(&self) -> String {
        let Self { partition, region, account, name } = self;
        let domain = if *partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("https://sqs.{region}.{domain}/{account}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_queue_is_addressed_by_the_url_of_its_arn() {
        let url = |arn: &str| {
            let message = Message { queue_arn: Some(arn.into()), ..Message::default() };
            Queue::of(&message).map(|queue| queue.url())
        };
        assert_eq!(
            url("arn:aws:sqs:eu-central-1:123456789012:payments.fifo").as_deref(),
            Some("https://sqs.eu-central-1.amazonaws.com/123456789012/payments.fifo")
        );
        assert_eq!(
            url("arn:aws-cn:sqs:cn-north-1:123456789012:payments").as_deref(),
            Some("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/payments")
        );
        assert_eq!(url("arn:aws:kinesis:eu-central-1:123456789012:stream/payments"), None);
        assert_eq!(url("payments"), None);
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        let message = Message { receipt_handle: Some("r".into()), ..Message::default() };
        let seconds = |ms| entry(&message, Duration::from_millis(ms)).and_then(|entry| *entry.get_visibility_timeout());
        assert_eq!(seconds(0), Some(0));
        assert_eq!(seconds(1), Some(1));
        assert_eq!(seconds(1000), Some(1));
        assert_eq!(seconds(1001), Some(2));
    }

    #[tokio::test]
    async fn who_is_told_in_place_of_sqs_gets_each_change_in_whole_seconds() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let visibility = Visibility::told(move |message, after| {
            heard.lock().unwrap().push((message.id.clone(), after.as_millis()));
            Err("no more".into())
        });
        let messages = ["a", "b"].map(|id| Message { id: id.into(), ..Message::default() });
        let changes = [(&messages[0], Duration::from_millis(1001)), (&messages[1], Duration::ZERO)];
        visibility.change(&changes, Instant::now()).await;
        assert_eq!(*told.lock().unwrap(), [("a".to_owned(), 2000), ("b".to_owned(), 0)]);
    }
}
