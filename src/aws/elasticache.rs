//! Tokens of ElastiCache IAM authentication: a presigned request in place of a password.
//! <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html>

use std::str::FromStr;
use std::time::Duration;

use super::AwsConfig;
use super::token::{Service, Signer};
use crate::credentials::{CredentialsSource, Login, LoginFuture};

const ELASTICACHE: Service = Service { name: "ElastiCache", signing_name: "elasticache" };

/// The user and the cache of ElastiCache IAM authentication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ElastiCacheIamSettings {
    /// Id of the user. With IAM authentication it equals the user's name.
    pub user: ElastiCacheName,
    /// Id of the replication group, or name of the serverless cache.
    pub cache: ElastiCacheName,
    /// Whether the cache is serverless.
    pub serverless: bool,
    /// How long a connection is used before it is replaced. A revoked permission takes effect at the next connection.
    pub session: Duration,
}

impl ElastiCacheIamSettings {
    /// This user at this cache, which is not serverless, with connections of 11 hours.
    #[must_use]
    pub fn new(user: ElastiCacheName, cache: ElastiCacheName) -> Self {
        Self { user, cache, serverless: false, session: Self::DEFAULT_SESSION }
    }

    /// Longest lifetime of a connection. ElastiCache closes it after this time.
    pub const MAX_SESSION: Duration = Duration::from_hours(12);

    /// Default of [`session`](Self::session): one hour less than [`MAX_SESSION`](Self::MAX_SESSION), so that no call is
    /// in flight when ElastiCache closes the connection.
    pub const DEFAULT_SESSION: Duration = Duration::from_hours(11);
}

/// A name in ElastiCache: letters, digits and hyphens, starting with a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElastiCacheName(String);

/// The text is not a name in ElastiCache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an ElastiCache name: use letters, digits and hyphens, starting with a letter")]
#[non_exhaustive]
pub struct ElastiCacheNameError;

impl FromStr for ElastiCacheName {
    type Err = ElastiCacheNameError;

    fn from_str(name: &str) -> Result<Self, ElastiCacheNameError> {
        let starts_with_letter = name.starts_with(|first: char| first.is_ascii_alphabetic());
        if starts_with_letter && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            Ok(Self(name.to_owned()))
        } else {
            Err(ElastiCacheNameError)
        }
    }
}

/// Signs a new ElastiCache IAM token for each connection.
#[derive(Debug)]
pub struct ElastiCacheIam {
    settings: ElastiCacheIamSettings,
    signer: Signer,
}

impl ElastiCacheIam {
    /// Creates the source. AWS is not called yet.
    #[must_use]
    pub fn new(settings: ElastiCacheIamSettings, aws: AwsConfig) -> Self {
        Self { settings, signer: Signer::new(ELASTICACHE, aws) }
    }
}

impl CredentialsSource for ElastiCacheIam {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            let password = self.signer.token(&request(&self.settings), rejected.is_some()).await?;
            Ok(Login { user: Some(self.settings.user.0.clone()), password })
        })
    }

    fn max_session(&self) -> Option<Duration> {
        Some(self.settings.session)
    }

    fn advice(&self) -> &'static str {
        "ElastiCache rejected the IAM token: check that REDIS_IAM_USER is in the cache's user group, that \
         REDIS_IAM_CACHE is the cache's name, that REDIS_IAM_SERVERLESS is set for a serverless cache, and that the \
         role may call elasticache:Connect on both"
    }
}

fn request(settings: &ElastiCacheIamSettings) -> String {
    // ElastiCache converts the names of caches to lower case.
    let cache = settings.cache.0.to_ascii_lowercase();
    let kind = if settings.serverless { "&ResourceType=ServerlessCache" } else { "" };
    format!("{cache}/?Action=connect&User={}{kind}", settings.user.0)
}

#[cfg(test)]
mod tests {
    use super::super::token::tests::assert_matches_botocore;
    use super::*;

    fn name(name: &str) -> ElastiCacheName {
        name.parse().unwrap()
    }

    #[test]
    fn a_token_equals_the_one_that_botocore_signs() {
        assert_matches_botocore(ELASTICACHE, |case| {
            request(&ElastiCacheIamSettings {
                user: name(case["user"].as_str().unwrap()),
                cache: name(case["cache"].as_str().unwrap()),
                serverless: case["serverless"].as_bool().unwrap(),
                session: ElastiCacheIamSettings::DEFAULT_SESSION,
            })
        });
    }

    #[test]
    fn a_host_name_or_an_arn_is_not_an_elasticache_name() {
        for wrong in ["", "1cache", "-cache", "a.b.cache.amazonaws.com", "arn:aws:elasticache", "my cache", "a&User=b"]
        {
            assert!(wrong.parse::<ElastiCacheName>().is_err(), "{wrong}");
        }
        assert_eq!(name("My-Cache-2"), ElastiCacheName("My-Cache-2".into()));
    }
}
