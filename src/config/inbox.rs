//! The settings of a function whose effects are in PostgreSQL.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::reader::{Reader, SECRET_ARN, TRUE_OR_FALSE};
use super::{Config, ConfigError, LONGEST_IN_A_QUEUE, environment};
use crate::database::{CredentialsSource, Database, DatabaseSecret, DatabaseSettings, DatabaseUrl, RdsIam};
use crate::handler::Handler;
use crate::stores::{Dispensable, Outage, RedisStore};
use crate::works::{Inbox, InboxSettings, TransactionalWork};

/// What a function with an inbox has to know besides.
#[derive(Clone, Debug)]
pub struct InboxConfig {
    /// Where the inbox is, and the effects.
    pub database: DatabaseSettings,
    /// How the inbox is kept.
    pub inbox: InboxSettings,
    /// What is done while Redis is out of reach.
    pub without_redis: Outage,
}

impl Config {
    /// The function of these settings, with this work behind an inbox. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ConfigError`], where no client can be made of the settings of Redis.
    pub fn handler_with_inbox<W: TransactionalWork>(
        self,
        inbox: InboxConfig,
        work: W,
    ) -> Result<Handler<Dispensable<RedisStore>, Inbox<W>>, ConfigError> {
        let InboxConfig { database, inbox, without_redis } = inbox;
        if inbox.retention < LONGEST_IN_A_QUEUE {
            tracing::warn!(
                retention_s = inbox.retention.as_secs(),
                "rows of the inbox may end before their messages do: SQS can keep a message for 14 days, and as long \
                 again in a dead-letter queue; INBOX_RETENTION_SECONDS should be no less than both together"
            );
        }
        let redis = self.store()?;
        let store = Dispensable::new(redis.clone(), without_redis);
        Ok(self.handler_on(store, redis, Inbox::new(work, Database::new(&database), inbox)))
    }

    /// The settings in this process's environment, with those of an inbox.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_env_with_inbox() -> Result<(Self, InboxConfig), ConfigError> {
        Self::from_lookup_with_inbox(environment)
    }

    /// The settings that `lookup` knows, with those of an inbox.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_lookup_with_inbox(lookup: impl Fn(&str) -> Option<String>) -> Result<(Self, InboxConfig), ConfigError> {
        let mut reader = Reader { lookup, faults: Vec::new() };
        let config = reader.config();
        let inbox = reader.inbox(config.as_ref());
        reader.finish(config.zip(inbox))
    }
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    pub(super) fn inbox(&mut self, config: Option<&Config>) -> Option<InboxConfig> {
        let url = self.required("DATABASE_URL", DATABASE_URL);
        // Many connections may be made at once, each with TLS and a password, where little memory means a
        // fraction of a processor.
        let timeout = self.milliseconds("DATABASE_TIMEOUT_MS", 1, Duration::from_secs(2));
        let retention = self.seconds("INBOX_RETENTION_SECONDS", InboxSettings::default().retention);
        let without_redis = self.choice(
            "INBOX_WITHOUT_REDIS",
            &[("refuse", Outage::Refuse), ("proceed", Outage::Proceed)],
            Outage::default(),
        );
        let url = url.and_then(|url| match url.parse() {
            Ok(url) => Some(url),
            Err(fault) => {
                self.fault(&format!("DATABASE_URL is not usable ({fault}): set it to {DATABASE_URL}"));
                None
            }
        });
        let credentials = self.database_credentials(url.as_ref());
        let Config { redis, batch, .. } = config?;
        let connections = batch.concurrency.saturating_mul(self.invocations_at_once());
        Some(InboxConfig {
            database: DatabaseSettings { url: url?, timeout, connections, credentials },
            inbox: InboxSettings { namespace: redis.namespace.clone(), retention, ..InboxSettings::default() },
            without_redis,
        })
    }

    /// How many invocations share this process: several on Lambda Managed Instances. Lambda sets it, and its
    /// runtime takes what is not a number for one.
    fn invocations_at_once(&self) -> NonZeroUsize {
        self.get("AWS_LAMBDA_MAX_CONCURRENCY").and_then(|number| number.parse().ok()).unwrap_or(NonZeroUsize::MIN)
    }

    fn database_credentials(&mut self, url: Option<&DatabaseUrl>) -> Option<Arc<dyn CredentialsSource>> {
        let iam = self.choice("DATABASE_IAM", TRUE_OR_FALSE, false);
        let arn = self.parsed("DATABASE_SECRET_ARN", SECRET_ARN);
        if iam && arn.is_some() {
            self.fault("DATABASE_SECRET_ARN and DATABASE_IAM are two ways to sign in: take one of them out");
        }
        if let Some(url) = url {
            if iam {
                self.iam_goes_with(url);
            }
            if arn.is_some() && url.has_password() {
                self.fault(
                    "DATABASE_URL has a password, and so has the secret of DATABASE_SECRET_ARN: take it out of \
                     DATABASE_URL",
                );
            }
        }
        match (iam, arn) {
            (true, _) => Some(Arc::new(RdsIam::default())),
            (false, Some(arn)) => Some(Arc::new(DatabaseSecret::new(arn))),
            (false, None) => None,
        }
    }

    fn iam_goes_with(&mut self, url: &DatabaseUrl) {
        let faults = [
            (url.has_password(), "has a password, and the token of DATABASE_IAM takes its place: take it out"),
            (!url.uses_tls(), "is without TLS, over which RDS takes no IAM token: set its sslmode to verify-full"),
            (url.user().is_none(), "has no user, for whom the token of DATABASE_IAM is: set one"),
            (!url.has_one_host(), "has other than one host, for which the token of DATABASE_IAM is: leave one"),
        ];
        for (_, fault) in faults.into_iter().filter(|(holds, _)| *holds) {
            self.fault(&format!("DATABASE_URL {fault}"));
        }
    }
}

const DATABASE_URL: &str = "postgres://USER:PASSWORD@HOST:5432/DATABASE";
