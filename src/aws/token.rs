//! Signs authentication tokens: presigned requests in place of a password.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_credential_types::provider::error::CredentialsError;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningParams, SigningSettings, sign};
use aws_sigv4::sign::v4;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{AwsConfig, CREDENTIALS_TIMEOUT};

/// Lifetime of a token, the longest that ElastiCache and RDS accept.
const TOKEN_LIFETIME: Duration = Duration::from_secs(900);

/// AWS credentials that expire within this time are fetched again. A token is used immediately after it is signed, so a
/// short time is enough.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// Any scheme: it has no effect on the signature and is not part of the token, but the request needs one to be parsed.
const SCHEME: &str = "https://";

/// The service that accepts a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Name in error messages.
    pub(super) name: &'static str,
    /// Name in a signature.
    pub(super) signing_name: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error(
        "no AWS credentials within the timeout to sign a token for {0}: check that the function can reach their source"
    )]
    Timeout(&'static str),
    #[error(
        "no AWS credentials to sign a token for {0}: give the process a role, or set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials(&'static str, #[source] CredentialsError),
    #[error("the region of {0} is unknown: set AWS_REGION")]
    NoRegion(&'static str),
    #[error("signing a token for {0} failed")]
    NotSigned(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Signs tokens for one service.
pub(super) struct Signer {
    service: Service,
    aws: AwsConfig,
    /// The last AWS credentials, if they have an expiry.
    cached: Mutex<Option<Credentials>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new(service: Service, aws: AwsConfig) -> Self {
        Self { service, aws, cached: Mutex::default() }
    }

    /// Signs `request`, a URL without a scheme. Fetches the AWS credentials again if the last token was `rejected`, as
    /// they may have been revoked.
    pub(super) async fn token(&self, request: &str, rejected: bool) -> Result<String, TokenError> {
        if rejected {
            *self.cached.lock().await = None;
        }
        let identity = timeout(CREDENTIALS_TIMEOUT, self.identity()).await;
        let (credentials, region) = identity.unwrap_or(Err(TokenError::Timeout(self.service.name)))?;
        let signed = presigned(self.service, request, &region, credentials, SystemTime::now());
        signed.map_err(|error| TokenError::NotSigned(self.service.name, error))
    }

    async fn identity(&self) -> Result<(Credentials, String), TokenError> {
        let Service { name, signing_name: _ } = self.service;
        let aws = self.aws.load().await;
        let region = aws.region().map(ToString::to_string).filter(|region| !region.is_empty());
        let credentials = self.credentials(aws).await.map_err(|error| TokenError::NoCredentials(name, error))?;
        Ok((credentials, region.ok_or(TokenError::NoRegion(name))?))
    }

    /// The AWS credentials. They are cached until shortly before they expire, because many connections may be opened
    /// concurrently. Credentials without an expiry, such as those in the environment of a function, are not cached,
    /// because their rotation cannot be detected.
    async fn credentials(&self, aws: &SdkConfig) -> Result<Credentials, CredentialsError> {
        let mut cached = self.cached.lock().await;
        let is_valid = |known: &Credentials| known.expiry().is_some_and(|end| end > SystemTime::now() + EXPIRY_MARGIN);
        if let Some(known) = cached.as_ref().filter(|known| is_valid(known)) {
            return Ok(known.clone());
        }
        let provider = aws.credentials_provider();
        let provider = provider.ok_or_else(|| CredentialsError::not_loaded("the AWS configuration has no provider"))?;
        Ok(cached.insert(provider.provide_credentials().await?).clone())
    }
}

fn presigned(
    service: Service,
    request: &str,
    region: &str,
    credentials: Credentials,
    now: SystemTime,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let request = [SCHEME, request].concat();
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(TOKEN_LIFETIME);
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service.signing_name)
        .time(now)
        .settings(settings)
        .build()?;
    let mut signed = http::Request::get(&request).body(())?;
    let signable = SignableRequest::new("GET", &request, std::iter::empty(), SignableBody::Bytes(&[]))?;
    let (instructions, _signature) = sign(signable, &SigningParams::from(params))?.into_parts();
    instructions.apply_to_request_http1x(&mut signed);
    Ok(signed.uri().to_string().trim_start_matches(SCHEME).to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::UNIX_EPOCH;

    use aws_config::Region;
    use aws_credential_types::provider::SharedCredentialsProvider;
    use serde_json::Value;

    use super::*;

    /// The parts of a token, sorted: the signature does not depend on their order.
    fn parts(token: &str) -> Vec<&str> {
        let mut parts: Vec<_> = token.split(['?', '&']).collect();
        parts.sort_unstable();
        parts
    }

    /// Signs the request of each recorded case of this service and compares the token with the recorded one.
    pub(in crate::aws) fn assert_matches_botocore(service: Service, request: impl Fn(&Value) -> String) {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/identity/tokens.json")).unwrap();
        let cases: Vec<_> = cases.iter().filter(|case| case["service"] == service.signing_name).collect();
        for case in &cases {
            let text = |field: &str| case[field].as_str().unwrap();
            let mut credentials = Credentials::builder()
                .access_key_id(text("access_key"))
                .secret_access_key(text("secret_key"))
                .provider_name("test");
            credentials.set_session_token(case["session_token"].as_str().map(str::to_owned));
            let time = UNIX_EPOCH + Duration::from_secs(case["unix_time"].as_u64().unwrap());
            let request = request(case);
            let ours = presigned(service, &request, text("region"), credentials.build(), time).unwrap();
            assert!(ours.starts_with(&request), "{ours}");
            assert_eq!(parts(&ours), parts(text("token")));
        }
        assert!(cases.len() >= 8);
    }

    #[tokio::test]
    async fn no_token_is_signed_for_an_empty_region() {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let aws = SdkConfig::builder()
            .region(Region::new(""))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build();
        let service = Service { name: "ElastiCache", signing_name: "elasticache" };
        let error = Signer::new(service, aws.into()).token("cache/?Action=connect", false).await.unwrap_err();
        assert!(matches!(error, TokenError::NoRegion("ElastiCache")), "{error:?}");
    }
}
