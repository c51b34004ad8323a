//! Where Redis is, and how to sign in to it.

use std::time::Duration;

use super::reader::{Reader, SECRET_ARN, TRUE_OR_FALSE};
use crate::stores::{IamSettings, RedisCredentials, RedisSettings, RedisUrl};

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    pub(super) fn redis(&mut self) -> Option<RedisSettings> {
        let url = self.required("REDIS_URL", REDIS_URL);
        let namespace = self.namespace();
        if namespace.is_none() {
            self.fault(
                "IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments",
            );
        }
        // `a:b` with the key `c` would share its records with `a` and the key `b:c`.
        if namespace.as_ref().is_some_and(|namespace| namespace.contains(':')) {
            self.fault("IDEMPOTENCY_NAMESPACE has a colon, which ends it in a Redis key: set it to a name without one");
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
}

const REDIS_URL: &str = "redis://HOST:6379, or rediss://HOST:6379 for TLS";

const IAM_USER: &str = "the id of an ElastiCache user for IAM, which is its name too";

const IAM_CACHE: &str = "the id of the replication group, or the name of the serverless cache, and not its address";
