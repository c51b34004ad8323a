//! Clients whose connections are reused between invocations, and only for a short time.
//!
//! A server, a NAT gateway and a VPC endpoint end connections that are idle, and a process that was frozen meanwhile
//! has not noticed. A request on such a connection has no answer, and whether it took effect is unknown.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Longest time that a connection may be idle and still be reused. Many servers close connections that are idle for
/// five seconds. NAT gateways and VPC endpoints drop those that are idle for 350 seconds, without telling either side:
/// <https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html>
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(3);

/// Largest number of headers in a response. hyper accepts 100 unless it is told otherwise. S3 returns each entry of an
/// object's metadata as a header, of 2 KB in all: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html>
#[cfg(any(feature = "webhook", feature = "s3"))]
const MAX_RESPONSE_HEADERS: usize = 1000;

/// Largest difference between the time on the wall clock and on the monotonic clock since a client was created. If it
/// is larger, the process was frozen meanwhile.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

/// The settings of each HTTP client. They do not depend on the features of `reqwest` that other crates of the program
/// enable, such as another TLS, HTTP/2, another resolver of names, and decompression.
#[cfg(any(feature = "webhook", feature = "s3"))]
pub(crate) fn http_client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_rustls()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .no_hickory_dns()
        // With HTTP/1, the webhook can determine when a request is sent.
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(MAX_IDLE)
        .http1_max_headers(MAX_RESPONSE_HEADERS)
}

/// A client that pools connections, and is replaced if they may have ended. None is created before its first use,
/// because loading certificates takes longer than starting the function.
#[derive(Debug)]
pub(crate) struct Connections<C>(Mutex<Option<LastClient<C>>>);

/// The client of the last request.
#[derive(Debug)]
struct LastClient<C> {
    client: C,
    created: Moment,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: Clone> Connections<C> {
    /// The client of the last request, or a new one if the process was frozen since that one was created, in all for
    /// more than a second. For clients that do not reuse connections that were idle for [`MAX_IDLE`] on the monotonic
    /// clock.
    #[cfg_attr(
        not(any(feature = "webhook", feature = "s3")),
        expect(dead_code, reason = "only `reqwest` has such clients")
    )]
    pub(crate) fn unless_frozen<E>(&self, create: impl FnOnce() -> Result<C, E>) -> Result<C, E> {
        self.get(|created, now| !created.was_frozen_until(now), create)
    }

    /// The client of the last request, or a new one if that one is older than [`MAX_IDLE`] on either clock. For clients
    /// that reuse connections that were idle for longer.
    #[cfg_attr(not(feature = "lambda"), expect(dead_code, reason = "only the SDK has such clients"))]
    pub(crate) fn unless_old(&self, create: impl FnOnce() -> C) -> C {
        let created = self.get(|created, now| created.until(now) <= MAX_IDLE, || Ok::<_, Infallible>(create()));
        created.unwrap_or_else(|never| match never {})
    }

    fn get<E>(
        &self,
        is_kept: impl FnOnce(&Moment, &Moment) -> bool,
        create: impl FnOnce() -> Result<C, E>,
    ) -> Result<C, E> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        let kept = match last.take().filter(|last| is_kept(&last.created, &now)) {
            Some(last) => last,
            None => LastClient { client: create()?, created: now },
        };
        let client = kept.client.clone();
        *last = Some(kept);
        Ok(client)
    }
}

/// A point in time on both clocks. Timeouts use the monotonic clock, which may stop while the process is frozen.
#[derive(Clone, Copy, Debug)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The time between `self` and `now`, on the clock that shows more. If the wall clock was moved backwards, the time
    /// is unknown, and counts as long.
    fn until(&self, now: &Self) -> Duration {
        let wall = now.wall.duration_since(self.wall).unwrap_or(Duration::MAX);
        wall.max(now.monotonic.duration_since(self.monotonic))
    }

    /// Whether the monotonic clock missed part of the time between `self` and `now`.
    fn was_frozen_until(&self, now: &Self) -> bool {
        self.until(now) > now.monotonic.duration_since(self.monotonic) + CLOCK_DRIFT
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

    #[test]
    fn the_time_between_two_moments_is_that_of_the_clock_that_shows_more() {
        let Moment { monotonic, wall } = Moment::now();
        let after = |monotonic_ms, wall_ms| Moment {
            monotonic: monotonic + Duration::from_millis(monotonic_ms),
            wall: wall + Duration::from_millis(wall_ms),
        };
        for (later, ms) in [((0, 0), 0), ((3_000, 2_900), 3_000), ((10, 350_000), 350_000)] {
            assert_eq!(after(0, 0).until(&after(later.0, later.1)), Duration::from_millis(ms), "{later:?}");
        }
        assert_eq!(after(0, 60_000).until(&after(10, 0)), Duration::MAX, "a wall clock that was set back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_replaced_after_freezes_that_add_up_to_more_than_a_second() {
        let (connections, mut created) = (Connections::<u32>::default(), 0);
        let mut client = || {
            connections.unless_frozen(|| {
                created += 1;
                Ok::<_, Infallible>(created)
            })
        };
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(client().unwrap());
            // The wall clock goes on, the monotonic one is paused.
            std::thread::sleep(Duration::from_millis(600));
        }
        assert_eq!(clients, [1, 1, 2, 2]);
    }
}
