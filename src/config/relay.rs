//! The settings of the relay: the function's, with those of its inbox, and its own rate.

use std::num::NonZeroU32;

use super::{Config, ConfigError, InboxConfig, Reader, environment};
use crate::database::Database;
use crate::relay::{Relay, RelaySettings};
use crate::stores::RedisStore;

/// Settings of the relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    config: Config,
    inbox: InboxConfig,
    /// How rows are copied.
    pub relay: RelaySettings,
}

impl RelayConfig {
    /// The relay of these settings. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ConfigError`], where no client can be made of the settings of Redis.
    pub fn relay(self) -> Result<Relay<RedisStore>, ConfigError> {
        let store = self.config.store()?;
        Ok(Relay::new(store, Database::new(&self.inbox.database), self.relay))
    }

    /// The settings in this process's environment.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(environment)
    }

    /// The settings that `lookup` knows.
    ///
    /// # Errors
    /// [`ConfigError`], which names every fault.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        // As a function it has a name of its own, which is not the consumer's.
        let lookup = |name: &str| if name == "AWS_LAMBDA_FUNCTION_NAME" { None } else { lookup(name) };
        let mut reader = Reader { lookup, faults: Vec::new() };
        let config = reader.config();
        let inbox = reader.inbox(config.as_ref());
        let relay = reader.relay(config.as_ref());
        let read = config.zip(inbox).zip(relay);
        reader.finish(read.map(|((config, inbox), relay)| Self { config, inbox, relay }))
    }
}

impl<L: Fn(&str) -> Option<String>> Reader<L> {
    fn relay(&mut self, config: Option<&Config>) -> Option<RelaySettings> {
        let rate = RelaySettings::ROWS_PER_SECOND;
        let rows_per_second = self.within("RELAY_ROWS_PER_SECOND", NonZeroU32::MIN..=HIGHEST_RATE, rate);
        let Config { redis, policy, .. } = config?;
        Some(RelaySettings {
            namespace: redis.namespace.clone(),
            retention: policy.retention,
            result_max_bytes: policy.result_max_bytes,
            rows_per_second,
            overlap: RelaySettings::OVERLAP,
        })
    }
}

/// More than a Redis can take.
const HIGHEST_RATE: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();
