//! The configuration of the AWS SDK that a program passes (`aws`).

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use harness::sqs::SqsApi;
use idempotent_sqs::aws::AwsConfig;
use idempotent_sqs::sqs::{Message, Visibility};
use idempotent_sqs_testing::{Queue, QueueSettings};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test]
async fn calls_of_sqs_use_the_configuration_that_the_program_loaded() {
    let queue = Queue::new(QueueSettings { name: "payments".into(), ..QueueSettings::default() }, 1);
    let sqs = SqsApi::start(&[&queue]).await;
    queue.send("a payment").unwrap();
    let received = queue.receive(1).remove(0);

    let credentials = Credentials::new("local", "local", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(sqs.endpoint())
        .credentials_provider(SharedCredentialsProvider::new(credentials));
    let mut message = Message::new(received.message_id, "a payment");
    (message.receipt_handle, message.queue_arn) = (Some(received.receipt_handle.clone()), Some(queue.arn()));
    let visibility = Visibility::new(AwsConfig::from(config.build()));
    let until = Instant::now() + Duration::from_secs(60);
    visibility.change(&[(&message, Duration::from_secs(7))], until).await;

    let [call] = sqs.calls("ChangeMessageVisibilityBatch").try_into().unwrap();
    let entry = json!({ "Id": "0", "ReceiptHandle": received.receipt_handle, "VisibilityTimeout": 7 });
    assert_eq!(call["Entries"], json!([entry]));
}
