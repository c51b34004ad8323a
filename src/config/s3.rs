//! Payloads and results in S3.

use std::sync::Arc;

use super::Environment;
use super::redis::namespace;
use crate::aws::AwsConfig;
use crate::idempotency::{ObjectStore, Results};
use crate::sqs::ExtendedClient;

pub(super) fn extended_client(environment: &mut Environment, aws: &AwsConfig) -> ExtendedClient {
    let default = ExtendedClient::default();
    let max_bytes = environment.number("PAYLOAD_MAX_BYTES", 1..=MAX_OBJECT, default.max_bytes);
    let Some(names) = environment.get("PAYLOAD_BUCKETS") else {
        if environment.get("PAYLOAD_MAX_BYTES").is_some() {
            environment
                .error("PAYLOAD_MAX_BYTES is set, and PAYLOAD_BUCKETS is not: set both, or remove PAYLOAD_MAX_BYTES");
        }
        return ExtendedClient { max_bytes, ..default };
    };
    let buckets = names.split(',').filter_map(|name| bucket(environment, "PAYLOAD_BUCKETS", name)).collect();
    ExtendedClient { objects: s3(environment, "PAYLOAD_BUCKETS", aws), buckets, max_bytes }
}

pub(super) fn results(environment: &mut Environment, aws: &AwsConfig) -> Option<Results> {
    let Some(name) = environment.get("RESULT_BUCKET") else {
        if environment.get("RESULT_PREFIX").is_some() {
            environment.error("RESULT_PREFIX is set, and RESULT_BUCKET is not: set both, or remove RESULT_PREFIX");
        }
        return None;
    };
    let bucket = bucket(environment, "RESULT_BUCKET", &name);
    let objects = s3(environment, "RESULT_BUCKET", aws);
    let [prefix, namespace] = [environment.get("RESULT_PREFIX"), namespace(environment)].map(Option::unwrap_or_default);
    let prefix = format!("{prefix}{namespace}");
    if prefix.len() > MAX_PREFIX || prefix.split('/').any(|segment| matches!(segment, "." | "..")) {
        environment.error(&format!(
            "RESULT_PREFIX is invalid: set it to a prefix that has, with the namespace, at most {MAX_PREFIX} bytes and \
             no segment . or .., which no URL can have"
        ));
    }
    Some(Results::new(objects?, bucket?, format!("{prefix}/")))
}

/// A name that follows the main rules of S3 for the names of buckets:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
fn bucket(environment: &mut Environment, setting: &str, name: &str) -> Option<String> {
    let name = name.trim();
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends_validly = !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']);
    if (3..=63).contains(&name.len()) && name.chars().all(valid) && ends_validly && !name.contains("..") {
        return Some(name.to_owned());
    }
    environment.error(&format!("{setting}: {name:?} is not the name of an S3 bucket, such as payments-payloads"));
    None
}

/// The S3 client. `setting` is the variable that requires it, for error messages. Region and endpoint come from the
/// variables of the AWS SDK.
#[cfg(feature = "s3")]
fn s3(environment: &mut Environment, _setting: &str, aws: &AwsConfig) -> Option<Arc<dyn ObjectStore>> {
    use crate::s3::{S3, S3Settings, Url};

    let region = environment.get("AWS_REGION").or_else(|| environment.get("AWS_DEFAULT_REGION"));
    if region.is_none() {
        environment.error("AWS_REGION is missing: set it to the region of the S3 buckets");
    }
    // As the SDK reads it.
    let is_ignored =
        environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let variables = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
    let variable = variables.into_iter().find(|name| !is_ignored && environment.get(name).is_some());
    let endpoint = variable.and_then(|name| {
        let url = Url::parse(&environment.get(name)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if url.is_none() {
            environment.error(&format!("{name} is invalid: set it to an http:// or https:// address"));
        }
        url
    });
    let mut settings = S3Settings::new(region?.to_ascii_lowercase());
    settings.endpoint = endpoint;
    Some(Arc::new(S3::new(settings, aws.clone())))
}

#[cfg(not(feature = "s3"))]
fn s3(environment: &mut Environment, setting: &str, _aws: &AwsConfig) -> Option<Arc<dyn ObjectStore>> {
    environment.error(&format!("{setting} is set, but this function was built without the cargo feature s3"));
    None
}

/// Longest start of an object's name, bytes. A name has at most 1,024, and a key and a fence follow.
const MAX_PREFIX: usize = 800;

/// Largest `PAYLOAD_MAX_BYTES`: 1 GiB. A function has at most 10 GiB of memory for all its messages.
const MAX_OBJECT: usize = 1 << 30;
