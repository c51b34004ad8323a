//! The implementations of [`Store`](crate::store::Store). All of them pass one conformance suite.

mod dispensable;
mod memory;
mod redis;

pub use self::dispensable::{Dispensable, Outage};
pub use self::memory::MemoryStore;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use self::redis::decode;
#[cfg(feature = "records")]
pub use self::redis::records;
pub use self::redis::{ElastiCacheName, IamSettings, RedisCredentials, RedisSettings, RedisStore, RedisUrl};
