//! The key of a record, as an operator passes it.

use idempotent_sqs::idempotency::{EmptyKeyError, Key};
use idempotent_sqs::stores::redis::records::{Inspected, Records, RecordsError};

/// A key as it was passed.
///
/// A text such as `sha256:…` has two meanings: `failed` shows the stored form of a key, and a producer may send such a
/// key, which the function logs unchanged and stores as its hash.
#[derive(Clone)]
pub(crate) struct KeyArgument {
    /// The key that a producer sent.
    sent: Key,
    /// The key whose stored form was passed.
    stored: Key,
}

impl KeyArgument {
    pub(crate) fn parse(text: &str) -> Result<Self, EmptyKeyError> {
        Ok(Self { sent: Key::new(text)?, stored: Key::from_stored(text)? })
    }

    /// The key that it means: that of a producer, unless only the stored form has a record. `is_stored`: the stored
    /// form.
    pub(crate) async fn resolve(self, records: &Records, is_stored: bool) -> Result<Key, RecordsError> {
        if is_stored || self.sent == self.stored {
            return Ok(self.stored);
        }
        let is_absent = async |key| Ok(matches!(records.inspect(key).await?, Inspected::Absent));
        let is_stored = is_absent(&self.sent).await? && !is_absent(&self.stored).await?;
        Ok(if is_stored { self.stored } else { self.sent })
    }
}
