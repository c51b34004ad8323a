//! The environment to each module's settings, with all its faults at once.

#[cfg(feature = "postgres")]
mod inbox;
mod objects;
mod reader;
mod redis;
#[cfg(feature = "postgres")]
mod relay;

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::batch::{Batch, BatchSettings};
use crate::handler::Handler;
use crate::idempotency::{Idempotency, Policy, Recovery};
use crate::message::{Envelopes, FingerprintSource, KeySource};
use crate::metrics::{Metrics, MetricsSettings};
use crate::results::LARGEST;
use crate::store::Store;
use crate::stores::{RedisSettings, RedisStore};
use crate::visibility::Visibility;
use crate::work::Work;
use crate::works::{Url, WebhookSettings};

use reader::{Reader, TRUE_OR_FALSE};

#[cfg(feature = "postgres")]
pub use inbox::InboxConfig;
#[cfg(feature = "postgres")]
pub use relay::RelayConfig;

/// Settings of a function, whatever its work.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the records are.
    pub redis: RedisSettings,
    /// How records are kept and attempts are judged.
    pub policy: Policy,
    /// How a batch is run.
    pub batch: BatchSettings,
    /// Whether the visibility of messages that come again is changed.
    pub visibility_backoff: bool,
    /// Whose metrics are printed; `None` measures nothing.
    pub metrics: Option<MetricsSettings>,
}

/// What is wrong with the environment: every fault, and how to mend it.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    faults: Vec<String>,
}

/// A `main` that returns its error shows it by this.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the settings have {} fault(s):", self.faults.len())?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
    }
}

impl Config {
    /// The function of these settings, with this work. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ConfigError`], where no client can be made of the settings of Redis.
    pub fn handler<W: Work>(self, work: W) -> Result<Handler<RedisStore, W>, ConfigError> {
        let redis = self.store()?;
        Ok(self.handler_on(redis.clone(), redis, work))
    }

    fn store(&self) -> Result<RedisStore, ConfigError> {
        RedisStore::new(&self.redis)
            .map_err(|fault| ConfigError { faults: vec![format!("REDIS_URL is not usable ({fault})")] })
    }

    /// On a store that stands before this Redis, or is it.
    fn handler_on<S: Store, W: Work>(self, store: S, redis: RedisStore, work: W) -> Handler<S, W> {
        if self.policy.retention < LONGEST_IN_A_QUEUE {
            tracing::warn!(
                retention_s = self.policy.retention.as_secs(),
                "records may end before their messages do: SQS can keep a message for 14 days, and a message that \
                 outlives its record runs again; IDEMPOTENCY_RETENTION_SECONDS should be no less than the queue's \
                 MessageRetentionPeriod"
            );
        }
        let metrics = self.metrics.map(|settings| Metrics::new(settings, move || redis.findings()));
        let batch = Batch::new(Idempotency::new(store, self.policy), work, self.batch);
        let handler = Handler::new(batch, self.visibility_backoff.then(Visibility::default));
        match metrics {
            Some(metrics) => handler.with_metrics(metrics),
            None => handler,
        }
    }

    /// The settings in this process's environment.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(environment)
    }

    /// The settings in this process's environment, with those of the webhook.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_env_with_webhook() -> Result<(Self, WebhookSettings), ConfigError> {
        Self::from_lookup_with_webhook(environment)
    }

    /// Where the records are, of the settings that `lookup` knows, and nothing else: for a tool that
    /// runs no work.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn redis_from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<RedisSettings, ConfigError> {
        let mut reader = Reader { lookup, faults: Vec::new() };
        let redis = reader.redis();
        reader.finish(redis)
    }

    /// The settings that `lookup` knows.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut reader = Reader { lookup, faults: Vec::new() };
        let config = reader.config();
        reader.finish(config)
    }

    /// The settings that `lookup` knows, with those of the webhook.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_lookup_with_webhook(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, WebhookSettings), ConfigError> {
        let mut reader = Reader { lookup, faults: Vec::new() };
        let config = reader.config();
        let webhook = reader.webhook();
        reader.finish(config.zip(webhook))
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    fn config(&mut self) -> Option<Config> {
        let policy = Policy::default();
        let batch = BatchSettings::default();
        let redis = self.redis();
        let lease_grace = self.milliseconds("LEASE_GRACE_MS", 0, policy.lease_grace);
        let policy = Policy {
            retention: self.seconds("IDEMPOTENCY_RETENTION_SECONDS", policy.retention),
            max_attempts: self.within("IDEMPOTENCY_MAX_ATTEMPTS", 1..=u8::MAX, policy.max_attempts),
            recovery: self.choice(
                "IDEMPOTENCY_RECOVERY",
                &[("rerun", Recovery::Rerun), ("park", Recovery::Park)],
                policy.recovery,
            ),
            result_max_bytes: self.within("IDEMPOTENCY_RESULT_MAX_BYTES", 0..=MAX_RESULT, policy.result_max_bytes),
            results: self.results(redis.as_ref()),
            lease_grace,
            longest_lease: LONGEST_INVOCATION + lease_grace,
        };
        let batch = BatchSettings {
            concurrency: self.within("BATCH_CONCURRENCY", NonZeroUsize::MIN..=MOST_AT_ONCE, batch.concurrency),
            keys: self.keys(batch.keys),
            fingerprint: self.fingerprint(batch.fingerprint),
            envelopes: self.choice(
                "IDEMPOTENCY_ENVELOPE",
                &[("auto", Envelopes::Auto), ("none", Envelopes::None)],
                batch.envelopes,
            ),
            offload: self.offload(batch.offload),
        };
        let visibility_backoff = self.choice("VISIBILITY_BACKOFF", TRUE_OR_FALSE, true);
        let metrics = self.metrics();
        Some(Config { redis: redis?, policy, batch, visibility_backoff, metrics })
    }

    fn namespace(&self) -> Option<String> {
        self.get("IDEMPOTENCY_NAMESPACE").or_else(|| self.get("AWS_LAMBDA_FUNCTION_NAME"))
    }

    fn metrics(&mut self) -> Option<MetricsSettings> {
        let settings = MetricsSettings { namespace: self.get("METRICS_NAMESPACE")?, consumer: self.namespace()? };
        if !settings.is_fine_namespace() {
            self.fault(
                "METRICS_NAMESPACE is not usable: set it to a name of up to 255 letters, digits and . - _ / # : or \
                 spaces, which begins neither with AWS/ nor with a colon",
            );
        }
        if !settings.is_fine_consumer() {
            self.fault(
                "IDEMPOTENCY_NAMESPACE is not usable as a dimension of metrics: set it to up to 1024 characters of \
                 ASCII that do not begin with a colon, or leave METRICS_NAMESPACE empty",
            );
        }
        Some(settings)
    }

    fn webhook(&mut self) -> Option<WebhookSettings> {
        let url = self.required("TARGET_URL", "the https:// address of the webhook");
        let timeout = self.milliseconds("TARGET_TIMEOUT_MS", 1, Duration::from_secs(10));
        let connect_timeout = self.milliseconds("TARGET_CONNECT_TIMEOUT_MS", 1, Duration::from_secs(2)).min(timeout);
        let inline = self.within("IDEMPOTENCY_RESULT_MAX_BYTES", 0..=MAX_RESULT, Policy::default().result_max_bytes);
        let kept = if self.get("RESULT_BUCKET").is_some() { LARGEST } else { inline };
        match Url::parse(&url?) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => {
                Some(WebhookSettings { url, timeout, connect_timeout, answer_max_bytes: kept + 1 })
            }
            Ok(_) | Err(_) => {
                self.fault("TARGET_URL is not usable: set it to the http:// or https:// address of the webhook");
                None
            }
        }
    }

    fn keys(&mut self, default: Vec<KeySource>) -> Vec<KeySource> {
        let Some(places) = self.get("IDEMPOTENCY_KEY") else { return default };
        let places = places.split(',').map(|place| place.trim().parse());
        match places.collect() {
            Ok(keys) => keys,
            Err(fault) => {
                self.fault(&format!("IDEMPOTENCY_KEY: {fault}, several separated by commas"));
                default
            }
        }
    }

    fn fingerprint(&mut self, default: FingerprintSource) -> FingerprintSource {
        let Some(source) = self.get("IDEMPOTENCY_FINGERPRINT") else { return default };
        source.trim().parse().unwrap_or_else(|fault| {
            self.fault(&format!("IDEMPOTENCY_FINGERPRINT: {fault}"));
            default
        })
    }
}

/// The longest that an invocation of Lambda can take:
/// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html>
const LONGEST_INVOCATION: Duration = Duration::from_secs(900);

/// The longest `MessageRetentionPeriod` that a queue can have:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
const LONGEST_IN_A_QUEUE: Duration = Duration::from_secs(1_209_600);

/// No batch of SQS is larger.
const MOST_AT_ONCE: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// A message's own largest size: a result beyond it belongs in a store for objects.
const MAX_RESULT: usize = 1_048_576;
