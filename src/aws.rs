//! AWS: the shared SDK configuration, and AWS-derived credentials for Redis and PostgreSQL.
//!
//! - `elasticache`, `rds`: IAM authentication tokens
//! - `partition`: the domains of AWS's partitions
//! - `secret`: passwords in Secrets Manager
//! - `token`: signs tokens

mod elasticache;
#[cfg(any(feature = "lambda", feature = "s3"))]
mod partition;
mod rds;
mod secret;
mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use tokio::sync::OnceCell;

pub use elasticache::{ElastiCacheIam, ElastiCacheIamSettings, ElastiCacheName, ElastiCacheNameError};
#[cfg(any(feature = "lambda", feature = "s3"))]
pub(crate) use partition::dns_suffix;
pub use rds::{RdsIam, RdsIamSettings};
pub use secret::{SecretArn, SecretArnError, SecretCredentials};

/// Longest time for AWS to return credentials or a secret, including the TLS handshake of the first call. Much longer
/// than a call within a region takes, and much shorter than an invocation. Added to the connect timeout of PostgreSQL.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(3);

/// The AWS SDK configuration of this process: region, credentials, endpoints, retries. The default one is loaded from
/// the environment at its first use. Clones share it, and so do all clients that are created from it.
///
/// A program that has loaded its own configuration passes it with `AwsConfig::from`.
#[derive(Clone, Default)]
pub struct AwsConfig {
    loaded: Arc<OnceCell<SdkConfig>>,
}

impl AwsConfig {
    /// The loaded configuration. Loading is deferred to the first use, because reading certificates takes longer than
    /// starting the function.
    pub(crate) async fn load(&self) -> &SdkConfig {
        self.loaded.get_or_init(|| aws_config::defaults(BehaviorVersion::latest()).load()).await
    }
}

impl From<SdkConfig> for AwsConfig {
    fn from(config: SdkConfig) -> Self {
        Self { loaded: Arc::new(OnceCell::from(config)) }
    }
}

impl fmt::Debug for AwsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsConfig").finish_non_exhaustive()
    }
}
