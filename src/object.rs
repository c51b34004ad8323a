//! The contract with whatever keeps objects: what is too large for a message, or for a record.
//!
//! The implementations are in [`objects`](crate::objects).

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use futures_util::future::BoxFuture;

/// Keeps objects, whole, each in its place.
///
/// ## Cancel safety
/// A dropped future leaves the outcome unknown. What was put may be put again.
pub trait Objects: fmt::Debug + Send + Sync {
    /// The object at this place, of `max_bytes` at most.
    ///
    /// # Errors
    /// [`ObjectError`], also where it is larger.
    fn get<'a>(&'a self, place: &'a Place, max_bytes: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>>;

    /// Put these bytes at this place, over whatever is there.
    ///
    /// # Errors
    /// [`ObjectError`], with the outcome unknown where the objects are out of reach.
    fn put<'a>(&'a self, place: &'a Place, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>>;
}

/// Where an object is. It is written `s3://bucket/name`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The bucket's name.
    pub bucket: String,
    /// The object's name, which S3 calls its key.
    pub name: String,
}

/// The name may come from a message, so it is never shown by chance.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.name)
    }
}

impl FromStr for Place {
    type Err = ObjectError;

    fn from_str(place: &str) -> Result<Self, ObjectError> {
        match place.strip_prefix("s3://").and_then(|place| place.split_once('/')) {
            Some((bucket, name)) if !bucket.is_empty() && !name.is_empty() => {
                Ok(Self { bucket: bucket.into(), name: name.into() })
            }
            Some(_) | None => Err(ObjectError::Gone),
        }
    }
}

/// Why there is no object, or none was put.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is none at this place.
    #[error("there is no such object")]
    Gone,
    /// It is larger than was asked for.
    #[error("the object is larger than {max_bytes} bytes")]
    TooLarge {
        /// How much was asked for.
        max_bytes: usize,
    },
    /// Whoever keeps it says no, and why, in a word.
    #[error("S3 refuses: {0}")]
    Refused(String),
    /// Whoever keeps it is out of reach, or cannot answer now.
    #[error("S3 is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl ObjectError {
    /// The objects are out of reach, for this reason.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }
}
