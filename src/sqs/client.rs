//! The SQS client, and the URLs of queues.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{Builder, Region};

use super::message::Message;
use crate::aws::{AwsConfig, dns_suffix};
use crate::connections::Connections;

/// The SQS client. Each new one opens its own connections, unless the program's configuration of the SDK has an HTTP
/// client.
#[derive(Debug)]
pub(super) struct SqsClient {
    aws: AwsConfig,
    connections: Connections<Client>,
}

impl SqsClient {
    /// Creates no client and opens no connection yet.
    pub(super) fn new(aws: AwsConfig) -> Self {
        Self { aws, connections: Connections::default() }
    }

    /// The client, in the region of `queue`. An event source mapping and its queue are in the same region, and so are a
    /// queue and its dead-letter queue.
    pub(super) async fn get(&self, queue: Option<QueueArn<'_>>) -> Client {
        let config = self.aws.load().await;
        // A letter is sent once, so its connection must be one that works.
        self.connections.unless_old(|| {
            let config = Builder::from(config);
            Client::from_conf(match queue {
                Some(queue) => config.region(Region::new(queue.region.to_owned())).build(),
                None => config.build(),
            })
        })
    }
}

/// The parts of a queue's ARN: `arn:aws:sqs:eu-central-1:123456789012:payments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueArn<'a> {
    region: &'a str,
    account: &'a str,
    name: &'a str,
}

impl<'a> QueueArn<'a> {
    /// The queue of this message.
    pub(super) fn of(message: &'a Message) -> Option<Self> {
        let mut parts = message.queue_arn.as_deref()?.splitn(6, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        match (next()?, next()?, next()?, next()?, next()?, next()?) {
            ("arn", _, "sqs", region, account, name) => Some(Self { region, account, name }),
            _ => None,
        }
    }

    /// The URL of the queue, which requests to SQS need.
    pub(super) fn url(&self) -> String {
        let Self { region, account, name } = self;
        format!("https://sqs.{region}.{}/{account}/{name}", dns_suffix(region))
    }

    /// Whether this URL is that of the queue. Endpoints differ, so only the account and the name are compared.
    pub(super) fn has_url(&self, url: &str) -> bool {
        url.ends_with(&format!("/{}/{}", self.account, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_queue<T>(arn: &str, read: impl FnOnce(Option<QueueArn<'_>>) -> T) -> T {
        let message = Message { queue_arn: Some(arn.into()), ..Message::default() };
        read(QueueArn::of(&message))
    }

    #[test]
    fn the_url_of_a_queue_is_built_from_its_arn() {
        let url = |arn: &str| with_queue(arn, |queue| queue.map(|queue| queue.url()));
        assert_eq!(
            url("arn:aws:sqs:eu-central-1:123456789012:payments.fifo").as_deref(),
            Some("https://sqs.eu-central-1.amazonaws.com/123456789012/payments.fifo")
        );
        assert_eq!(
            url("arn:aws-cn:sqs:cn-north-1:123456789012:payments").as_deref(),
            Some("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/payments")
        );
        assert_eq!(
            url("arn:aws-eusc:sqs:eusc-de-east-1:123456789012:payments").as_deref(),
            Some("https://sqs.eusc-de-east-1.amazonaws.eu/123456789012/payments")
        );
        assert_eq!(url("arn:aws:kinesis:eu-central-1:123456789012:stream/payments"), None);
        assert_eq!(url("payments"), None);
    }

    #[test]
    fn a_queue_is_recognized_by_the_account_and_the_name_in_its_url() {
        with_queue("arn:aws:sqs:eu-central-1:123456789012:payments", |queue| {
            let queue = queue.unwrap();
            assert!(queue.has_url("https://sqs.eu-central-1.amazonaws.com/123456789012/payments"));
            assert!(queue.has_url("http://localhost:4566/123456789012/payments"));
            assert!(!queue.has_url("https://sqs.eu-central-1.amazonaws.com/123456789012/payments-dead"));
            assert!(!queue.has_url("https://sqs.eu-central-1.amazonaws.com/210987654321/payments"));
        });
    }
}
