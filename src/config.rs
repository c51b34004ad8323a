//! Loads settings from the environment and reports every error together. docs/configuration.md lists the settings.
//!
//! - `environment`: reads settings and collects their errors
//! - `s3`: payloads and results in S3
//! - `redis`: the connection to Redis
//! - `webhook`: the webhook

mod environment;
mod redis;
mod s3;
#[cfg(feature = "webhook")]
mod webhook;

use std::fs;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::aws::AwsConfig;
use crate::idempotency::{Idempotency, Policy, Recovery, Store, Work};
use crate::lambda::Handler;
use crate::metrics::{Metrics, MetricsSettings};
use crate::sqs::{Batch, BatchSettings, DeadLetterQueue, Envelopes, FingerprintSource, KeySource, Message, Visibility};
use crate::stores::{RedisSettings, RedisStore};

pub use environment::{ConfigError, Environment};
pub use redis::SECRET_ARN_EXAMPLE;

/// Settings of a function, without those of its work.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The connection to Redis.
    pub redis: RedisSettings,
    /// How records are kept and attempts are counted.
    pub policy: Policy,
    /// How a batch is run.
    pub batch: BatchSettings,
    /// Whether the visibility timeout of failed messages is changed.
    pub visibility_backoff: bool,
    /// Namespace and dimension of the metrics. `None` prints no metrics.
    pub metrics: Option<MetricsSettings>,
    /// Private, because the clients in other fields have it too.
    aws: AwsConfig,
}

impl Config {
    /// The settings in the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors.
    pub fn from_env() -> Result<Self, ConfigError> {
        let mut environment = Environment::from_process();
        let config = Self::read(&mut environment);
        environment.finish(config)
    }

    /// Reads the settings. Returns `None` if a required one is missing or invalid. Errors are collected in
    /// `environment`. All clients of AWS share the default [`AwsConfig`].
    pub fn read(environment: &mut Environment) -> Option<Self> {
        Self::read_with(environment, AwsConfig::default())
    }

    /// As [`read`](Self::read), with the AWS SDK configuration that all clients share.
    pub fn read_with(environment: &mut Environment, aws: AwsConfig) -> Option<Self> {
        let redis = redis::read(environment, &aws);
        let policy = policy(environment, &aws);
        let batch = batch(environment, &aws);
        let visibility_backoff = environment.flag("VISIBILITY_BACKOFF", true);
        let metrics = metrics(environment);
        certificates(environment);
        Some(Self { redis: redis?, policy, batch, visibility_backoff, metrics, aws })
    }

    /// The AWS SDK configuration that all clients share.
    #[must_use]
    pub fn aws(&self) -> &AwsConfig {
        &self.aws
    }

    /// Creates the handler of a function with this work. No connection is opened yet.
    ///
    /// # Errors
    /// [`ConfigError`] if the Redis client rejects the settings.
    pub fn handler<W: Work<Message>>(self, work: W) -> Result<Handler<RedisStore, W>, ConfigError> {
        let redis = self.store()?;
        Ok(self.handler_with_store(redis.clone(), &redis, work))
    }

    /// Creates the store of these settings. No connection is opened yet.
    ///
    /// # Errors
    /// [`ConfigError`] if the Redis client rejects the settings.
    pub fn store(&self) -> Result<RedisStore, ConfigError> {
        RedisStore::new(&self.redis).map_err(|error| ConfigError::new(format!("REDIS_URL is invalid ({error})")))
    }

    /// As [`handler`](Self::handler), with a store that wraps `redis`. The metrics include the configuration warnings
    /// of `redis`.
    pub fn handler_with_store<S: Store, W: Work<Message>>(
        self,
        store: S,
        redis: &RedisStore,
        work: W,
    ) -> Handler<S, W> {
        if self.policy.retention < MAX_SQS_RETENTION {
            tracing::warn!(
                retention_s = self.policy.retention.as_secs(),
                "records may expire before their messages: SQS can keep a message for 14 days, and a message that \
                 outlives its record runs again; set IDEMPOTENCY_RETENTION_SECONDS to at least the queue's \
                 MessageRetentionPeriod"
            );
        }
        let batch = Batch::new(Idempotency::new(store, self.policy), work, self.batch);
        let handler = Handler::new(batch, self.visibility_backoff.then(|| Visibility::new(self.aws)));
        let redis = redis.clone();
        match self.metrics {
            Some(settings) => handler.with_metrics(Metrics::new(settings, move || redis.findings())),
            None => handler,
        }
    }
}

/// Number of invocations that may share this process: more than one on Lambda Managed Instances. Reads
/// `AWS_LAMBDA_MAX_CONCURRENCY`, which Lambda sets. An invalid value counts as 1, as in the Lambda runtime.
#[must_use]
pub fn concurrent_invocations(environment: &Environment) -> NonZeroUsize {
    let value = environment.get("AWS_LAMBDA_MAX_CONCURRENCY");
    value.and_then(|number| number.parse().ok()).unwrap_or(NonZeroUsize::MIN)
}

fn policy(environment: &mut Environment, aws: &AwsConfig) -> Policy {
    let default = Policy::default();
    let lease_grace = environment.milliseconds("LEASE_GRACE_MS", 0, default.lease_grace);
    let recoveries = [("rerun", Recovery::Rerun), ("park", Recovery::Park)];
    Policy {
        retention: environment.seconds("IDEMPOTENCY_RETENTION_SECONDS", default.retention),
        max_attempts: environment.number("IDEMPOTENCY_MAX_ATTEMPTS", 1..=u8::MAX, default.max_attempts),
        recovery: environment.choice("IDEMPOTENCY_RECOVERY", &recoveries, default.recovery),
        result_max_bytes: environment.number(
            "IDEMPOTENCY_RESULT_MAX_BYTES",
            0..=MAX_INLINE_RESULT,
            default.result_max_bytes,
        ),
        results: s3::results(environment, aws),
        lease_grace,
        longest_lease: MAX_INVOCATION + lease_grace,
        // A redrive or a new send has another messageId.
        failed_retention: default.failed_retention,
    }
}

/// Reads where keys are found, as [`Config::read`] does: `IDEMPOTENCY_KEY` and `IDEMPOTENCY_ENVELOPE`. Errors are
/// collected in `environment`.
pub fn key_settings(environment: &mut Environment) -> (Vec<KeySource>, Envelopes) {
    let BatchSettings { keys: default, envelopes, .. } = BatchSettings::default();
    let choices = [("auto", Envelopes::Auto), ("none", Envelopes::None)];
    (keys(environment, default), environment.choice("IDEMPOTENCY_ENVELOPE", &choices, envelopes))
}

fn batch(environment: &mut Environment, aws: &AwsConfig) -> BatchSettings {
    let default = BatchSettings::default();
    let (keys, envelopes) = key_settings(environment);
    if keys.iter().rev().skip(1).any(|source| *source == KeySource::MessageId) {
        environment.error(
            "IDEMPOTENCY_KEY has sources after messageId, which every message has, so they are never used: put \
             messageId last",
        );
    }
    if envelopes == Envelopes::None && environment.get("PAYLOAD_BUCKETS").is_some() {
        environment.error(
            "PAYLOAD_BUCKETS is set, and with IDEMPOTENCY_ENVELOPE=none the work would get pointers instead of their \
             payloads: remove one of them",
        );
    }
    BatchSettings {
        concurrency: environment.number("BATCH_CONCURRENCY", NonZeroUsize::MIN..=MAX_BATCH, default.concurrency),
        keys,
        fingerprint: fingerprint(environment, default.fingerprint),
        envelopes,
        extended_client: s3::extended_client(environment, aws),
        dead_letter_queue: dead_letter_queue(environment, aws),
    }
}

fn dead_letter_queue(environment: &mut Environment, aws: &AwsConfig) -> Option<DeadLetterQueue> {
    let url = environment.get("DEAD_LETTER_QUEUE_URL")?;
    if !is_queue_url(&url) {
        environment.error(
            "DEAD_LETTER_QUEUE_URL is invalid: set it to the URL of an SQS queue, such as \
             https://sqs.eu-central-1.amazonaws.com/123456789012/payments-dead-letters",
        );
        return None;
    }
    let (function, version) =
        (environment.get("AWS_LAMBDA_FUNCTION_NAME"), environment.get("AWS_LAMBDA_FUNCTION_VERSION"));
    Some(DeadLetterQueue::new(url, aws.clone()).with_function(function, version))
}

/// Whether this is the URL of a queue: an address, an account and a name. The account and the name tell whether the
/// queue is that of a message.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html>
fn is_queue_url(url: &str) -> bool {
    let address = ["https://", "http://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
    let mut parts = address.unwrap_or_default().rsplitn(3, '/');
    let [name, account, host] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let without_suffix = name.strip_suffix(".fifo").unwrap_or(name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let has_name = !without_suffix.is_empty() && name.len() <= 80 && without_suffix.chars().all(is_name);
    has_name && account.len() == 12 && account.chars().all(|c| c.is_ascii_digit()) && !host.is_empty()
}

fn keys(environment: &mut Environment, default: Vec<KeySource>) -> Vec<KeySource> {
    let Some(list) = environment.get("IDEMPOTENCY_KEY") else { return default };
    let mut sources = Vec::new();
    for source in list.split(',') {
        match source.parse() {
            Ok(source) => sources.push(source),
            Err(error) => environment.error(&format!("IDEMPOTENCY_KEY: {error}; separate several with commas")),
        }
    }
    sources
}

fn fingerprint(environment: &mut Environment, default: FingerprintSource) -> FingerprintSource {
    let Some(source) = environment.get("IDEMPOTENCY_FINGERPRINT") else { return default };
    source.parse().unwrap_or_else(|error| {
        environment.error(&format!("IDEMPOTENCY_FINGERPRINT: {error}"));
        default
    })
}

/// Checks the file of certificates, which the TLS library reads itself. Clients fail if it cannot be read, some of them
/// also if `SSL_CERT_DIR` has certificates.
fn certificates(environment: &mut Environment) {
    // That library reads the value as it is.
    let Some(path) = environment.value("SSL_CERT_FILE").filter(|path| !path.is_empty()) else { return };
    let why = match fs::read(path) {
        Ok(file) if file.windows(CERTIFICATE.len()).any(|text| text == CERTIFICATE) => return,
        // The directory may have the certificates.
        Ok(_) if environment.get("SSL_CERT_DIR").is_some() => return,
        Ok(_) => "has no certificate".to_owned(),
        Err(error) => format!("cannot be read ({error})"),
    };
    environment.error(&format!("SSL_CERT_FILE {why}: set it to a file of PEM certificates, or remove it"));
}

/// How a certificate begins in PEM: <https://www.rfc-editor.org/rfc/rfc7468#section-5>.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn metrics(environment: &mut Environment) -> Option<MetricsSettings> {
    let (namespace, consumer) = (environment.get("METRICS_NAMESPACE")?, redis::namespace(environment));
    let has_consumer = consumer.is_some();
    let settings = MetricsSettings::new(namespace, consumer.unwrap_or_default());
    if !settings.has_valid_namespace() {
        environment.error(
            "METRICS_NAMESPACE is invalid: set it to a name of up to 255 letters, digits and . - _ / # : or spaces, \
             which starts neither with AWS/ nor with a colon",
        );
    }
    if has_consumer && !settings.has_valid_consumer() {
        environment.error(
            "IDEMPOTENCY_NAMESPACE is invalid as a dimension of metrics: set it to up to 1024 ASCII characters that do \
             not start with a colon, or leave METRICS_NAMESPACE empty",
        );
    }
    Some(settings)
}

/// The longest invocation of Lambda, without the longer ones of Managed Instances:
/// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html>
const MAX_INVOCATION: Duration = Duration::from_secs(900);

/// The longest `MessageRetentionPeriod` of a queue:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
pub const MAX_SQS_RETENTION: Duration = Duration::from_secs(1_209_600);

/// The largest batch of SQS.
const MAX_BATCH: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// The largest message of SQS, bytes. Larger results belong in S3.
const MAX_INLINE_RESULT: usize = 1_048_576;
