//! The connections to the webhook, which are kept from one invocation to the next.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::{Client, redirect};
use tokio::time::Instant;

/// Longest time without a request after which a connection is used again. Receivers close idle connections, many of
/// them after 5 s. A function that was frozen meanwhile may not notice, and then it is not known whether its request
/// arrived.
const LONGEST_IDLE: Duration = Duration::from_secs(3);

/// Most that the two clocks may differ by between two requests, before the process counts as frozen meanwhile.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Connections {
    connect_timeout: Duration,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    client: Client,
    asked: Moment,
}

impl Connections {
    /// No connection yet.
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self { connect_timeout, kept: Mutex::default() }
    }

    /// A client for the next request, whose connections were not idle for too long. It is made at the first use:
    /// loading certificates takes longer than starting the function.
    pub(super) fn client(&self) -> reqwest::Result<Client> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        let client = match kept.take() {
            Some(Kept { client, asked }) if !asked.frozen_until(&now) => client,
            Some(_) | None => self.connect()?,
        };
        *kept = Some(Kept { client: client.clone(), asked: now });
        Ok(client)
    }

    fn connect(&self) -> reqwest::Result<Client> {
        Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(LONGEST_IDLE)
            // Of HTTP/1 it is known when it sends a request.
            .http1_only()
            .user_agent(concat!("idempotent-sqs/", env!("CARGO_PKG_VERSION")))
            .build()
    }
}

/// The same moment on both clocks. Timeouts go by the first, which may stand still while the process is frozen.
#[derive(Debug)]
struct Moment {
    steady: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }

    /// Whether the steady clock missed a part of the time until then.
    fn frozen_until(&self, now: &Self) -> bool {
        // A wall clock that was set back says nothing, so the worst is assumed.
        let passed = now.wall.duration_since(self.wall).unwrap_or(Duration::MAX);
        passed > now.steady.duration_since(self.steady) + CLOCK_DRIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_was_frozen_where_its_steady_clock_missed_more_than_a_second() {
        let Moment { steady, wall } = Moment::now();
        let after = |steady_ms, wall_ms| Moment {
            steady: steady + Duration::from_millis(steady_ms),
            wall: wall + Duration::from_millis(wall_ms),
        };
        for (later, frozen) in [((0, 0), false), ((60_000, 60_900), false), ((0, 1_001), true), ((5_000, 65_000), true)]
        {
            assert_eq!(after(0, 0).frozen_until(&after(later.0, later.1)), frozen, "{later:?}");
        }
        assert!(after(0, 60_000).frozen_until(&after(10, 0)), "a wall clock that was set back");
    }
}
