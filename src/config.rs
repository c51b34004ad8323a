//! The environment to each module's settings, with all its faults at once.

#[cfg(feature = "postgres")]
mod inbox;
#[cfg(feature = "postgres")]
mod relay;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, BatchSettings};
use crate::handler::Handler;
use crate::idempotency::{Idempotency, Policy, Recovery};
use crate::message::{Envelopes, FingerprintSource, KeySource};
use crate::metrics::{Metrics, MetricsSettings};
use crate::object::Objects;
#[cfg(feature = "s3")]
use crate::objects::{S3, S3Settings};
use crate::offload::Offload;
use crate::results::{LARGEST, Results};
use crate::store::Store;
use crate::stores::{IamSettings, RedisCredentials, RedisSettings, RedisStore, RedisUrl};
use crate::visibility::Visibility;
use crate::work::Work;
use crate::works::{Url, WebhookSettings};

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

/// Reads settings one by one and collects their faults.
struct Reader<L> {
    lookup: L,
    faults: Vec<String>,
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    fn config(&mut self) -> Option<Config> {
        let policy = Policy::default();
        let batch = BatchSettings::default();
        let redis = self.redis();
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
            lease_grace: self.milliseconds("LEASE_GRACE_MS", 0, policy.lease_grace),
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

    fn redis(&mut self) -> Option<RedisSettings> {
        let url = self.required("REDIS_URL", REDIS_URL);
        let namespace = self.namespace();
        if namespace.is_none() {
            self.fault(
                "IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments",
            );
        }
        let cluster = self.choice("REDIS_CLUSTER", TRUE_OR_FALSE, false);
        // A connection within a region takes a few; a reply as well. Beyond it something is wrong.
        let timeout = self.milliseconds("REDIS_TIMEOUT_MS", 1, Duration::from_millis(500));
        let credentials = self.credentials();
        match url?.parse::<RedisUrl>() {
            Ok(url) => {
                if let Err(fault) = credentials.go_with(&url) {
                    self.fault(&fault);
                }
                Some(RedisSettings { url, cluster, timeout, namespace: namespace?, credentials })
            }
            Err(fault) => {
                self.fault(&format!("REDIS_URL is not usable ({fault}): set it to {REDIS_URL}"));
                None
            }
        }
    }

    fn credentials(&mut self) -> RedisCredentials {
        let iam = self.iam();
        match (iam, self.parsed("REDIS_SECRET_ARN", SECRET_ARN)) {
            (Some(_), Some(_)) => {
                self.fault("REDIS_SECRET_ARN and REDIS_IAM_USER are two ways to sign in: take one of them out");
                RedisCredentials::Url
            }
            (Some(iam), None) => RedisCredentials::Iam(iam),
            (None, Some(arn)) => RedisCredentials::Secret(arn),
            (None, None) => RedisCredentials::Url,
        }
    }

    fn iam(&mut self) -> Option<IamSettings> {
        let serverless = self.choice("REDIS_IAM_SERVERLESS", TRUE_OR_FALSE, false);
        let longest = IamSettings::LONGEST_SESSION.as_secs();
        let session = self.within("REDIS_IAM_SESSION_SECONDS", 1..=longest, IamSettings::SESSION.as_secs());
        if self.get("REDIS_IAM_USER").or_else(|| self.get("REDIS_IAM_CACHE")).is_some() {
            self.required("REDIS_IAM_USER", IAM_USER);
            self.required("REDIS_IAM_CACHE", IAM_CACHE);
        }
        let user = self.parsed("REDIS_IAM_USER", IAM_USER);
        let cache = self.parsed("REDIS_IAM_CACHE", IAM_CACHE);
        Some(IamSettings { user: user?, cache: cache?, serverless, session: Duration::from_secs(session) })
    }

    fn offload(&mut self, default: Offload) -> Offload {
        let max_bytes = self.within("PAYLOAD_MAX_BYTES", 1..=MAX_OBJECT, default.max_bytes);
        let Some(names) = self.get("PAYLOAD_BUCKETS") else { return Offload { max_bytes, ..default } };
        let buckets = names.split(',').filter_map(|name| self.bucket("PAYLOAD_BUCKETS", name)).collect();
        Offload { objects: self.s3("PAYLOAD_BUCKETS"), buckets, max_bytes }
    }

    fn results(&mut self, redis: Option<&RedisSettings>) -> Option<Results> {
        let name = self.get("RESULT_BUCKET")?;
        let (bucket, objects) = (self.bucket("RESULT_BUCKET", &name), self.s3("RESULT_BUCKET"));
        let prefix = self.get("RESULT_PREFIX").unwrap_or_default();
        Some(Results { objects: objects?, bucket: bucket?, prefix: format!("{prefix}{}/", redis?.namespace) })
    }

    /// Roughly what S3 takes for a bucket's name:
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
    fn bucket(&mut self, setting: &str, name: &str) -> Option<String> {
        let name = name.trim();
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if (3..=63).contains(&name.len()) && name.chars().all(known) && !name.starts_with(['-', '.']) {
            return Some(name.to_owned());
        }
        self.fault(&format!("{setting}: {name:?} is no name of an S3 bucket, such as payments-payloads"));
        None
    }

    /// S3, for the setting of this name. Its own settings are those of the AWS SDK.
    #[cfg(feature = "s3")]
    fn s3(&mut self, _setting: &str) -> Option<Arc<dyn Objects>> {
        let region = self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION"));
        if region.is_none() {
            self.fault("AWS_REGION is missing: set it to the region of the S3 buckets");
        }
        let endpoint = self.get("AWS_ENDPOINT_URL_S3").or_else(|| self.get("AWS_ENDPOINT_URL"));
        let endpoint = endpoint.map(|url| Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https")));
        if endpoint == Some(None) {
            self.fault("AWS_ENDPOINT_URL_S3 is not usable: set it to an http:// or https:// address");
        }
        Some(Arc::new(S3::new(S3Settings { region: region?, endpoint: endpoint.flatten() })))
    }

    #[cfg(not(feature = "s3"))]
    fn s3(&mut self, setting: &str) -> Option<Arc<dyn Objects>> {
        self.fault(&format!("{setting} is set, but this function was built without the cargo feature s3"));
        None
    }

    fn webhook(&mut self) -> Option<WebhookSettings> {
        let url = self.required("TARGET_URL", "the https:// address of the webhook");
        let timeout = self.milliseconds("TARGET_TIMEOUT_MS", 1, Duration::from_secs(10));
        let inline = self.within("IDEMPOTENCY_RESULT_MAX_BYTES", 0..=MAX_RESULT, Policy::default().result_max_bytes);
        let kept = if self.get("RESULT_BUCKET").is_some() { LARGEST } else { inline };
        match Url::parse(&url?) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => {
                Some(WebhookSettings { url, timeout, answer_max_bytes: kept + 1 })
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

    /// What is set to nothing counts as not set: templates set empty defaults.
    fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.trim().is_empty())
    }

    fn required(&mut self, name: &str, example: &str) -> Option<String> {
        let value = self.get(name);
        if value.is_none() {
            self.fault(&format!("{name} is missing: set it to {example}"));
        }
        value
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, name: &str, example: &str) -> Option<T> {
        match self.get(name)?.trim().parse() {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault(&format!("{name} is not usable ({fault}): set it to {example}"));
                None
            }
        }
    }

    fn within<T>(&mut self, name: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(value) = self.get(name) else { return default };
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => number,
            Ok(_) | Err(_) => {
                let (least, most) = range.into_inner();
                self.fault(&format!("{name} is {value:?}: set it to a whole number from {least} to {most}"));
                default
            }
        }
    }

    fn seconds(&mut self, name: &str, default: Duration) -> Duration {
        Duration::from_secs(self.within(name, 1..=LONGEST_SECONDS, default.as_secs()))
    }

    fn milliseconds(&mut self, name: &str, least: u64, default: Duration) -> Duration {
        let default = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.within(name, least..=LONGEST_MS, default))
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)], default: T) -> T {
        let Some(value) = self.get(name) else { return default };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == value.trim()) {
            return *choice;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.fault(&format!("{name} is {value:?}: set it to {}", words.join(" or ")));
        default
    }

    fn fault(&mut self, fault: &str) {
        if !self.faults.iter().any(|known| known == fault) {
            self.faults.push(fault.to_owned());
        }
    }

    fn finish<T>(self, settings: Option<T>) -> Result<T, ConfigError> {
        match settings {
            Some(settings) if self.faults.is_empty() => Ok(settings),
            Some(_) | None => Err(ConfigError { faults: self.faults }),
        }
    }
}

/// The longest `MessageRetentionPeriod` that a queue can have:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
const LONGEST_IN_A_QUEUE: Duration = Duration::from_secs(1_209_600);

const REDIS_URL: &str = "redis://HOST:6379, or rediss://HOST:6379 for TLS";

const IAM_USER: &str = "the id of an ElastiCache user for IAM, which is its name too";

const IAM_CACHE: &str = "the id of the replication group, or the name of the serverless cache, and not its address";

const SECRET_ARN: &str = "arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME";

const TRUE_OR_FALSE: &[(&str, bool)] = &[("true", true), ("false", false)];

/// A function runs for 15 minutes at most, so nothing in it can wait longer.
const LONGEST_MS: u64 = 900_000;

/// No batch of SQS is larger.
const MOST_AT_ONCE: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Ten years: beyond any queue's and any auditor's memory, and far from what overflows in Redis.
const LONGEST_SECONDS: u64 = 315_360_000;

/// A function has 10 GiB of memory at most, for all that it works on.
const MAX_OBJECT: usize = 1 << 30;

/// A message's own largest size: a result beyond it belongs in a store for objects.
const MAX_RESULT: usize = 1_048_576;
