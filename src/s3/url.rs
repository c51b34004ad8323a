//! URLs of objects.

use aws_config::SdkConfig;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

use super::S3Settings;
use crate::aws::dns_suffix;
use crate::idempotency::{Location, ObjectError};

/// The variant of the region's endpoint:
/// <https://docs.aws.amazon.com/general/latest/gr/s3.html>
#[derive(Clone, Copy, Default)]
pub(super) struct Variant {
    /// FIPS-validated cryptography.
    fips: bool,
    /// IPv4 and IPv6.
    dual_stack: bool,
}

impl Variant {
    /// The variant that this configuration of the SDK requests, by `AWS_USE_FIPS_ENDPOINT`,
    /// `AWS_USE_DUALSTACK_ENDPOINT` or its profile.
    pub(super) fn of(config: &SdkConfig) -> Self {
        let [fips, dual_stack] = [config.use_fips(), config.use_dual_stack()].map(Option::unwrap_or_default);
        Self { fips, dual_stack }
    }

    fn service(self) -> &'static str {
        match (self.fips, self.dual_stack) {
            (false, false) => "s3",
            (false, true) => "s3.dualstack",
            (true, false) => "s3-fips",
            (true, true) => "s3-fips.dualstack",
        }
    }
}

/// The URL of an object. The bucket is part of the host name. It is part of the path instead if an endpoint is set, or
/// if its name has a dot, which the certificate of S3 does not cover, or a character that older names have and host
/// names do not distinguish: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html>. An endpoint
/// that is set has no variants.
pub(super) fn url(settings: &S3Settings, variant: Variant, location: &Location) -> Result<Url, ObjectError> {
    let Location { bucket, name } = location;
    let S3Settings { region, endpoint } = settings;
    let (service, domain) = (variant.service(), dns_suffix(region));
    let (host, path) = match endpoint {
        Some(endpoint) => (endpoint.as_str().trim_end_matches('/').to_owned(), format!("/{bucket}/")),
        None if !bucket.bytes().all(is_of_label) => {
            (format!("https://{service}.{region}.{domain}"), format!("/{bucket}/"))
        }
        None => (format!("https://{bucket}.{service}.{region}.{domain}"), "/".to_owned()),
    };
    let text = format!("{host}{path}{}", utf8_percent_encode(name, ESCAPED));
    let url = Url::parse(&text).map_err(ObjectError::unavailable)?;
    // Parsing resolves the segments `.` and `..`. The URL would be of another object, perhaps in another bucket.
    // It also writes a host in lower case, which is the same host.
    if url.as_str().eq_ignore_ascii_case(&text) { Ok(url) } else { Err(ObjectError::NotFound) }
}

fn is_of_label(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// Characters of an object's name that are escaped in a path: all except the unreserved ones of RFC 3986 and the slash.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    fn url_of(region: &str, endpoint: Option<&str>, variant: Variant, bucket: &str, name: &str) -> String {
        let settings = S3Settings { region: region.into(), endpoint: endpoint.map(|url| url.parse().unwrap()) };
        let location = Location { bucket: bucket.into(), name: name.into() };
        url(&settings, variant, &location).unwrap().to_string()
    }

    #[test]
    fn an_object_has_the_url_that_s3_documents() {
        let url = |region, endpoint, bucket, name| url_of(region, endpoint, Variant::default(), bucket, name);
        assert_eq!(
            url("eu-central-1", None, "files", "a/b c+é.json"),
            "https://files.s3.eu-central-1.amazonaws.com/a/b%20c%2B%C3%A9.json"
        );
        assert_eq!(
            url("eu-central-1", None, "files.example", "a"),
            "https://s3.eu-central-1.amazonaws.com/files.example/a"
        );
        assert_eq!(url("us-east-1", None, "Old_files", "A"), "https://s3.us-east-1.amazonaws.com/Old_files/A");
        assert_eq!(url("EU-CENTRAL-1", None, "files", "A"), "https://files.s3.eu-central-1.amazonaws.com/A");
        assert_eq!(url("eu-central-1", None, "files", "a//b"), "https://files.s3.eu-central-1.amazonaws.com/a//b");
        assert_eq!(url("cn-north-1", None, "files", "a"), "https://files.s3.cn-north-1.amazonaws.com.cn/a");
        assert_eq!(url("eusc-de-east-1", None, "files", "a"), "https://files.s3.eusc-de-east-1.amazonaws.eu/a");
        assert_eq!(url("eu-central-1", Some("http://127.0.0.1:9000"), "files", "a"), "http://127.0.0.1:9000/files/a");
        assert_eq!(url("eu-central-1", Some("https://s3.example/v1/"), "files", "a"), "https://s3.example/v1/files/a");
    }

    #[test]
    fn each_variant_has_the_host_that_s3_documents() {
        for (fips, dual_stack, host) in [
            (false, true, "s3.dualstack.us-east-1.amazonaws.com"),
            (true, false, "s3-fips.us-east-1.amazonaws.com"),
            (true, true, "s3-fips.dualstack.us-east-1.amazonaws.com"),
        ] {
            let config = SdkConfig::builder().use_fips(fips).use_dual_stack(dual_stack).build();
            let url = |endpoint, bucket| url_of("us-east-1", endpoint, Variant::of(&config), bucket, "a");
            assert_eq!(url(None, "files"), format!("https://files.{host}/a"));
            assert_eq!(url(None, "files.example"), format!("https://{host}/files.example/a"));
            assert_eq!(url(Some("https://s3.example"), "files"), "https://s3.example/files/a");
        }
    }

    #[test]
    fn no_name_reaches_another_bucket() {
        let settings =
            S3Settings { endpoint: Some("http://127.0.0.1:9000".parse().unwrap()), ..S3Settings::new("eu-central-1") };
        for name in ["../secrets/a", "a/../../secrets/a", "./a", "a/..", "%2e%2e/secrets/a"] {
            let location = Location { bucket: "files".into(), name: name.into() };
            match url(&settings, Variant::default(), &location) {
                Ok(url) => assert!(url.path().starts_with("/files/%252e%252e/"), "{url}"),
                Err(error) => assert!(matches!(error, ObjectError::NotFound), "{error}"),
            }
        }
    }
}
