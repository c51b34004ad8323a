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

    /// The client, in this region. Without one, it is in that of the program's configuration of the SDK.
    pub(super) async fn get(&self, region: Option<&str>) -> Client {
        let config = self.aws.load().await;
        // A letter is sent once, so its connection must be one that works.
        self.connections.unless_old(|| {
            let config = Builder::from(config);
            Client::from_conf(match region {
                Some(region) => config.region(Region::new(region.to_owned())).build(),
                None => config.build(),
            })
        })
    }
}

/// The parts of a queue's ARN: `arn:aws:sqs:eu-central-1:123456789012:payments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueArn<'a> {
    pub(super) region: &'a str,
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

    /// Whether this URL is that of the queue. Endpoints differ, so only the account, the name, and the region if the
    /// URL has one are compared.
    pub(super) fn has_url(&self, url: &str) -> bool {
        region_of(url).is_none_or(|region| region == self.region)
            && url.ends_with(&format!("/{}/{}", self.account, self.name))
    }
}

/// The region in the URL of a queue. Some endpoints have none, such as those of simulators:
/// <https://docs.aws.amazon.com/general/latest/gr/sqs-service.html>
#[must_use]
pub fn region_of(url: &str) -> Option<&str> {
    let (_scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', ':']).next()?;
    if host == "queue.amazonaws.com" {
        return Some("us-east-1");
    }
    let labels: Vec<_> = host.split('.').collect();
    // As in `us-gov-west-1`.
    let is_region = |label: &&str| {
        let (name, number) = label.rsplit_once('-').unwrap_or_default();
        let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        name.contains('-')
            && name.bytes().all(is_of_name)
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    };
    // `sqs.REGION.…`, after the label of a VPC endpoint if there is one, or `REGION.queue.…`.
    let region = labels.windows(2).find_map(|two| match *two {
        ["sqs" | "sqs-fips", region] | [region, "queue"] => Some(region),
        _ => None,
    });
    region.filter(is_region)
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
    fn an_arn_with_an_empty_part_is_not_that_of_a_queue() {
        for arn in [
            "arn::sqs:eu-central-1:123456789012:payments",
            "arn:aws:sqs::123456789012:payments",
            "arn:aws:sqs:eu-central-1::payments",
            "arn:aws:sqs:eu-central-1:123456789012:",
        ] {
            with_queue(arn, |queue| assert_eq!(queue, None, "{arn}"));
        }
    }

    #[test]
    fn a_queue_is_recognized_by_the_account_and_the_name_in_its_url() {
        with_queue("arn:aws:sqs:eu-central-1:123456789012:payments", |queue| {
            let queue = queue.unwrap();
            assert!(queue.has_url("https://sqs.eu-central-1.amazonaws.com/123456789012/payments"));
            assert!(queue.has_url("http://localhost:4566/123456789012/payments"));
            assert!(!queue.has_url("https://sqs.eu-central-1.amazonaws.com/123456789012/payments-dead"));
            assert!(!queue.has_url("https://sqs.eu-central-1.amazonaws.com/210987654321/payments"));
            assert!(!queue.has_url("https://sqs.us-east-1.amazonaws.com/123456789012/payments"));
        });
    }

    #[test]
    fn the_region_of_a_queue_is_in_each_form_of_its_url() {
        for (url, region) in [
            ("https://sqs.us-east-1.amazonaws.com/123456789012/payments", Some("us-east-1")),
            ("https://sqs-fips.us-east-1.amazonaws.com/123456789012/payments", Some("us-east-1")),
            ("https://sqs.us-east-1.api.aws/123456789012/payments", Some("us-east-1")),
            ("https://us-east-1.queue.amazonaws.com/123456789012/payments", Some("us-east-1")),
            ("https://queue.amazonaws.com/123456789012/payments", Some("us-east-1")),
            ("https://sqs.us-gov-west-1.amazonaws.com/123456789012/payments", Some("us-gov-west-1")),
            ("https://sqs.us-iso-east-1.c2s.ic.gov/123456789012/payments", Some("us-iso-east-1")),
            ("http://sqs.test-env.svc.cluster.local:9324/000000000000/payments", None),
            ("https://my-proxy.queue.example.com/123456789012/payments", None),
            ("https://sqs.US-EAST-1.amazonaws.com/123456789012/payments", None),
            ("https://vpce-1-2.sqs.cn-north-1.vpce.amazonaws.com.cn/123456789012/payments", Some("cn-north-1")),
            ("http://sqs.eu-west-1.localhost.localstack.cloud:4566/000000000000/sqs.us-east-1", Some("eu-west-1")),
            ("http://127.0.0.1:4566/000000000000/payments", None),
            ("http://localhost:4566/000000000000/payments", None),
        ] {
            assert_eq!(region_of(url), region, "{url}");
        }
    }
}
