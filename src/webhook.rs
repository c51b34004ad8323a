//! The ready business logic: sends each message to a webhook.
//!
//! - `answer`: what a response means
//! - `connections`: connections that are reused between invocations
//! - `request`: sends a request, and determines whether a failed one may have been sent

mod answer;
mod connections;
mod request;

use std::fmt;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
pub use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::idempotency::{Claim, Work, WorkError};
use crate::sqs::Message;

use connections::Connections;

/// Settings of a [`Webhook`].
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookSettings {
    /// The URL that messages are sent to, by POST.
    pub url: Url,
    /// Longest time from connecting to the end of the response.
    pub timeout: Duration,
    /// Longest time for name resolution, connecting and the TLS handshake. Nothing is sent before that.
    pub connect_timeout: Duration,
    /// How much of a response is read, bytes: one more than the policy keeps as a result.
    pub response_max_bytes: usize,
}

impl WebhookSettings {
    /// Settings for this URL: a timeout of 10 seconds, a connect timeout of 2 seconds and results of up to 4,096 bytes.
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

/// A [`Work`] that sends the message's body as it is, with `Content-Type` and these headers:
///
/// - `Idempotency-Key`: the key, percent-encoded where it is not visible ASCII.
/// - `Idempotency-Fence`: a number that only grows, also where the store lost the record, unless its clock is then
///   behind.
/// - `Idempotency-Attempt`: which attempt it is, from 1.
/// - `Idempotency-Receive-Count`: [`Message::receive_count`], where it is known.
/// - `Idempotency-Recovery: true`, only where an earlier attempt may have taken effect.
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | done; the body is the result, unless it is incomplete or too large |
/// | 409, 425, 429, 503; no connection | [`WorkError::unavailable`], and `Retry-After` is honoured |
/// | 3xx (never followed), any other 4xx but 408 | [`WorkError::permanent`] |
/// | anything else, or none after the request was sent | [`WorkError::uncertain`] |
///
/// A receiver that remembers the key makes even a recovery harmless.
#[derive(Debug)]
pub struct Webhook {
    settings: WebhookSettings,
    connections: Connections,
}

impl Webhook {
    /// Creates the work. No connection is opened yet.
    #[must_use]
    pub fn new(settings: WebhookSettings) -> Self {
        let connections = Connections::new(settings.connect_timeout);
        Self { settings, connections }
    }
}

impl Work<Message> for Webhook {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let until = (claim.ends() - MARGIN).min(Instant::now() + self.settings.timeout);
        if until <= Instant::now() {
            return Err(WorkError::unavailable("no time was left to call the webhook"));
        }
        let body = message.body();
        let client = self.connections.client().map_err(WorkError::unavailable)?;
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
        let answer = request::send(request, body, until).await?;
        answer::check(&answer)?;
        let max_bytes = self.settings.response_max_bytes;
        // As many bytes as are never kept stand for a result that is not.
        Ok(answer::result(answer, max_bytes, until).await.unwrap_or_else(|| vec![0; max_bytes]))
    }
}

/// Time between the last step of the work and its cut-off by the core, which would make it uncertain.
const MARGIN: Duration = Duration::from_millis(100);

fn content_type(body: &str) -> &'static str {
    match serde_json::from_str::<IgnoredAny>(body) {
        Ok(_) => "application/json",
        Err(_) => "text/plain; charset=utf-8",
    }
}

/// The key as a header can carry it: what is not visible ASCII is percent-encoded, and so is `%`,
/// so that two keys never look the same.
fn header_value(key: &str) -> String {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    utf8_percent_encode(key, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_visible_ascii_is_its_own_header() {
        assert_eq!(header_value("pay_7f3a/2026-11:EUR{1}"), "pay_7f3a/2026-11:EUR{1}");
    }

    #[test]
    fn any_other_key_is_a_header_of_its_own() {
        assert_eq!(header_value(" a\nb\0c"), "%20a%0Ab%00c");
        assert_eq!(header_value("a%0Ab"), "a%250Ab");
        assert_eq!(header_value("größe"), "gr%C3%B6%C3%9Fe");
    }
}
