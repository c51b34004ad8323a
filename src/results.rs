//! Results that are too large for their record: each is an object, and the record keeps its place.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::object::{ObjectError, Objects, Place};
use crate::record::Key;
use crate::store::Claim;

/// Largest result that is kept at all, bytes: no larger answer could come from a Lambda function.
/// <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>
pub const LARGEST: usize = 6 << 20;

/// Longest wait for one object. The work is done, or was before, and somebody waits to hear so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where large results are kept.
///
/// Each claim has an object of its own, `<prefix><key>/<fence>`, so that an owner which is late
/// overwrites nobody's result.
#[derive(Clone, Debug)]
pub struct Results {
    /// What keeps them.
    pub objects: Arc<dyn Objects>,
    /// The bucket that they are kept in.
    pub bucket: String,
    /// What their names begin with: something of one's own for each consumer that has the same keys.
    pub prefix: String,
}

impl Results {
    /// Where the result of this claim is kept from now on; `None` where it could not be. The work is
    /// done all the same, so that is logged, never more.
    pub(crate) async fn keep(&self, claim: &Claim, result: &[u8], until: Instant) -> Option<String> {
        let name = format!("{}{}/{}", self.prefix, segment(claim.key()), claim.fence());
        let place = Place { bucket: self.bucket.clone(), name };
        let kept = match result.len() {
            0..=LARGEST => in_time(until, self.objects.put(&place, result.to_vec())).await,
            _ => Err(ObjectError::TooLarge { max_bytes: LARGEST }),
        };
        match kept {
            Ok(()) => Some(place.to_string()),
            Err(error) => {
                let advice = "may the function call s3:PutObject there, and can it reach S3?";
                tracing::warn!(reason = %error, cause = error.source().map(tracing::field::display), advice, "a large result was not kept");
                None
            }
        }
    }

    /// The result that a record keeps the place of; `None` where it cannot be had, which is logged.
    pub(crate) async fn get(&self, place: &[u8], until: Instant) -> Option<Vec<u8>> {
        let place = str::from_utf8(place).ok().and_then(|place| place.parse::<Place>().ok());
        let got = match &place {
            Some(place) => in_time(until, self.objects.get(place, LARGEST)).await,
            None => Err(ObjectError::Gone),
        };
        let logged = |error: &ObjectError| {
            let advice = "does the bucket keep its objects for as long as the retention?";
            tracing::warn!(reason = %error, cause = error.source().map(tracing::field::display), advice, "a large result was not found");
        };
        got.inspect_err(logged).ok()
    }
}

async fn in_time<T>(until: Instant, call: impl Future<Output = Result<T, ObjectError>>) -> Result<T, ObjectError> {
    let until = until.min(Instant::now() + PATIENCE);
    timeout_at(until, call).await.unwrap_or_else(|elapsed| Err(ObjectError::unavailable(elapsed)))
}

/// The key as one step of an object's name, where it can be one, and else its hash. With all else a name
/// may have 1,024 bytes.
fn segment(key: &Key) -> String {
    let text = key.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_a_step = key.is_short() && text.bytes().all(plain) && text.bytes().any(|byte| byte != b'.');
    if is_a_step { text.to_owned() } else { key.hashed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_step_of_a_name_whatever_is_in_it() {
        let of = |key: &str| segment(&Key::new(key).unwrap());
        assert_eq!(of("pay_7f3a:2026-11.1"), "pay_7f3a:2026-11.1");
        for key in ["..", ".", "../pay_1", "a/b", "größe", " ", "a\nb", &"x".repeat(201)] {
            assert!(of(key).starts_with("sha256:") && of(key).len() == 71, "{key}");
        }
        assert_ne!(of("a/b"), of("a/c"));
    }
}
