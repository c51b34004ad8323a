//! What is kept in S3: payloads that are too large for a message, results that are too large for a record.

use std::sync::Arc;

use super::reader::Reader;
use crate::object::Objects;
#[cfg(feature = "s3")]
use crate::objects::{S3, S3Settings};
use crate::offload::Offload;
use crate::results::Results;
use crate::stores::RedisSettings;
#[cfg(feature = "s3")]
use crate::works::Url;

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    pub(super) fn offload(&mut self, default: Offload) -> Offload {
        let max_bytes = self.within("PAYLOAD_MAX_BYTES", 1..=MAX_OBJECT, default.max_bytes);
        let Some(names) = self.get("PAYLOAD_BUCKETS") else { return Offload { max_bytes, ..default } };
        let buckets = names.split(',').filter_map(|name| self.bucket("PAYLOAD_BUCKETS", name)).collect();
        Offload { objects: self.s3("PAYLOAD_BUCKETS"), buckets, max_bytes }
    }

    pub(super) fn results(&mut self, redis: Option<&RedisSettings>) -> Option<Results> {
        let name = self.get("RESULT_BUCKET")?;
        let (bucket, objects) = (self.bucket("RESULT_BUCKET", &name), self.s3("RESULT_BUCKET"));
        let prefix = self.get("RESULT_PREFIX").unwrap_or_default();
        Some(Results { objects: objects?, bucket: bucket?, prefix: format!("{prefix}{}/", redis?.namespace) })
    }

    /// Roughly what S3 takes for a bucket's name:
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
    fn bucket(&mut self, setting: &str, name: &str) -> Option<String> {
        let name = name.trim();
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if (3..=63).contains(&name.len()) && name.chars().all(known) && !name.starts_with(['-', '.']) {
            return Some(name.to_owned());
        }
        self.fault(&format!("{setting}: {name:?} is no name of an S3 bucket, such as payments-payloads"));
        None
    }

    /// S3, for the setting of this name. Its own settings are those of the AWS SDK.
    #[cfg(feature = "s3")]
    fn s3(&mut self, _setting: &str) -> Option<Arc<dyn Objects>> {
        let region = self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION"));
        if region.is_none() {
            self.fault("AWS_REGION is missing: set it to the region of the S3 buckets");
        }
        let endpoint = self.get("AWS_ENDPOINT_URL_S3").or_else(|| self.get("AWS_ENDPOINT_URL"));
        let endpoint = endpoint.map(|url| Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https")));
        if endpoint == Some(None) {
            self.fault("AWS_ENDPOINT_URL_S3 is not usable: set it to an http:// or https:// address");
        }
        Some(Arc::new(S3::new(S3Settings { region: region?, endpoint: endpoint.flatten() })))
    }

    #[cfg(not(feature = "s3"))]
    fn s3(&mut self, setting: &str) -> Option<Arc<dyn Objects>> {
        self.fault(&format!("{setting} is set, but this function was built without the cargo feature s3"));
        None
    }
}

/// A function has 10 GiB of memory at most, for all that it works on.
const MAX_OBJECT: usize = 1 << 30;
