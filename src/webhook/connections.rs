//! Connections to the webhook, which are reused between invocations.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::{Client, redirect};
use tokio::time::Instant;

/// Longest time that a connection may be idle and still be reused. Many receivers close connections that are idle for
/// five seconds. A process that was frozen may not have processed the close, and its next request on the connection
/// would be uncertain.
const MAX_IDLE: Duration = Duration::from_secs(3);

/// Largest difference between the time on the wall clock and on the monotonic clock between two requests. If it is
/// larger, the process was frozen between them.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Connections {
    connect_timeout: Duration,
    last: Mutex<Option<LastClient>>,
}

/// The client of the last request. It pools the connections.
#[derive(Debug)]
struct LastClient {
    client: Client,
    used: Moment,
}

impl Connections {
    /// Creates an empty pool. No connection is opened yet.
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self { connect_timeout, last: Mutex::default() }
    }

    /// A client for the next request, without connections that were idle for too long. The first one is created at its
    /// first use, because loading certificates takes longer than starting the function.
    pub(super) fn client(&self) -> reqwest::Result<Client> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        let client = match last.take() {
            Some(LastClient { client, used }) if !used.was_frozen_until(&now) => client,
            Some(_) | None => self.new_client()?,
        };
        *last = Some(LastClient { client: client.clone(), used: now });
        Ok(client)
    }

    fn new_client(&self) -> reqwest::Result<Client> {
        Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(MAX_IDLE)
            // With HTTP/1, `request` can determine when a request is sent.
            .http1_only()
            .user_agent(concat!("idempotent-sqs/", env!("CARGO_PKG_VERSION")))
            .build()
    }
}

/// A point in time on both clocks. Timeouts use the monotonic clock, which may stop while the process is frozen.
#[derive(Debug)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// Whether the monotonic clock missed part of the time between `self` and `now`.
    fn was_frozen_until(&self, now: &Self) -> bool {
        // If the wall clock was moved backwards, the time is unknown, and the process counts as frozen.
        let passed = now.wall.duration_since(self.wall).unwrap_or(Duration::MAX);
        passed > now.monotonic.duration_since(self.monotonic) + CLOCK_DRIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_was_frozen_if_its_monotonic_clock_missed_more_than_a_second() {
        let Moment { monotonic, wall } = Moment::now();
        let after = |monotonic_ms, wall_ms| Moment {
            monotonic: monotonic + Duration::from_millis(monotonic_ms),
            wall: wall + Duration::from_millis(wall_ms),
        };
        for (later, frozen) in [((0, 0), false), ((60_000, 60_900), false), ((0, 1_001), true), ((5_000, 65_000), true)]
        {
            assert_eq!(after(0, 0).was_frozen_until(&after(later.0, later.1)), frozen, "{later:?}");
        }
        assert!(after(0, 60_000).was_frozen_until(&after(10, 0)), "a wall clock that was set back");
    }
}
