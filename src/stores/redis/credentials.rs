//! Who the store says it is, asked at every connect.
//!
//! A connect may be this store's own, or one that a cluster's client makes by itself, minutes or a
//! freeze later. Both ask here, so that none is made with what was good for an earlier one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use redis::{BasicAuth, ConnectionInfo, ErrorKind, RedisError, RedisResult, StreamingCredentialsProvider};

use crate::identity::{Login, Secret, SecretArn};

use super::iam::{Iam, IamSettings};
use super::url::RedisUrl;

/// Who has no name of its own: <https://redis.io/docs/latest/commands/auth/>.
const DEFAULT_USER: &str = "default";

/// Where the user and the password come from.
#[derive(Clone, Debug, Default)]
pub enum RedisCredentials {
    /// From the URL, which may have none.
    #[default]
    Url,
    /// A token of ElastiCache IAM authentication, signed afresh at every connect.
    Iam(IamSettings),
    /// From AWS Secrets Manager, at the first connect, and again once the server refuses them.
    Secret(SecretArn),
}

impl RedisCredentials {
    /// Whether they go with this URL.
    ///
    /// # Errors
    /// A sentence on what is wrong, and how to mend it.
    pub fn go_with(&self, url: &RedisUrl) -> Result<(), String> {
        let fault = match self {
            Self::Iam(_) if url.has_password() || url.user().is_some() => {
                "REDIS_URL has a user or a password, and so has REDIS_IAM_USER: take them out of REDIS_URL"
            }
            Self::Iam(_) if !url.is_tls() => {
                "REDIS_URL is without TLS, over which ElastiCache takes no IAM token: set it to rediss://HOST:6379"
            }
            Self::Secret(_) if url.has_password() => {
                "REDIS_URL has a password, and so has the secret of REDIS_SECRET_ARN: take it out of REDIS_URL"
            }
            Self::Url | Self::Iam(_) | Self::Secret(_) => return Ok(()),
        };
        Err(fault.to_owned())
    }
}

/// The same server, with this login.
pub(super) fn signed_in(server: ConnectionInfo, login: &Login) -> ConnectionInfo {
    let settings = server.redis_settings().clone().set_username(user(login)).set_password(&login.password);
    server.set_redis_settings(settings)
}

fn user(login: &Login) -> &str {
    login.user.as_deref().unwrap_or(DEFAULT_USER)
}

/// Gives each connect its login.
#[derive(Clone)]
pub(super) enum Logins {
    Url,
    Iam(Arc<Iam>),
    Secret(Arc<Secret>),
}

impl Logins {
    pub(super) fn new(credentials: &RedisCredentials, url: &RedisUrl) -> Result<Self, String> {
        credentials.go_with(url)?;
        Ok(match credentials {
            RedisCredentials::Url => Self::Url,
            RedisCredentials::Iam(settings) => Self::Iam(Arc::new(Iam::new(settings.clone()))),
            RedisCredentials::Secret(arn) => Self::Secret(Arc::new(Secret::new(arn.clone(), url.user()))),
        })
    }

    /// What to sign in with now, where it is not what the URL says.
    pub(super) async fn next(&self) -> RedisResult<Option<Login>> {
        match self {
            Self::Url => Ok(None),
            Self::Iam(iam) => iam.login().await.map(Some).map_err(|error| io::Error::other(error).into()),
            Self::Secret(secret) => secret.login().await.map(Some).map_err(|error| io::Error::other(error).into()),
        }
    }

    /// The server refused the last one: whether the next one may be another.
    pub(super) async fn refused(&self) -> bool {
        match self {
            Self::Url => false,
            // A token is another each time, so it was not its age that was refused. The next call asks
            // for the AWS credentials anew, in case they were taken back.
            Self::Iam(iam) => {
                iam.forget().await;
                false
            }
            Self::Secret(secret) => {
                secret.forget(|_| true).await;
                true
            }
        }
    }

    /// How long a connection may stay signed in.
    pub(super) fn session(&self) -> Option<Duration> {
        match self {
            Self::Iam(iam) => Some(iam.session()),
            Self::Url | Self::Secret(_) => None,
        }
    }

    /// What to look at where the server refuses a login.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Url => "Redis refuses the user and password of REDIS_URL, or wants some",
            Self::Iam(_) => {
                "ElastiCache refuses the IAM token: is REDIS_IAM_USER in the cache's user group, is REDIS_IAM_CACHE \
                 its name, does REDIS_IAM_SERVERLESS say what it is, and may the role elasticache:Connect to both?"
            }
            Self::Secret(_) => "Redis refuses the user and password of REDIS_SECRET_ARN, which were read anew",
        }
    }
}

/// For the connects that a cluster's client makes by itself.
impl StreamingCredentialsProvider for Logins {
    /// One login, and then no other: a connection that is too old is made anew, not signed in again.
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        let logins = self.clone();
        let login = async move {
            let login = logins.next().await?;
            login
                .map(|login| BasicAuth::new(user(&login).to_owned(), login.password))
                .ok_or_else(|| (ErrorKind::InvalidClientConfig, "the URL has the login").into())
        };
        // An end would be logged as a fault of every connection.
        stream::once(login).chain(stream::pending()).boxed()
    }
}

/// Whether the server refuses who we say we are.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    // A cluster's client keeps no more of it than its text.
    let in_a_cluster = |detail: &str| detail.contains("AuthenticationFailed");
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.detail().is_some_and(in_a_cluster)
}
