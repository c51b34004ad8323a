//! Tokens of ElastiCache IAM authentication: a presigned request that takes the place of a password.
//! <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html>

use std::str::FromStr;
use std::time::Duration;

use crate::identity::{Login, Service, Signer, TokenError};

const ELASTICACHE: Service = Service { name: "ElastiCache", id: "elasticache" };

/// Who signs in to which cache.
#[derive(Clone, Debug)]
pub struct IamSettings {
    /// The user's id, which for IAM is its name too.
    pub user: ElastiCacheName,
    /// The id of the replication group, or the name of the serverless cache.
    pub cache: ElastiCacheName,
    /// Whether the cache is serverless.
    pub serverless: bool,
    /// How long a connection is kept. A right that was taken away ends with it.
    pub session: Duration,
}

impl IamSettings {
    /// How long a connection can live: ElastiCache ends it.
    pub const LONGEST_SESSION: Duration = Duration::from_hours(12);

    /// An hour before ElastiCache's own end, so that no call is in its way.
    pub const SESSION: Duration = Duration::from_hours(11);
}

/// Letters, digits and hyphens, first a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElastiCacheName(String);

impl FromStr for ElastiCacheName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
        if begins_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            Ok(Self(name.to_owned()))
        } else {
            Err("it is not a name as ElastiCache has them: letters, digits and hyphens, first a letter")
        }
    }
}

pub(super) struct Iam {
    settings: IamSettings,
    signer: Signer,
}

impl Iam {
    pub(super) fn new(settings: IamSettings) -> Self {
        Self { settings, signer: Signer::new(ELASTICACHE) }
    }

    pub(super) fn session(&self) -> Duration {
        self.settings.session
    }

    /// With a token that was signed now.
    pub(super) async fn login(&self) -> Result<Login, TokenError> {
        let password = self.signer.token(&request(&self.settings)).await?;
        Ok(Login { user: Some(self.settings.user.0.clone()), password })
    }

    /// Ask for AWS credentials anew next time.
    pub(super) async fn forget(&self) {
        self.signer.forget().await;
    }
}

fn request(settings: &IamSettings) -> String {
    // ElastiCache keeps the names of caches in lower case.
    let cache = settings.cache.0.to_ascii_lowercase();
    let kind = if settings.serverless { "&ResourceType=ServerlessCache" } else { "" };
    format!("{cache}/?Action=connect&User={}{kind}", settings.user.0)
}

#[cfg(test)]
mod tests {
    use crate::identity::assert_signed_as_botocore_does;

    use super::*;

    fn name(name: &str) -> ElastiCacheName {
        name.parse().unwrap()
    }

    #[test]
    fn a_token_is_what_botocore_signs_of_the_same() {
        assert_signed_as_botocore_does(ELASTICACHE, |case| {
            request(&IamSettings {
                user: name(case["user"].as_str().unwrap()),
                cache: name(case["cache"].as_str().unwrap()),
                serverless: case["serverless"].as_bool().unwrap(),
                session: IamSettings::SESSION,
            })
        });
    }

    #[test]
    fn a_name_is_no_address_and_no_arn() {
        for wrong in ["", "1cache", "-cache", "a.b.cache.amazonaws.com", "arn:aws:elasticache", "my cache", "a&User=b"]
        {
            assert!(wrong.parse::<ElastiCacheName>().is_err(), "{wrong}");
        }
        assert_eq!(name("My-Cache-2"), ElastiCacheName("My-Cache-2".into()));
    }
}
