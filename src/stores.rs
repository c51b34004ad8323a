//! The implementations of [`Store`](crate::Store). All pass one conformance suite, which is in the crate
//! `idempotent-sqs-testing`.

mod memory;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis;

pub use memory::MemoryStore;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use redis::{RedisSettings, RedisSettingsError, RedisStore, RedisUrl, RedisUrlError};
