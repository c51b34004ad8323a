//! Settings of a function with an inbox, and of the backfill, from the environment.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::aws::{AwsConfig, RdsIam, RdsIamSettings, SecretArn, SecretCredentials};
use idempotent_sqs::config::{
    Config, ConfigError, Environment, MAX_SQS_RETENTION, SECRET_ARN_EXAMPLE, concurrent_invocations,
};
use idempotent_sqs::credentials::CredentialsSource;
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::{Message, RedisStore};

use crate::backfill::{Backfill, BackfillSettings};
use crate::database::{Database, DatabaseSettings, DatabaseUrl};
use crate::inbox::{Inbox, InboxSettings, TransactionalWork};
use crate::optional_store::{OptionalStore, OutagePolicy};

/// Settings of the inbox of a function, in addition to [`Config`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InboxConfig {
    /// The database of the inbox and of the effects.
    pub database: DatabaseSettings,
    /// The namespace, the retention of rows, and their cleanup.
    pub inbox: InboxSettings,
    /// What to do while Redis is unavailable.
    pub without_redis: OutagePolicy,
}

impl InboxConfig {
    /// Reads the settings. Returns `None` if a required one is missing or invalid, or `config` is `None`. The errors
    /// are reported by [`Environment::finish`].
    pub fn read(environment: &mut Environment, config: Option<&Config>) -> Option<Self> {
        let url = environment.required("DATABASE_URL", URL_EXAMPLE);
        // Many connections may be opened concurrently, each with TLS and a password, on a fraction of one CPU.
        let timeout = environment.milliseconds("DATABASE_TIMEOUT_MS", 1, Duration::from_secs(2));
        let retention = environment.seconds("INBOX_RETENTION_SECONDS", InboxSettings::DEFAULT_RETENTION);
        let outages = [("refuse", OutagePolicy::Refuse), ("proceed", OutagePolicy::Proceed)];
        let without_redis = environment.choice("INBOX_WITHOUT_REDIS", &outages, OutagePolicy::default());
        let url = url.and_then(|url| match url.parse::<DatabaseUrl>() {
            Ok(url) => Some(url),
            Err(error) => {
                environment.error(&format!("DATABASE_URL is invalid ({error}): set it to {URL_EXAMPLE}"));
                None
            }
        });
        if let Some(Err(error)) = url.as_ref().map(DatabaseUrl::check_roots) {
            environment.error(&format!(
                "the sslrootcert of DATABASE_URL cannot be used ({error}): set it to a file of PEM certificates, or remove \
                 it"
            ));
        }
        let aws = config.map(|config| config.aws().clone()).unwrap_or_default();
        let credentials = credentials(environment, url.as_ref(), &aws);
        let Config { redis, batch, .. } = config?;
        let mut database = DatabaseSettings::new(url?);
        database.timeout = timeout;
        database.connections = batch.concurrency.saturating_mul(concurrent_invocations(environment));
        database.credentials = credentials;
        let mut inbox = InboxSettings::new(redis.namespace.clone());
        inbox.retention = retention;
        Some(Self { database, inbox, without_redis })
    }

    /// Creates the handler of a function with this work behind an inbox. No connection is opened yet.
    ///
    /// # Errors
    /// [`ConfigError`] if the Redis client rejects the settings.
    pub fn handler<W: TransactionalWork<Message>>(
        self,
        config: Config,
        work: W,
    ) -> Result<Handler<OptionalStore<RedisStore>, Inbox<W>>, ConfigError> {
        let Self { database, inbox, without_redis } = self;
        if inbox.retention < MAX_SQS_RETENTION {
            tracing::warn!(
                retention_s = inbox.retention.as_secs(),
                "rows of the inbox may expire before their messages: SQS can keep a message for 14 days, and as long \
                 again in a dead-letter queue; set INBOX_RETENTION_SECONDS to at least both together"
            );
        }
        let redis = config.store()?;
        let store = OptionalStore::new(redis.clone(), without_redis);
        Ok(config.handler_with_store(store, &redis, Inbox::new(work, Database::new(&database), inbox)))
    }
}

fn credentials(
    environment: &mut Environment,
    url: Option<&DatabaseUrl>,
    aws: &AwsConfig,
) -> Option<Arc<dyn CredentialsSource>> {
    let iam = environment.flag("DATABASE_IAM", false);
    let arn: Option<SecretArn> = environment.parsed("DATABASE_SECRET_ARN", SECRET_ARN_EXAMPLE);
    // It may be invalid, which is another error.
    let has_secret = environment.get("DATABASE_SECRET_ARN").is_some();
    if iam && has_secret {
        environment.error("DATABASE_SECRET_ARN and DATABASE_IAM are both set: remove one of them");
    }
    let url = url?;
    if iam {
        check_iam(environment, url);
        let (host, user) = (url.host()?.to_owned(), url.user()?.to_owned());
        return Some(Arc::new(RdsIam::new(RdsIamSettings::new(host, url.port(), user), aws.clone())));
    }
    if has_secret && url.has_password() {
        environment.error(
            "DATABASE_URL has a password, and the secret of DATABASE_SECRET_ARN replaces it: remove it from \
             DATABASE_URL",
        );
    }
    let advice = "PostgreSQL rejected the user and password of DATABASE_SECRET_ARN, which was read again";
    Some(Arc::new(SecretCredentials::new(arn?, None, advice, aws.clone())))
}

fn check_iam(environment: &mut Environment, url: &DatabaseUrl) {
    let checks = [
        (url.has_password(), "has a password, and the token of DATABASE_IAM replaces it: remove it"),
        (!url.uses_tls(), "does not use TLS, which RDS requires for IAM tokens: set its sslmode to verify-full"),
        (url.user().is_none(), "has no user; DATABASE_IAM requires one"),
        (!url.has_one_host(), "does not have exactly one host; DATABASE_IAM requires one"),
    ];
    for (_, error) in checks.into_iter().filter(|(fails, _)| *fails) {
        environment.error(&format!("DATABASE_URL {error}"));
    }
}

/// Settings of the backfill: those of the function and its inbox, and the rate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackfillConfig {
    /// Settings of the function.
    pub config: Config,
    /// Settings of its inbox.
    pub inbox: InboxConfig,
    /// The rate, and the retention of records.
    pub backfill: BackfillSettings,
}

impl BackfillConfig {
    /// Reads the settings from the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] with the errors of all settings.
    pub fn from_env() -> Result<Self, ConfigError> {
        let mut environment = Environment::from_process();
        let config = Self::read(&mut environment);
        environment.finish(config)
    }

    /// Reads the settings. Returns `None` if a required one is missing or invalid. The errors are reported by
    /// [`Environment::finish`].
    pub fn read(environment: &mut Environment) -> Option<Self> {
        // `Config` would use the name of this Lambda function, which is the backfill and not the consumer.
        if environment.get("IDEMPOTENCY_NAMESPACE").is_none() {
            environment.error(
                "IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments",
            );
        }
        let config = Config::read(environment);
        let inbox = InboxConfig::read(environment, config.as_ref());
        let rows = BackfillSettings::DEFAULT_ROWS_PER_SECOND;
        let rows_per_second = environment.number("BACKFILL_ROWS_PER_SECOND", NonZeroU32::MIN..=MAX_ROWS, rows);
        let config = config?;
        let mut backfill = BackfillSettings::new(config.redis.namespace.clone());
        backfill.retention = config.policy.retention;
        backfill.result_max_bytes = config.policy.result_max_bytes;
        backfill.rows_per_second = rows_per_second;
        Some(Self { config, inbox: inbox?, backfill })
    }

    /// Creates the backfill. No connection is opened yet.
    ///
    /// # Errors
    /// [`ConfigError`] if the Redis client rejects the settings.
    pub fn backfill(self) -> Result<Backfill<RedisStore>, ConfigError> {
        let store = self.config.store()?;
        Ok(Backfill::new(store, Database::new(&self.inbox.database), self.backfill))
    }
}

const URL_EXAMPLE: &str = "postgres://USER:PASSWORD@HOST:5432/DATABASE";

/// More than a Redis server can process.
const MAX_ROWS: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();
