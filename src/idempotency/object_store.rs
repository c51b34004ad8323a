//! The contract with an object store, for payloads too large for a message and results too large for a record.
//!
//! The implementation for S3 is [`s3`](crate::s3).

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::panics::{ProgramError, catch_async};

/// Stores whole objects. A panic counts as [`ObjectError::Unavailable`].
///
/// ## Cancel safety
/// A dropped future leaves the outcome of a put unknown. The same object may be put again.
pub trait ObjectStore: fmt::Debug + Send + Sync {
    /// Reads the object at this location.
    ///
    /// # Errors
    /// [`ObjectError`]. [`TooLarge`](ObjectError::TooLarge) if the object has more than `max_bytes`.
    fn get<'a>(&'a self, location: &'a Location, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>>;

    /// Writes an object, replacing any object at this location.
    ///
    /// # Errors
    /// [`ObjectError`]. If the object store is unavailable, the outcome is unknown.
    fn put<'a>(&'a self, location: &'a Location, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>>;
}

/// Location of an object, written `s3://bucket/name`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the object, which S3 calls its key.
    pub name: String,
}

/// Omits the name, which may come from a message.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.name)
    }
}

/// The text is not a [`Location`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the location of an object: it has the form s3://bucket/name")]
#[non_exhaustive]
pub struct LocationError;

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(location: &str) -> Result<Self, LocationError> {
        match location.strip_prefix("s3://").and_then(|location| location.split_once('/')) {
            Some((bucket, name)) if !bucket.is_empty() && !name.is_empty() => {
                Ok(Self { bucket: bucket.into(), name: name.into() })
            }
            Some(_) | None => Err(LocationError),
        }
    }
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no object at this location.
    #[error("the object does not exist")]
    NotFound,
    /// The object is larger than requested.
    #[error("the object is larger than {max_bytes} bytes")]
    TooLarge {
        /// The requested limit.
        max_bytes: usize,
    },
    /// The object store rejected the request with this error code.
    #[error("S3 rejected the request: {0}")]
    Rejected(String),
    /// The object store is unreachable, or cannot serve requests now.
    #[error("S3 is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl ObjectError {
    /// Creates an [`Unavailable`](Self::Unavailable) error.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }
}

/// The result of this call, or an error after `limit` and at `until`. A panic is an error, because the call concerns
/// only one delivery, whose work may be done by now.
pub(crate) async fn within<T, F>(limit: Duration, until: Instant, call: impl FnOnce() -> F) -> Result<T, ObjectError>
where
    F: Future<Output = Result<T, ObjectError>>,
{
    let until = until.min(Instant::now() + limit);
    match catch_async(async { timeout_at(until, call()).await }).await {
        Some(Ok(result)) => result.map_err(|error| match error {
            ObjectError::Unavailable(source) => ObjectError::unavailable(ProgramError::new(source)),
            known @ (ObjectError::NotFound | ObjectError::TooLarge { .. } | ObjectError::Rejected(_)) => known,
        }),
        Some(Err(elapsed)) => Err(ObjectError::unavailable(elapsed)),
        None => Err(ObjectError::unavailable("the object store panicked")),
    }
}
