//! The calls to SQS.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{Builder, Region};
use aws_sdk_sqs::operation::send_message::builders::SendMessageInputBuilder;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use idempotent_sqs::sqs::region_of;

use super::error::{CallError, LookupError};
use super::hidden::HiddenUntil;
use super::tries::Tries;

/// Most messages in a receive and in a batch request:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
pub(crate) const BATCH: u8 = 10;

/// A reply takes milliseconds, and a long poll one second.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// A dead-letter queue, and the client that calls SQS.
pub(crate) struct DeadLetterQueue {
    /// In the region of the queue.
    client: Client,
    /// The same without retries.
    sender: Client,
    pub(crate) url: String,
    /// How long received letters are hidden from other consumers, unless they are made visible before.
    pub(crate) visibility_timeout: Duration,
}

/// A queue to which letters are sent.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) url: String,
    /// In the region of the queue, without retries.
    sender: Client,
}

/// What a receive returned.
pub(crate) struct Received {
    pub(crate) messages: Vec<Message>,
    /// Whether an earlier try had no reply: its messages are hidden, and not known.
    pub(crate) was_repeated: bool,
    /// Until when the messages are hidden.
    pub(crate) hidden_until: HiddenUntil,
}

/// A message whose visibility timeout was not changed.
pub(crate) struct Unchanged {
    /// Its index in the call.
    pub(crate) index: usize,
    /// Whether SQS refused the change: the message does not exist any more, or is not in flight.
    pub(crate) is_refused: bool,
}

/// Approximate numbers of messages in the queue.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) visible: u64,
    pub(crate) in_flight: u64,
}

impl DeadLetterQueue {
    /// The region of the configuration is that of the queue if the URL has none. No call is made yet.
    pub(crate) fn new(url: &str, visibility_timeout: Duration, aws: &SdkConfig) -> Self {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
        let mut config = Builder::from(aws).timeout_config(timeouts);
        if let Some(region) = region_of(url) {
            config = config.region(Region::new(region.to_owned()));
        }
        let client = Client::from_conf(config.clone().build());
        let sender = Client::from_conf(config.retry_config(RetryConfig::disabled()).build());
        Self { client, sender, url: without_trailing_slash(url), visibility_timeout }
    }

    pub(crate) fn is_fifo(&self) -> bool {
        is_fifo(&self.url)
    }

    pub(crate) async fn counts(&self) -> Result<Counts, CallError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let call = self.client.get_queue_attributes().queue_url(&self.url).set_attribute_names(Some(names.to_vec()));
        let output = call.send().await.map_err(|error| CallError::new("GetQueueAttributes", &error))?;
        let [visible, in_flight] = names.map(|name| {
            let count = output.attributes().and_then(|attributes| attributes.get(&name));
            count.and_then(|count| count.parse().ok()).unwrap_or(0)
        });
        Ok(Counts { visible, in_flight })
    }

    /// Receives up to `most` messages, at most [`BATCH`]. Returns none if no message is visible: a long poll asks all
    /// servers of a queue, a short poll does not:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html>
    pub(crate) async fn receive(&self, most: usize) -> Result<Received, CallError> {
        let tries = Tries::new(self.visibility_timeout);
        let call = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(most).unwrap_or(i32::MAX))
            .visibility_timeout(seconds(self.visibility_timeout))
            .wait_time_seconds(1)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        let output = call.customize().interceptor(tries.clone()).send().await;
        let output = output.map_err(|error| CallError::repeated("ReceiveMessage", &error, &tries))?;
        Ok(Received {
            messages: output.messages.unwrap_or_default(),
            was_repeated: tries.any_unanswered(),
            hidden_until: tries.hidden_until(),
        })
    }

    pub(crate) async fn delete(&self, receipt_handle: &str) -> Result<(), CallError> {
        let tries = Tries::new(self.visibility_timeout);
        let call = self.client.delete_message().queue_url(&self.url).receipt_handle(receipt_handle);
        let output = call.customize().interceptor(tries.clone()).send().await;
        output.map(drop).map_err(|error| CallError::repeated("DeleteMessage", &error, &tries))
    }

    /// Makes up to [`BATCH`] messages visible after this time. Returns those for which it failed.
    pub(crate) async fn change_visibility(
        &self,
        receipt_handles: &[&str],
        after: Duration,
    ) -> Result<Vec<Unchanged>, CallError> {
        let entries = receipt_handles.iter().enumerate().map(|(index, handle)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(index.to_string());
            entry.receipt_handle(*handle).visibility_timeout(seconds(after)).build()
        });
        let entries = entries.collect::<Result<_, _>>().expect("each entry has an id and a receipt handle");
        let call = self.client.change_message_visibility_batch().queue_url(&self.url).set_entries(Some(entries));
        let output = call.send().await.map_err(|error| CallError::new("ChangeMessageVisibilityBatch", &error))?;
        let unchanged = output.failed().iter().filter_map(|failed| {
            let index = failed.id().parse().ok()?;
            Some(Unchanged { index, is_refused: failed.sender_fault() })
        });
        Ok(unchanged.collect())
    }

    /// The queue with this ARN.
    pub(crate) async fn with_arn(&self, arn: &str) -> Result<Destination, LookupError> {
        let parts: Vec<_> = arn.split(':').collect();
        let (region, account, name) = match parts[..] {
            ["arn", _, "sqs", region, account, name] if is_region(region) => (region, account, name),
            _ => return Err(LookupError { reason: format!("{arn:?} is not the ARN of a queue"), is_lasting: true }),
        };
        // In another region, a queue of the same account and name is another queue.
        let client = in_region(&self.client, region);
        let call = client.get_queue_url().queue_name(name).queue_owner_aws_account_id(account);
        let output = call.send().await.map_err(|error| LookupError::new(&error))?;
        let url = output.queue_url.ok_or_else(|| {
            let reason = format!("SQS returned no URL for {arn}");
            LookupError { reason, is_lasting: false }
        })?;
        Ok(Destination { url, sender: in_region(&self.sender, region) })
    }

    /// The queue at this URL. It is in the region of the dead-letter queue if the URL has none, as that of a simulator.
    pub(crate) fn at_url(&self, url: &str) -> Destination {
        let sender = region_of(url).map_or_else(|| self.sender.clone(), |region| in_region(&self.sender, region));
        Destination { url: without_trailing_slash(url), sender }
    }

    /// Whether the destination is this queue: its region, account and name are the same. The hosts of a queue's URLs
    /// differ between protocols and endpoints.
    pub(crate) fn is(&self, destination: &Destination) -> bool {
        let account_and_name = |url: &str| url.rsplitn(3, '/').take(2).map(str::to_owned).collect::<Vec<_>>();
        destination.sender.config().region() == self.sender.config().region()
            && account_and_name(&destination.url) == account_and_name(&self.url)
    }
}

impl Destination {
    /// Sends a message. Returns its messageId.
    ///
    /// It is tried once. If the reply is lost, another attempt could send it twice to a standard queue.
    pub(crate) async fn send(&self, message: SendMessageInputBuilder) -> Result<String, CallError> {
        let output = message.send_with(&self.sender).await.map_err(|error| CallError::new("SendMessage", &error))?;
        Ok(output.message_id.unwrap_or_default())
    }

    pub(crate) fn is_fifo(&self) -> bool {
        is_fifo(&self.url)
    }
}

/// The client with calls to this region.
fn in_region(client: &Client, region: &str) -> Client {
    let config = client.config();
    if config.region().is_some_and(|own| own.as_ref() == region) {
        return client.clone();
    }
    Client::from_conf(config.to_builder().region(Region::new(region.to_owned())).build())
}

/// Whether this can be the region of an ARN. It becomes a part of the host that is called.
fn is_region(region: &str) -> bool {
    !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The URL without a slash at its end, so that it ends with the name of the queue.
fn without_trailing_slash(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

/// Whether the queue with this URL or ARN is a FIFO queue. Only names of FIFO queues end in this way:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>
pub(super) fn is_fifo(name: &str) -> bool {
    name.strip_suffix(".fifo").is_some()
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use aws_config::BehaviorVersion;

    use super::*;

    /// A queue that cannot be called: there are no credentials.
    pub(crate) fn without_credentials() -> DeadLetterQueue {
        let config = Builder::new().behavior_version(BehaviorVersion::latest()).region(Region::new("eu-central-1"));
        let client = Client::from_conf(config.build());
        let url = "https://sqs.eu-central-1.amazonaws.com/123456789012/dead".to_owned();
        DeadLetterQueue { sender: client.clone(), client, url, visibility_timeout: Duration::from_mins(5) }
    }
}
