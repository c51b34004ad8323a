//! Objects in S3: `GetObject` and `PutObject`, signed by `aws-sigv4` and sent by `reqwest`.
//!
//! `aws-sdk-s3` would make the release binary 15 % larger (13.5 to 15.5 MB) and a start from disk 9 % slower (6.1 to
//! 6.6 ms); the first fetch over TLS takes the same time.
//!
//! - `url`: URLs of objects

mod url;

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4::SigningParams;
use futures_util::future::BoxFuture;
pub use reqwest::Url;
use reqwest::{Client, Method, Response, StatusCode};
use tokio::time::{sleep, timeout};

use crate::aws::AwsConfig;
use crate::connections::{Connections, http_client};
use crate::idempotency::{Location, ObjectError, ObjectStore};

use url::Variant;

/// Number of tries of one call. S3 returns 503 while it scales up, and the call should then be retried:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html>
const TRIES: u32 = 3;

/// Pause before the second try. Twice as long before the third.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest time of one try, from connecting to the head of the response, which takes some 100 ms within a region. If
/// the connection has ended without notice, or if there is no route to S3, as in a VPC without an S3 endpoint, no reply
/// comes at all. The longest time of a call leaves time for a second try.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);

/// How much of an error response is read, bytes. The error code is at its start.
const MAX_ERROR_BYTES: usize = 4096;

/// Region and endpoint of S3.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct S3Settings {
    /// The region of the buckets.
    pub region: String,
    /// The `http://` or `https://` URL of another endpoint: a VPC endpoint, or a server that implements the S3 API.
    /// `None` uses the public endpoint of the region, in the variant that the AWS configuration requests: for FIPS, for
    /// IPv4 and IPv6 (dual stack), or for both.
    pub endpoint: Option<Url>,
}

impl S3Settings {
    /// The endpoint of S3 in this region.
    #[must_use]
    pub fn new(region: impl Into<String>) -> Self {
        Self { region: region.into(), endpoint: None }
    }
}

/// [`ObjectStore`] in S3. The client is created at its first use.
pub struct S3 {
    settings: S3Settings,
    aws: AwsConfig,
    /// Replaces the credentials of the AWS configuration.
    credentials: Option<SharedCredentialsProvider>,
    connections: Connections<Client>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").field("region", &self.settings.region).finish_non_exhaustive()
    }
}

impl S3 {
    /// S3 with the credentials of the AWS configuration. No connection is opened yet.
    #[must_use]
    pub fn new(settings: S3Settings, aws: AwsConfig) -> Self {
        Self { settings, aws, credentials: None, connections: Connections::default() }
    }

    /// Uses these credentials instead of those of the AWS configuration, for example those of another role.
    #[must_use]
    pub fn credentials(self, provider: impl ProvideCredentials + 'static) -> Self {
        Self { credentials: Some(SharedCredentialsProvider::new(provider)), ..self }
    }

    fn client(&self) -> Result<Client, ObjectError> {
        self.connections.unless_frozen(|| http_client().build()).map_err(ObjectError::unavailable)
    }

    /// Credentials for one call. They are not cached, because on Lambda they are environment variables.
    async fn fetch_credentials(&self) -> Result<Credentials, ObjectError> {
        let provider = if let Some(given) = &self.credentials {
            given.clone()
        } else {
            let provider = self.aws.load().await.credentials_provider();
            provider.ok_or_else(|| ObjectError::unavailable("the AWS configuration has no credentials"))?
        };
        provider.provide_credentials().await.map_err(ObjectError::unavailable)
    }

    /// Makes a call, with retries while S3 is unavailable. Returns the successful response.
    async fn call(&self, method: &Method, location: &Location, body: &[u8]) -> Result<Response, ObjectError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let outcome = timeout(TRY_TIMEOUT, self.try_call(method, location, body)).await;
            match outcome.unwrap_or_else(|elapsed| Err(ObjectError::unavailable(elapsed))) {
                Err(ObjectError::Unavailable(_)) if tried < TRIES => sleep(PAUSE * tried).await,
                outcome => return outcome,
            }
        }
    }

    async fn try_call(&self, method: &Method, location: &Location, body: &[u8]) -> Result<Response, ObjectError> {
        let variant = Variant::of(self.aws.load().await);
        let url = url::url(&self.settings, variant, location)?;
        let credentials = self.fetch_credentials().await?;
        let mut request = self.client()?.request(method.clone(), url.clone());
        for (name, value) in self.signature_headers(method, &url, body, credentials, SystemTime::now())? {
            request = request.header(name, value);
        }
        if method == Method::PUT {
            request = request.body(body.to_vec());
        }
        let response = request.send().await.map_err(|error| ObjectError::unavailable(error.without_url()))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            // The current version of the object is a delete marker:
            // https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html
            StatusCode::NOT_FOUND if response.headers().contains_key("x-amz-delete-marker") => {
                Err(ObjectError::NotFound)
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(ObjectError::unavailable(format!("it returned {}", status.as_u16())))
            }
            // Any other 404 is not about this object: the bucket does not exist, or the endpoint is not that of S3.
            status => match error_code(response).await {
                Some(code) if status == StatusCode::NOT_FOUND && code == "NoSuchKey" => Err(ObjectError::NotFound),
                code => Err(ObjectError::Rejected(code.unwrap_or_else(|| status.as_u16().to_string()))),
            },
        }
    }

    /// The authentication headers of a call, by Signature Version 4:
    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
    fn signature_headers(
        &self,
        method: &Method,
        url: &Url,
        body: &[u8],
        credentials: Credentials,
        now: SystemTime,
    ) -> Result<Vec<(String, String)>, ObjectError> {
        let mut settings = SigningSettings::default();
        // S3 does not normalize or escape the path again, and requires a header with the hash of the body.
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let identity = credentials.into();
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(&self.settings.region)
            .name("s3")
            .time(now)
            .settings(settings)
            .build()
            .map_err(ObjectError::unavailable)?
            .into();
        let request =
            SignableRequest::new(method.as_str(), url.as_str(), std::iter::empty(), SignableBody::Bytes(body))
                .map_err(ObjectError::unavailable)?;
        let (instructions, _signature) = sign(request, &parameters).map_err(ObjectError::unavailable)?.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// The error code of S3, such as `AccessDenied`. The rest of the response is not used, as it may contain the object's
/// name.
async fn error_code(mut response: Response) -> Option<String> {
    let mut text = Vec::new();
    while text.len() < MAX_ERROR_BYTES {
        text.extend_from_slice(&response.chunk().await.ok()??);
        let so_far = String::from_utf8_lossy(&text);
        if let Some((code, _)) = so_far.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")) {
            return code.chars().all(|c| c.is_ascii_alphanumeric()).then(|| code.to_owned());
        }
    }
    None
}

impl ObjectStore for S3 {
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async move {
            let mut response = self.call(&Method::GET, location, &[]).await?;
            let too_large = |length| length > max_bytes as u64;
            let mut bytes = Vec::new();
            if response.content_length().is_some_and(too_large) {
                return Err(ObjectError::TooLarge { max_bytes });
            }
            while let Some(chunk) = response.chunk().await.map_err(|e| ObjectError::unavailable(e.without_url()))? {
                bytes.extend_from_slice(&chunk);
                if too_large(bytes.len() as u64) {
                    return Err(ObjectError::TooLarge { max_bytes });
                }
            }
            Ok(bytes)
        })
    }

    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.call(&Method::PUT, location, &bytes).await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signatures are those of botocore for the same calls.
    #[test]
    fn a_call_has_the_signature_of_botocore() {
        let s3 = S3::new(S3Settings::new("eu-central-1"), AwsConfig::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_080_665);
        for (method, url, body, signature) in [
            (
                Method::PUT,
                "https://files.s3.eu-central-1.amazonaws.com/a/b%20c%2B%C3%A9%25.json",
                b"12.50 EUR".as_slice(),
                "28353ec9899f1d20c66de76aed738623d5fa4c10cb79b6bae60b703c438b07d9",
            ),
            (
                Method::GET,
                "http://127.0.0.1:9000/files/payments/pay_1/1795080665647000",
                b"",
                "97585fefb3c5db1b41881c15657fcd9e01e57aa0906e921b022fdf35eab440bb",
            ),
            // An empty segment belongs to the name.
            (
                Method::GET,
                "https://files.s3.eu-central-1.amazonaws.com/payments//7f3a//a",
                b"",
                "20b22692dd9efd63416fc1e195468dc1c9b6c958d94d9675f119ad2868023373",
            ),
        ] {
            let credentials = Credentials::new(
                "AKIDEXAMPLE",
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                Some("the session's token".into()),
                None,
                "test",
            );
            let headers = s3.signature_headers(&method, &url.parse().unwrap(), body, credentials, now).unwrap();
            let header = |name: &str| {
                let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.as_str()).unwrap()
            };
            assert!(header("authorization").ends_with(&format!("Signature={signature}")), "{headers:?}");
            assert_eq!(header("x-amz-security-token"), "the session's token");
            assert_eq!(header("x-amz-date"), "20261119T093105Z");
        }
    }

    #[tokio::test]
    async fn the_error_code_of_a_response_is_a_plain_word_or_none() {
        let code = |code: &str| {
            let body = format!("<Error><Code>{code}</Code><Key>ada@example.com</Key></Error>");
            error_code(http::Response::new(body).into())
        };
        assert_eq!(code("AccessDenied").await.as_deref(), Some("AccessDenied"));
        for other in ["no access to ada@example.com", "Access\nDenied", "a/b"] {
            assert_eq!(code(other).await, None, "{other}");
        }
    }
}
