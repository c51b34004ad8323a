//! The implementations of [`Objects`](crate::object::Objects).

mod memory;
#[cfg(feature = "s3")]
mod s3;

pub use memory::MemoryObjects;
#[cfg(feature = "s3")]
pub use s3::{S3, S3Settings};
