//! The built-in work: sends each message to a webhook.
//!
//! - `request`: sends a request, and determines whether a failed one may have been sent
//! - `response`: what a response means

mod request;
mod response;

use std::fmt;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::connections::{Connections, http_client};
use crate::idempotency::{Claim, MAX_RESULT_BYTES, Work, WorkError};
use crate::sqs::Message;

pub use reqwest::Url;

/// Settings of a [`Webhook`].
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookSettings {
    /// The URL that messages are sent to, with POST.
    pub url: Url,
    /// Timeout from connecting to the end of the response.
    pub timeout: Duration,
    /// Timeout for name resolution, connecting and the TLS handshake. The request is sent after them, so a
    /// failure here is known to have had no effect.
    pub connect_timeout: Duration,
    /// How much of a response is read, bytes. Set it to [`Policy::max_kept_result`](crate::Policy::max_kept_result)
    /// plus one: a body of this size or more is not kept. More than [`MAX_RESULT_BYTES`] plus one counts as this.
    pub response_max_bytes: usize,
}

impl WebhookSettings {
    /// Settings for this URL: a timeout of 10 seconds, a connect timeout of 2 seconds and responses of up to 4,096
    /// bytes.
    #[must_use]
    pub fn new(url: Url) -> Self {
        let (timeout, connect_timeout) = (Duration::from_secs(10), Duration::from_secs(2));
        Self { url, timeout, connect_timeout, response_max_bytes: 4097 }
    }
}

/// Omits the URL, which may hold a secret.
impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A [`Work`] that sends the message's body unchanged, with `Content-Type` and these headers:
///
/// - `Idempotency-Key`: the key. `%` and all characters that are not visible ASCII are percent-encoded.
/// - `Idempotency-Fence`: a number that grows with each attempt at the key, even after the store lost the record,
///   unless the store's clock is then behind.
/// - `Idempotency-Attempt`: the number of the attempt, from 1.
/// - `Idempotency-Receive-Count`: [`Message::receive_count`], if known.
/// - `Idempotency-Recovery: true`, only if an earlier attempt may have taken effect.
///
/// | response | outcome |
/// |---|---|
/// | 2xx | done; the body is the result, unless it is incomplete or too large |
/// | 429, 503; no connection | [`WorkError::unavailable`]; `Retry-After` sets the delay, within its limits |
/// | 409, 425 | [`WorkError::busy`]; `Retry-After` sets the delay, within its limits |
/// | 3xx (never followed), any other 4xx except 408 | [`WorkError::permanent`] |
/// | any other response, or none after the request was sent | [`WorkError::uncertain`] |
///
/// A receiver that stores processed keys can ignore repeated recoveries.
#[derive(Debug)]
pub struct Webhook {
    settings: WebhookSettings,
    connections: Connections<Client>,
}

impl Webhook {
    /// Creates the work. No connection is opened yet.
    #[must_use]
    pub fn new(mut settings: WebhookSettings) -> Self {
        // A longer body is not kept, and would be in memory.
        settings.response_max_bytes = settings.response_max_bytes.min(MAX_RESULT_BYTES + 1);
        Self { settings, connections: Connections::default() }
    }

    fn new_client(&self) -> reqwest::Result<Client> {
        http_client()
            .connect_timeout(self.settings.connect_timeout)
            .user_agent(concat!("idempotent-sqs/", env!("CARGO_PKG_VERSION")))
            .build()
    }
}

impl Work<Message> for Webhook {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let ends = claim.ends() - MARGIN;
        let until = Instant::now().checked_add(self.settings.timeout).map_or(ends, |limit| ends.min(limit));
        if until <= Instant::now() {
            return Err(WorkError::busy("no time was left to call the webhook"));
        }
        let body = message.body();
        let client = self.connections.unless_frozen(|| self.new_client()).map_err(WorkError::unavailable)?;
        let mut request = client
            .post(self.settings.url.clone())
            .header(CONTENT_TYPE, content_type(body))
            .header("Idempotency-Key", header_value(claim.key().as_str()))
            .header("Idempotency-Fence", claim.fence().0)
            .header("Idempotency-Attempt", u16::from(claim.attempt()));
        if let Some(count) = message.receive_count {
            request = request.header("Idempotency-Receive-Count", count);
        }
        if claim.is_recovery() {
            request = request.header("Idempotency-Recovery", "true");
        }
        let response = request::send(request, body, until).await?;
        response::check(&response)?;
        let body = response::body(response, self.settings.response_max_bytes, until).await;
        // A body that was not read is returned as a result that is too large to be kept.
        Ok(body.unwrap_or_else(|| vec![0; claim.max_kept_result() + 1]))
    }

    /// [`WebhookSettings::timeout`], and 100 ms.
    fn longest_run(&self, _message: &Message) -> Duration {
        self.settings.timeout.saturating_add(MARGIN)
    }
}

/// The call ends this long before the core would cancel the work, which would make the attempt uncertain.
const MARGIN: Duration = Duration::from_millis(100);

fn content_type(body: &str) -> &'static str {
    match serde_json::from_str::<IgnoredAny>(body) {
        Ok(_) => "application/json",
        Err(_) => "text/plain; charset=utf-8",
    }
}

/// The key as the value of a header. All characters that are not visible ASCII are percent-encoded, and so is `%`, so
/// that different keys have different values.
fn header_value(key: &str) -> String {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    utf8_percent_encode(key, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_its_timeout_and_the_margin_before_the_deadline() {
        let longest = |timeout| {
            let mut settings = WebhookSettings::new("https://pay.example".parse().unwrap());
            settings.timeout = timeout;
            Webhook::new(settings).longest_run(&Message::default())
        };
        assert_eq!(longest(Duration::from_secs(10)), Duration::from_millis(10_100));
        assert_eq!(longest(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn no_more_of_a_response_is_read_than_shows_that_it_is_too_large_to_be_a_result() {
        let most = |response_max_bytes| {
            let mut settings = WebhookSettings::new("https://pay.example".parse().unwrap());
            settings.response_max_bytes = response_max_bytes;
            Webhook::new(settings).settings.response_max_bytes
        };
        assert_eq!(most(4097), 4097);
        assert_eq!(most(usize::MAX), MAX_RESULT_BYTES + 1);
    }

    #[test]
    fn a_key_of_visible_ascii_is_sent_unchanged() {
        assert_eq!(header_value("pay_7f3a/2026-11:EUR{1}"), "pay_7f3a/2026-11:EUR{1}");
    }

    #[test]
    fn any_other_key_is_percent_encoded() {
        assert_eq!(header_value(" a\nb\0c"), "%20a%0Ab%00c");
        assert_eq!(header_value("a%0Ab"), "a%250Ab");
        assert_eq!(header_value("größe"), "gr%C3%B6%C3%9Fe");
    }
}
