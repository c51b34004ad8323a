//! Payloads that are too large for a message: the SQS and SNS extended clients store them in S3 and send a pointer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::message::Message;
use crate::idempotency::{Location, ObjectError, ObjectStore, within};

/// Longest time to fetch one payload, including retries. Longer fetches indicate a fault and delay the other messages.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches payloads that the extended clients stored in S3.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExtendedClient {
    /// The object store. Default: `None`, no payload is fetched.
    pub objects: Option<Arc<dyn ObjectStore>>,
    /// Buckets that may be read. Without this list, any sender could make the function read objects with its own
    /// permissions. Default: none.
    pub buckets: Vec<String>,
    /// Maximum payload size, bytes. As many payloads as [`BatchSettings::concurrency`](super::BatchSettings::concurrency)
    /// are in memory, and one for each receiver that is known to be unavailable. Each takes several times this size inside
    /// an envelope: docs/envelopes.md. Default: 4 MiB.
    pub max_bytes: usize,
}

impl Default for ExtendedClient {
    fn default() -> Self {
        // Four times the largest message of SQS.
        Self { objects: None, buckets: Vec::new(), max_bytes: 4 << 20 }
    }
}

/// Why a payload could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendedClientError {
    /// [`ExtendedClient`] has no object store or no buckets.
    #[error("the payload is in S3, and PAYLOAD_BUCKETS names no bucket that may be read")]
    Disabled,
    /// The payload is in a bucket that is not in [`ExtendedClient::buckets`].
    #[error("the payload is in a bucket that PAYLOAD_BUCKETS does not name")]
    BucketNotAllowed,
    /// The payload does not exist any more.
    #[error("the payload is no longer in S3")]
    NotFound,
    /// The payload is larger than [`ExtendedClient::max_bytes`].
    #[error("the payload is larger than the {0} bytes of PAYLOAD_MAX_BYTES")]
    TooLarge(usize),
    /// The payload is not UTF-8, so no message could carry it.
    #[error("the payload is not text")]
    NotText,
    /// The payload could not be read now.
    #[error("the payload could not be read")]
    NotRead(#[source] ObjectError),
}

impl ExtendedClientError {
    /// Whether a later fetch may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotRead(_) => true,
            Self::Disabled | Self::BucketNotAllowed | Self::NotFound | Self::TooLarge(_) | Self::NotText => false,
        }
    }
}

impl ExtendedClient {
    /// Fetches the payload and returns the message with it in place of the pointer.
    ///
    /// # Errors
    /// [`ExtendedClientError`]. It concerns only this message.
    pub(super) async fn fetch(
        &self,
        message: &Message,
        location: &Location,
        until: Instant,
    ) -> Result<Message, ExtendedClientError> {
        let objects = self.objects.as_ref().ok_or(ExtendedClientError::Disabled)?;
        if !self.buckets.contains(&location.bucket) {
            return Err(if self.buckets.is_empty() {
                ExtendedClientError::Disabled
            } else {
                ExtendedClientError::BucketNotAllowed
            });
        }
        match within(TIMEOUT, until, || objects.get(location, self.max_bytes)).await {
            Ok(bytes) => {
                // The error is not kept, because it contains the payload.
                let payload = String::from_utf8(bytes).map_err(|_| ExtendedClientError::NotText)?;
                Ok(message.with_payload(&payload))
            }
            Err(ObjectError::NotFound) => Err(ExtendedClientError::NotFound),
            Err(ObjectError::TooLarge { max_bytes }) => Err(ExtendedClientError::TooLarge(max_bytes)),
            Err(error @ (ObjectError::Rejected(_) | ObjectError::Unavailable(_))) => {
                Err(ExtendedClientError::NotRead(error))
            }
        }
    }
}
