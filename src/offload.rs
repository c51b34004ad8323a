//! Payloads that were too large for a message. The SQS and SNS extended clients put them in S3, and
//! send a pointer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::message::Message;
use crate::object::{ObjectError, Objects, Place};

/// Longest wait for one payload, tries included: beyond it something is wrong, and the others of the
/// batch want their turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which pointers are followed.
#[derive(Clone, Debug)]
pub struct Offload {
    /// What keeps the payloads; `None` follows no pointer.
    pub objects: Option<Arc<dyn Objects>>,
    /// Buckets that a pointer may point into. Whoever may send a message could otherwise have the
    /// function read, with its own rights, what the sender may not.
    pub buckets: Vec<String>,
    /// Largest payload, bytes. As many as are worked on at once are in memory together.
    pub max_bytes: usize,
}

impl Default for Offload {
    fn default() -> Self {
        // Four times what a message can carry itself; sixteen of them are 64 MiB.
        Self { objects: None, buckets: Vec::new(), max_bytes: 4 << 20 }
    }
}

/// Why there is no payload where a message points.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// Nothing says which buckets may be read.
    #[error("its payload is in S3, and PAYLOAD_BUCKETS names no bucket that may be read")]
    NotFollowed,
    /// The pointer points into another bucket.
    #[error("its payload is in a bucket that PAYLOAD_BUCKETS does not name")]
    OtherBucket,
    /// The payload is not there any more.
    #[error("its payload is no longer in S3")]
    Gone,
    /// The payload is larger than the settings allow.
    #[error("its payload is larger than the {0} bytes of PAYLOAD_MAX_BYTES")]
    TooLarge(usize),
    /// The payload is bytes, which no message can carry.
    #[error("its payload is not text")]
    NotText,
    /// It is perhaps there, and could not be read now.
    #[error("its payload could not be read")]
    Unread(#[source] ObjectError),
}

impl OffloadError {
    /// Whether to look again, later, may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unread(_) => true,
            Self::NotFollowed | Self::OtherBucket | Self::Gone | Self::TooLarge(_) | Self::NotText => false,
        }
    }
}

impl Offload {
    /// The message as it would be if its payload had not been too large for it.
    ///
    /// # Errors
    /// [`OffloadError`], which concerns this message alone.
    pub(crate) async fn fetch(
        &self,
        message: &Message,
        place: &Place,
        until: Instant,
    ) -> Result<Message, OffloadError> {
        let objects = self.objects.as_ref().ok_or(OffloadError::NotFollowed)?;
        if !self.buckets.contains(&place.bucket) {
            return Err(if self.buckets.is_empty() { OffloadError::NotFollowed } else { OffloadError::OtherBucket });
        }
        let until = until.min(Instant::now() + PATIENCE);
        match timeout_at(until, objects.get(place, self.max_bytes)).await {
            Ok(Ok(bytes)) => {
                let payload = String::from_utf8(bytes).map_err(|_quotes_the_payload| OffloadError::NotText)?;
                Ok(message.with_payload(&payload))
            }
            Ok(Err(ObjectError::Gone)) => Err(OffloadError::Gone),
            Ok(Err(ObjectError::TooLarge { max_bytes })) => Err(OffloadError::TooLarge(max_bytes)),
            Ok(Err(error @ (ObjectError::Refused(_) | ObjectError::Unavailable(_)))) => {
                Err(OffloadError::Unread(error))
            }
            Err(elapsed) => Err(OffloadError::Unread(ObjectError::unavailable(elapsed))),
        }
    }
}
