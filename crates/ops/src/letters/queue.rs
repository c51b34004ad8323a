//! The calls to SQS.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{Builder, Region};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::get_queue_url::GetQueueUrlError;
use aws_sdk_sqs::operation::send_message::builders::SendMessageInputBuilder;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use idempotent_sqs::idempotency::error_chain;
use idempotent_sqs::sqs::region_of;

use super::hidden::HiddenUntil;
use super::interrupt::LAST_CALL;
use super::tries::Tries;

/// Most messages in a receive and in a batch request:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
pub(crate) const BATCH: u8 = 10;

/// A reply takes milliseconds, and a long poll one second.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// The codes of the errors of a lookup that would fail again. Some endpoints, such as simulators, have no codes of the
/// query protocol, which the SDK prefers.
const LASTING: [&str; 4] =
    ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "AccessDenied", "AccessDeniedException"];

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

/// A queue that was not found by its ARN.
pub(crate) struct LookupError {
    pub(crate) reason: String,
    /// Whether it will not be found later either: it does not exist, or a permission is missing.
    pub(crate) is_lasting: bool,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct CallError {
    action: &'static str,
    reason: String,
    /// Whether SQS refused the call, or it was not made, so that it had no effect. Otherwise it may have taken effect.
    pub(crate) is_refused: bool,
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
    /// Loads the AWS configuration of this process. Its region is that of the queue if the URL has none. No call is
    /// made yet.
    pub(crate) async fn new(url: String, visibility_timeout: Duration) -> Self {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
        let config = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts).load().await;
        let mut config = Builder::from(&config);
        if let Some(region) = region_of(&url) {
            config = config.region(Region::new(region.to_owned()));
        }
        let client = Client::from_conf(config.clone().build());
        let sender = Client::from_conf(config.retry_config(RetryConfig::disabled()).build());
        Self { client, sender, url: without_trailing_slash(&url), visibility_timeout }
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

impl LookupError {
    fn new(error: &SdkError<GetQueueUrlError>) -> Self {
        let is_lasting = error.code().is_some_and(|code| LASTING.contains(&code));
        Self { reason: CallError::new("GetQueueUrl", error).to_string(), is_lasting }
    }
}

impl CallError {
    /// The delete of a letter that was visible again by then. With an old receipt handle, "the request will succeed, but
    /// the message might not be deleted":
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>
    pub(crate) fn not_held() -> Self {
        let reason = "its visibility timeout could not be extended, so another consumer may have received it";
        Self { action: "DeleteMessage", reason: reason.to_owned(), is_refused: false }
    }

    /// The delete of a letter that was not begun, because the command was interrupted.
    pub(crate) fn interrupted() -> Self {
        Self { action: "DeleteMessage", reason: "not called after the interrupt".to_owned(), is_refused: true }
    }

    /// A delete that was no longer awaited after an interrupt.
    pub(crate) fn not_awaited() -> Self {
        let reason = format!("no reply within {} s of the interrupt", LAST_CALL.as_secs());
        Self { action: "DeleteMessage", reason, is_refused: false }
    }

    /// The error of a call that the SDK repeats: an earlier try may have taken effect.
    fn repeated<E: ProvideErrorMetadata + Error + 'static>(
        action: &'static str,
        error: &SdkError<E>,
        tries: &Tries,
    ) -> Self {
        Self { is_refused: !tries.any_unanswered(), ..Self::new(action, error) }
    }

    fn new<E: ProvideErrorMetadata + Error + 'static>(action: &'static str, error: &SdkError<E>) -> Self {
        let reason = match (error.code(), error.message()) {
            (Some(code), message) => format!("{code}: {}", message.unwrap_or("no message")),
            (None, _) => error_chain(error),
        };
        let is_refused = match error {
            SdkError::ServiceError(error) => error.raw().status().is_client_error(),
            SdkError::ConstructionFailure(_) => true,
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) | _ => false,
        };
        Self { action, reason, is_refused }
    }
}

impl Error for CallError {}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQS {}: {}", self.action, self.reason)
    }
}
