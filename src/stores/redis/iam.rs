//! Tokens of ElastiCache IAM authentication: a presigned request that takes the place of a password.
//! <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html>

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_credential_types::provider::error::CredentialsError;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningParams, SigningSettings, sign};
use aws_sigv4::sign::v4;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{error::Elapsed, timeout};

use super::credentials::{Login, PATIENCE};

/// The longest that ElastiCache lets a token live.
const TOKEN_LIFE: Duration = Duration::from_secs(900);

/// AWS credentials this near to their end are fetched anew: ElastiCache looks at a token moments
/// after it was signed.
const MARGIN: Duration = Duration::from_secs(60);

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

#[derive(Debug, thiserror::Error)]
pub(super) enum IamError {
    #[error("no AWS credentials came in time to sign a token for ElastiCache")]
    TooLate(#[from] Elapsed),
    #[error(
        "there are no AWS credentials to sign a token for ElastiCache with: give the process a role, or set \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials(#[from] CredentialsError),
    #[error("it is not known in which region ElastiCache is: set AWS_REGION")]
    NoRegion,
    #[error("no token for ElastiCache could be signed")]
    Unsigned(#[source] Box<dyn std::error::Error + Send + Sync>),
}

pub(super) struct Iam {
    settings: IamSettings,
    aws: OnceCell<SdkConfig>,
    /// The AWS credentials at hand, if it is known when they end.
    kept: Mutex<Option<Credentials>>,
}

impl Iam {
    pub(super) fn new(settings: IamSettings) -> Self {
        Self { settings, aws: OnceCell::new(), kept: Mutex::default() }
    }

    pub(super) fn session(&self) -> Duration {
        self.settings.session
    }

    /// A token that was signed now.
    pub(super) async fn login(&self) -> Result<Login, IamError> {
        let (credentials, region) = timeout(PATIENCE, self.identity()).await??;
        let password = token(&self.settings, &region, credentials, SystemTime::now())?;
        Ok(Login { user: Some(self.settings.user.0.clone()), password })
    }

    /// Ask for AWS credentials anew next time.
    pub(super) async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    async fn identity(&self) -> Result<(Credentials, String), IamError> {
        let aws = self.aws.get_or_init(|| aws_config::defaults(BehaviorVersion::latest()).load()).await;
        let region = aws.region().map(ToString::to_string).filter(|region| !region.is_empty());
        Ok((self.credentials(aws).await?, region.ok_or(IamError::NoRegion)?))
    }

    /// Kept until shortly before their end, as all nodes of a cluster are connected to at once. Of
    /// others, such as Lambda's own in the environment, nothing tells when they change.
    async fn credentials(&self, aws: &SdkConfig) -> Result<Credentials, CredentialsError> {
        let mut kept = self.kept.lock().await;
        let last = |known: &Credentials| known.expiry().is_some_and(|end| end > SystemTime::now() + MARGIN);
        if let Some(known) = kept.as_ref().filter(|known| last(known)) {
            return Ok(known.clone());
        }
        let provider = aws.credentials_provider();
        let provider = provider.ok_or_else(|| CredentialsError::not_loaded("the AWS configuration has no provider"))?;
        Ok(kept.insert(provider.provide_credentials().await?).clone())
    }
}

/// The presigned request without its scheme. `http` or `https` makes no difference to the signature.
fn token(settings: &IamSettings, region: &str, credentials: Credentials, now: SystemTime) -> Result<String, IamError> {
    // ElastiCache keeps the names of caches in lower case.
    let cache = settings.cache.0.to_ascii_lowercase();
    let kind = if settings.serverless { "&ResourceType=ServerlessCache" } else { "" };
    let request = format!("http://{cache}/?Action=connect&User={}{kind}", settings.user.0);
    let signed = presigned(&request, region, credentials, now).map_err(IamError::Unsigned)?;
    Ok(signed.trim_start_matches("http://").to_owned())
}

fn presigned(
    request: &str,
    region: &str,
    credentials: Credentials,
    now: SystemTime,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(TOKEN_LIFE);
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("elasticache")
        .time(now)
        .settings(settings)
        .build()?;
    let mut signed = http::Request::get(request).body(())?;
    let signable = SignableRequest::new("GET", request, std::iter::empty(), SignableBody::Bytes(&[]))?;
    let (instructions, _signature) = sign(signable, &SigningParams::from(params))?.into_parts();
    instructions.apply_to_request_http1x(&mut signed);
    Ok(signed.uri().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn name(name: &str) -> ElastiCacheName {
        name.parse().unwrap()
    }

    /// The parts of a token, in an order of their own: the signature covers them in any.
    fn parts(token: &str) -> Vec<&str> {
        let mut parts: Vec<_> = token.split(['?', '&']).collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn a_token_is_what_botocore_signs_of_the_same() {
        let cases: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../../../tests/identity/tokens.json")).unwrap();
        for case in &cases {
            let text = |field: &str| case[field].as_str().unwrap().to_owned();
            let settings = IamSettings {
                user: name(&text("user")),
                cache: name(&text("cache")),
                serverless: case["serverless"].as_bool().unwrap(),
                session: IamSettings::SESSION,
            };
            let mut credentials = Credentials::builder()
                .access_key_id(text("access_key"))
                .secret_access_key(text("secret_key"))
                .provider_name("test");
            credentials.set_session_token(case["session_token"].as_str().map(str::to_owned));
            let time = UNIX_EPOCH + Duration::from_secs(case["unix_time"].as_u64().unwrap());
            let ours = token(&settings, &text("region"), credentials.build(), time).unwrap();
            assert!(ours.starts_with(&format!("{}/?Action=connect&User=", text("cache").to_lowercase())), "{ours}");
            assert_eq!(parts(&ours), parts(&text("token")));
        }
        assert!(cases.len() >= 8);
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
