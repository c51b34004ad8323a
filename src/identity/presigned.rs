//! Tokens: presigned requests that take the place of a password.

use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_credential_types::provider::error::CredentialsError;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningParams, SigningSettings, sign};
use aws_sigv4::sign::v4;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use super::PATIENCE;

/// The longest that ElastiCache and RDS let a token live.
const TOKEN_LIFE: Duration = Duration::from_secs(900);

/// AWS credentials this near to their end are fetched anew: a token is looked at moments after it
/// was signed.
const MARGIN: Duration = Duration::from_secs(60);

/// Neither it nor `http` makes a difference to the signature, and no token shows it.
const SCHEME: &str = "https://";

/// Who looks at a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    /// In a sentence.
    pub(crate) name: &'static str,
    /// In a signature.
    pub(crate) id: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("no AWS credentials came in time to sign a token for {0}")]
    TooLate(&'static str),
    #[error(
        "there are no AWS credentials to sign a token for {0} with: give the process a role, or set \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials(&'static str, #[source] CredentialsError),
    #[error("it is not known in which region {0} is: set AWS_REGION")]
    NoRegion(&'static str),
    #[error("no token for {0} could be signed")]
    Unsigned(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Signs tokens for one service.
pub(crate) struct Signer {
    service: Service,
    aws: OnceCell<SdkConfig>,
    /// The AWS credentials at hand, if it is known when they end.
    kept: Mutex<Option<Credentials>>,
}

impl Signer {
    pub(crate) fn new(service: Service) -> Self {
        Self { service, aws: OnceCell::new(), kept: Mutex::default() }
    }

    /// A token that was signed now: this request, which has no scheme, with its signature.
    pub(crate) async fn token(&self, request: &str) -> Result<String, TokenError> {
        let identity = timeout(PATIENCE, self.identity()).await;
        let (credentials, region) = identity.unwrap_or(Err(TokenError::TooLate(self.service.name)))?;
        let signed = presigned(self.service, request, &region, credentials, SystemTime::now());
        signed.map_err(|error| TokenError::Unsigned(self.service.name, error))
    }

    /// Ask for AWS credentials anew next time.
    pub(crate) async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    async fn identity(&self) -> Result<(Credentials, String), TokenError> {
        let Service { name, id: _ } = self.service;
        let aws = self.aws.get_or_init(|| aws_config::defaults(BehaviorVersion::latest()).load()).await;
        let region = aws.region().map(ToString::to_string).filter(|region| !region.is_empty());
        let credentials = self.credentials(aws).await.map_err(|error| TokenError::NoCredentials(name, error))?;
        Ok((credentials, region.ok_or(TokenError::NoRegion(name))?))
    }

    /// Kept until shortly before their end, as many connections may be made at once. Of others, such
    /// as Lambda's own in the environment, nothing tells when they change.
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
    settings.expires_in = Some(TOKEN_LIFE);
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service.id)
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

    use serde_json::Value;

    use super::*;

    /// The parts of a token, in an order of their own: the signature covers them in any.
    fn parts(token: &str) -> Vec<&str> {
        let mut parts: Vec<_> = token.split(['?', '&']).collect();
        parts.sort_unstable();
        parts
    }

    /// Sign the request of each case that is for this service.
    pub(crate) fn assert_signed_as_botocore_does(service: Service, request: impl Fn(&Value) -> String) {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/identity/tokens.json")).unwrap();
        let cases: Vec<_> = cases.iter().filter(|case| case["service"] == service.id).collect();
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
}
