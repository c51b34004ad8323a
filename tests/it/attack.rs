//! An outside reader's tests of what the documentation promises. Each fails now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use harness::event::{Record, event};
use harness::http::Webhook as Receiver;
use harness::redis::Redis;
use harness::sqs::SqsApi;
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::aws::AwsConfig;
use idempotent_sqs::config::{Config, Environment};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Claim, Failure, Settled, Store, StoreError, StoredResult};
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Disposition, Message};
use idempotent_sqs::webhook::{Webhook, WebhookSettings};
use idempotent_sqs::{Deadline, Idempotency, Key, MemoryStore, Policy};
use idempotent_sqs_testing::{Queue, QueueSettings};
use lambda_runtime::Context;
use tokio::time::{Instant, sleep};

/// A configuration with which the SDK calls the server at this address.
fn aws(endpoint: &str) -> AwsConfig {
    let credentials = Credentials::new("local", "local", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials));
    config.build().into()
}

fn config(settings: &[(&str, &str)]) -> Config {
    let settings: HashMap<_, _> = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut environment = Environment::new(move |name| settings.get(name).cloned());
    let config = Config::read(&mut environment);
    environment.finish(config).unwrap()
}

fn context() -> Context {
    with!(Context::default(), deadline = 30_000)
}

/// `Config::aws`: "The AWS SDK configuration that all clients share."
#[tokio::test]
async fn the_aws_configuration_of_the_settings_is_that_of_the_dead_letter_queue_too() {
    let redis = Redis::start().await;
    let named = |name: &str| Queue::new(QueueSettings { name: name.into(), ..QueueSettings::default() }, 1);
    let (payments, dead) = (named("payments"), named("payments-dead"));
    let sqs = SqsApi::start(&[&payments, &dead]).await;
    let (redis_url, dead_url) = (redis.url(), sqs.queue_url(&dead));
    let mut config = config(&[
        ("REDIS_URL", &redis_url),
        ("IDEMPOTENCY_NAMESPACE", "payments"),
        ("IDEMPOTENCY_KEY", "attribute:Payment-Id"),
        ("DEAD_LETTER_QUEUE_URL", &dead_url),
    ]);
    config.aws = aws(&sqs.endpoint());
    let handler = config.handler(Arc::new(ScriptedWork::always(Action::Return(b"")))).unwrap();
    let response = handler.handle(&event([Record::new("m1")]), &context()).await.unwrap();
    assert_eq!(sqs.calls("SendMessage").len(), 1, "{response:?}");
}

/// `Config::policy` is public, and the settings allow a grace of 15 minutes with the same longest lease.
#[tokio::test]
async fn messages_run_with_a_longer_grace_than_the_longest_invocation() {
    let redis = Redis::start().await;
    let redis_url = redis.url();
    let mut config = config(&[
        ("REDIS_URL", &redis_url),
        ("IDEMPOTENCY_NAMESPACE", "payments"),
        ("VISIBILITY_BACKOFF", "false"),
    ]);
    config.policy.lease_grace = Duration::from_mins(20);
    let work = Arc::new(ScriptedWork::always(Action::Return(b"")));
    let handler = config.handler(Arc::clone(&work)).unwrap();
    let response = handler.handle(&event([Record::new("m1")]), &context()).await.unwrap();
    assert_eq!((work.runs().len(), response.batch_item_failures), (1, Vec::new()));
}

#[tokio::test]
async fn a_webhook_may_have_any_timeout() {
    let receiver = Receiver::start().await;
    let settings = with!(WebhookSettings::new(receiver.url().parse().unwrap()), timeout = Duration::MAX);
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let batch = Batch::new(idempotency, Webhook::new(settings), BatchSettings::default());
    let reports = batch.run(&[Message::new("m1", "{}")], Deadline::within(Duration::from_secs(30))).await.unwrap();
    assert_eq!((receiver.calls().len(), &*reports[0].reason), (1, "done"));
}

/// The same queue and the same SQS, with the configuration passed to each client: only `Config::aws` is at fault above.
#[tokio::test]
async fn control_a_dead_letter_queue_with_its_own_aws_configuration_gets_the_letter() {
    let redis = Redis::start().await;
    let named = |name: &str| Queue::new(QueueSettings { name: name.into(), ..QueueSettings::default() }, 1);
    let (payments, dead) = (named("payments"), named("payments-dead"));
    let sqs = SqsApi::start(&[&payments, &dead]).await;
    let (redis_url, dead_url) = (redis.url(), sqs.queue_url(&dead));
    let mut config = config(&[
        ("REDIS_URL", &redis_url),
        ("IDEMPOTENCY_NAMESPACE", "payments"),
        ("IDEMPOTENCY_KEY", "attribute:Payment-Id"),
    ]);
    config.aws = aws(&sqs.endpoint());
    config.batch.dead_letter_queue = Some(DeadLetterQueue::new(dead_url, aws(&sqs.endpoint())));
    let handler = config.handler(Arc::new(ScriptedWork::always(Action::Return(b"")))).unwrap();
    let response = handler.handle(&event([Record::new("m1")]), &context()).await.unwrap();
    assert_eq!(sqs.calls("SendMessage").len(), 1, "{response:?}");
}

/// A cluster of which one shard hangs: its calls get no reply, as in row 25e of docs/faults.md. Those for other shards are
/// answered at once.
struct HungShard {
    records: MemoryStore,
    /// When its replica is promoted.
    until: Instant,
}

impl HungShard {
    fn until(until: Instant) -> Self {
        Self { records: MemoryStore::default(), until }
    }

    async fn reply(&self, key: &Key) -> Result<(), StoreError> {
        if key.as_str().starts_with("hung") && Instant::now() < self.until {
            // Two tries, each with the default timeout.
            sleep(Duration::from_secs(1)).await;
            return Err(StoreError::unavailable("no reply from Redis within the timeout"));
        }
        Ok(())
    }
}

impl Store for HungShard {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.reply(&request.key).await?;
        self.records.acquire(request).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.reply(claim.key()).await?;
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.reply(&request.key).await?;
        self.records.release(request, claim).await
    }
}

/// The number of messages that are done of 66 whose shard responds and of 34 whose shard hangs until then, and how long the
/// invocation of 300 seconds took.
async fn done_while_a_shard_hangs(hangs: Duration) -> (usize, usize, Duration) {
    let work = ScriptedWork::always(Action::Return(b""));
    let began = Instant::now();
    let idempotency = Idempotency::new(HungShard::until(began + hangs), Policy::default());
    let batch = Batch::new(idempotency, &work, BatchSettings::default());
    let shard = |number: usize| if number % 3 == 0 { "hung" } else { "well" };
    let messages: Vec<_> = (0..100)
        .map(|number| {
            let mut message = Message::new(format!("m{number}"), "{}");
            message.attributes.insert("Idempotency-Key".into(), format!("{}-{number}", shard(number)).into());
            message
        })
        .collect();
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(300))).await.unwrap();
    let done = |of: &str| {
        let reports = reports.iter().enumerate().filter(|(number, _)| shard(*number) == of);
        reports.filter(|(_, report)| report.disposition == Disposition::Done).count()
    };
    (done("well"), done("hung"), began.elapsed())
}

/// docs/faults.md, row 25e: "cluster: a primary is killed, hangs, or its host ends: calls for its slots fail until its
/// replica is promoted, and continue there; those for other shards go on."
#[tokio::test(start_paused = true)]
async fn while_a_shard_hangs_the_messages_of_other_shards_are_processed() {
    let (well, hung, took) = done_while_a_shard_hangs(Duration::from_secs(3600)).await;
    assert_eq!(well, 66, "{hung} of the shard that hangs; the invocation took {took:?}");
}

/// The same of a failover of 30 seconds, in an invocation of 300.
#[tokio::test(start_paused = true)]
async fn after_a_failover_of_a_shard_the_rest_of_the_batch_is_processed() {
    let (well, hung, took) = done_while_a_shard_hangs(Duration::from_secs(30)).await;
    assert_eq!(well, 66, "{hung} of the shard that hung; the invocation took {took:?}");
}
