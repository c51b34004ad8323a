//! The connection to Redis.

use std::sync::Arc;
use std::time::Duration;

use super::Environment;
use crate::aws::{AwsConfig, ElastiCacheIam, ElastiCacheIamSettings, SecretArn, SecretCredentials};
use crate::credentials::CredentialsSource;
use crate::stores::{RedisSettings, RedisUrl};

impl RedisSettings {
    /// Reads the settings of the connection to Redis, for a tool that runs no work. Returns `None` if a required
    /// setting is missing or invalid.
    pub fn read(environment: &mut Environment) -> Option<Self> {
        read(environment, &AwsConfig::default())
    }
}

pub(super) fn read(environment: &mut Environment, aws: &AwsConfig) -> Option<RedisSettings> {
    let url = environment.required("REDIS_URL", URL_EXAMPLE);
    let namespace = namespace(environment);
    check_namespace(environment, namespace.as_deref());
    let cluster = environment.flag("REDIS_CLUSTER", false);
    let timeout = environment.milliseconds("REDIS_TIMEOUT_MS", 1, Duration::from_millis(500));
    let iam = iam(environment);
    let secret: Option<SecretArn> = environment.parsed("REDIS_SECRET_ARN", SECRET_ARN_EXAMPLE);
    let url = url.and_then(|url| match url.parse::<RedisUrl>() {
        Ok(url) => Some(url),
        Err(error) => {
            environment.error(&format!("REDIS_URL is invalid ({error}): set it to {URL_EXAMPLE}"));
            None
        }
    });
    if cluster && url.as_ref().is_some_and(RedisUrl::uses_sentinel) {
        environment.error("REDIS_CLUSTER is true, and REDIS_URL has sentinels, which do not know clusters: remove one");
    }
    check_credentials(environment, url.as_ref());
    let credentials = credentials(url.as_ref(), iam, secret, aws);
    let mut settings = RedisSettings::new(url?, namespace?);
    settings.cluster = cluster;
    settings.timeout = timeout;
    settings.credentials = credentials;
    Some(settings)
}

/// The name of the logical consumer. It defaults to the name of the function.
pub(super) fn namespace(environment: &Environment) -> Option<String> {
    environment.get("IDEMPOTENCY_NAMESPACE").or_else(|| environment.get("AWS_LAMBDA_FUNCTION_NAME"))
}

fn check_namespace(environment: &mut Environment, namespace: Option<&str>) {
    match namespace {
        None => environment
            .error("IDEMPOTENCY_NAMESPACE is missing: set it to the name of the logical consumer, such as payments"),
        // A colon would make namespace `a:b`, key `c` and namespace `a`, key `b:c` share a record.
        Some(name) if name.contains(':') => environment.error(
            "IDEMPOTENCY_NAMESPACE has a colon, which ends the namespace in a Redis key: set it to a name without one",
        ),
        Some(_) => {}
    }
}

/// Adds an error for each two of the settings that exclude or need each other. Each may be invalid, which is another
/// error.
fn check_credentials(environment: &mut Environment, url: Option<&RedisUrl>) {
    let is_set = |names: &[&str]| names.iter().any(|name| environment.get(name).is_some());
    let (has_iam, has_secret) = (is_set(&IAM), is_set(&["REDIS_SECRET_ARN"]));
    if has_iam && has_secret {
        environment.error("REDIS_SECRET_ARN and REDIS_IAM_USER are both set: remove one of them");
    }
    let is_cluster = environment.get("REDIS_CLUSTER").is_some_and(|cluster| cluster != "false");
    let is_serverless = environment.get("REDIS_IAM_SERVERLESS").as_deref() == Some("true");
    let has_session = environment.get("REDIS_IAM_SESSION_SECONDS").is_some();
    // Templates set REDIS_IAM_SERVERLESS to false without a user.
    for (name, is_chosen) in [("REDIS_IAM_SERVERLESS", is_serverless), ("REDIS_IAM_SESSION_SECONDS", has_session)] {
        if is_chosen && !has_iam {
            environment.error(&format!(
                "{name} is set, and REDIS_IAM_USER and REDIS_IAM_CACHE are not: set them, or remove {name}"
            ));
        }
    }
    if is_serverless && !is_cluster {
        environment
            .error("REDIS_IAM_SERVERLESS is true, and serverless caches are clusters: set REDIS_CLUSTER to true");
    }
    let Some(url) = url else { return };
    if has_iam && url.uses_sentinel() {
        environment.error(
            "REDIS_URL has sentinels, and REDIS_IAM_USER is for ElastiCache, which has none: remove one of them",
        );
    } else if has_iam && !url.uses_tls() {
        environment.error(
            "REDIS_URL does not use TLS, which ElastiCache requires for IAM tokens: set it to rediss://HOST:6379",
        );
    }
    if has_iam && (url.has_password() || url.user().is_some()) {
        environment
            .error("REDIS_URL has a user or a password, and REDIS_IAM_USER replaces them: remove them from REDIS_URL");
    }
    if url.user().is_some() && !url.has_password() && !has_iam && !has_secret {
        // Without a password the client sends no login at all.
        environment.error(
            "REDIS_URL has a user without a password, and the function would sign in as the default user: set it to \
             redis://USER:PASSWORD@HOST:6379, or redis://:PASSWORD@HOST:6379 for the default user, or set \
             REDIS_SECRET_ARN",
        );
    }
    if has_secret && url.has_password() {
        environment.error(
            "REDIS_URL has a password, and the secret of REDIS_SECRET_ARN replaces it: remove it from REDIS_URL",
        );
    }
}

fn credentials(
    url: Option<&RedisUrl>,
    iam: Option<ElastiCacheIamSettings>,
    secret: Option<SecretArn>,
    aws: &AwsConfig,
) -> Option<Arc<dyn CredentialsSource>> {
    if let Some(iam) = iam {
        return Some(Arc::new(ElastiCacheIam::new(iam, aws.clone())));
    }
    let advice = "Redis rejected the user and password of REDIS_SECRET_ARN, which was read again";
    Some(Arc::new(SecretCredentials::new(secret?, url.and_then(RedisUrl::user), advice, aws.clone())))
}

fn iam(environment: &mut Environment) -> Option<ElastiCacheIamSettings> {
    let serverless = environment.flag("REDIS_IAM_SERVERLESS", false);
    let (default, max) = (ElastiCacheIamSettings::DEFAULT_SESSION, ElastiCacheIamSettings::MAX_SESSION);
    let session = environment.number("REDIS_IAM_SESSION_SECONDS", 1..=max.as_secs(), default.as_secs());
    if IAM.iter().any(|name| environment.get(name).is_some()) {
        environment.required("REDIS_IAM_USER", IAM_USER_EXAMPLE);
        environment.required("REDIS_IAM_CACHE", IAM_CACHE_EXAMPLE);
    }
    let user = environment.parsed("REDIS_IAM_USER", IAM_USER_EXAMPLE);
    let cache = environment.parsed("REDIS_IAM_CACHE", IAM_CACHE_EXAMPLE);
    Some(ElastiCacheIamSettings { user: user?, cache: cache?, serverless, session: Duration::from_secs(session) })
}

/// The settings of a user with IAM authentication. Each requires the other.
const IAM: [&str; 2] = ["REDIS_IAM_USER", "REDIS_IAM_CACHE"];

/// Example of the ARN of a secret, for error messages.
pub const SECRET_ARN_EXAMPLE: &str = "arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME";

const URL_EXAMPLE: &str =
    "redis://HOST:6379, rediss://HOST:6379 for TLS, or redis+sentinel://HOST:26379/SERVICE for Sentinel";

const IAM_USER_EXAMPLE: &str = "the id of an ElastiCache user for IAM, which equals its name";

const IAM_CACHE_EXAMPLE: &str = "the id of the replication group, or the name of the serverless cache, not its address";
