//! Results that are too large for their record: each is an object, and the record stores its location.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::causes::error_chain;
use super::key::Key;
use super::object_store::{Location, ObjectError, ObjectStore, within};
use super::owner::Fence;

/// Largest result that is kept, bytes: the payload limit of a Lambda response.
/// <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>
pub const MAX_RESULT_BYTES: usize = 6 << 20;

/// Longest time to read or write one object. The work is already done, and the response waits for this.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where large results are stored.
///
/// Each claim has its own object, `<prefix><key>/<fence>`, so a late owner cannot overwrite the result of another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Results {
    /// The object store.
    pub objects: Arc<dyn ObjectStore>,
    /// The bucket.
    pub bucket: String,
    /// Prefix of the object names. Consumers that share keys must use different prefixes.
    pub prefix: String,
}

impl Results {
    /// Stores results in this bucket, with names that start with `prefix`.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, bucket: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { objects, bucket: bucket.into(), prefix: prefix.into() }
    }

    /// Writes the result of the claim with this fence and returns the text of its location. If that fails, logs a
    /// warning and returns `None`, because the work is done in any case.
    pub(super) async fn write(&self, key: &Key, fence: Fence, result: &[u8], until: Instant) -> Option<String> {
        let name = format!("{}{}/{fence}", self.prefix, path_segment(key));
        let location = Location { bucket: self.bucket.clone(), name };
        let written = match result.len() {
            0..=MAX_RESULT_BYTES => within(TIMEOUT, until, || self.objects.put(&location, result.to_vec())).await,
            _ => Err(ObjectError::TooLarge { max_bytes: MAX_RESULT_BYTES }),
        };
        match written {
            Ok(()) => Some(location.to_string()),
            Err(error) => {
                // A result above the limit is not sent to S3.
                let is_sent = !matches!(error, ObjectError::TooLarge { .. });
                let advice = is_sent.then_some("check that the function may call s3:PutObject there and can reach S3");
                tracing::warn!(reason = error_chain(&error), advice, "a large result was not kept");
                None
            }
        }
    }

    /// Reads the result at a stored location. If that fails, logs a warning and returns `None`.
    pub(super) async fn read(&self, location: &[u8], until: Instant) -> Option<Vec<u8>> {
        let location = str::from_utf8(location).ok().and_then(|location| location.parse::<Location>().ok());
        let read = match &location {
            Some(location) => within(TIMEOUT, until, || self.objects.get(location, MAX_RESULT_BYTES)).await,
            None => Err(ObjectError::NotFound),
        };
        let log = |error: &ObjectError| {
            let advice = "check that the bucket keeps objects for as long as the retention";
            tracing::warn!(reason = error_chain(error), advice, "a large result could not be read");
        };
        read.inspect_err(log).ok()
    }
}

/// The key as one segment of an object name. A key that stores hash, or that has characters that are not allowed in a
/// segment, is hashed: so no key has the segment of another one. An object name may have up to 1,024 bytes.
fn path_segment(key: &Key) -> String {
    let text = key.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_segment = key.stored() == text && text.bytes().all(plain) && text.bytes().any(|byte| byte != b'.');
    if is_segment { text.to_owned() } else { key.hashed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_characters_is_one_segment_of_a_name() {
        let of = |key: &str| path_segment(&Key::new(key).unwrap());
        assert_eq!(of("pay_7f3a:2026-11.1"), "pay_7f3a:2026-11.1");
        for key in ["..", ".", "../pay_1", "a/b", "größe", " ", "a\nb", &"x".repeat(201)] {
            assert!(of(key).starts_with("sha256:") && of(key).len() == 71, "{key}");
        }
        assert_ne!(of("a/b"), of("a/c"));
    }

    #[test]
    fn no_key_has_the_segment_of_another_key_that_is_hashed() {
        for key in ["a/b", &"x".repeat(201)] {
            let hash = path_segment(&Key::new(key).unwrap());
            assert_ne!(path_segment(&Key::new(&hash).unwrap()), hash, "{key}");
        }
    }
}
