//! Delivers each message once to a webhook.

use std::fmt;
use std::time::{Duration, SystemTime};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
pub use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use serde::de::IgnoredAny;
use tokio::sync::OnceCell;

use crate::message::Message;
use crate::store::Claim;
use crate::work::{Work, WorkError};

/// A webhook, and how much patience to have with it.
#[derive(Clone)]
pub struct WebhookSettings {
    /// Where messages are sent, by POST.
    pub url: Url,
    /// From connecting to the end of the answer.
    pub timeout: Duration,
    /// How much of an answer is read, bytes: one more than is kept as a result.
    pub answer_max_bytes: usize,
}

/// The URL may hold a secret, so it is never shown.
impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A [`Work`] that sends the message's body as it is, with `Content-Type`, `Idempotency-Key`,
/// `Idempotency-Fence`, `Idempotency-Attempt` and, on a recovery, `Idempotency-Recovery: true`.
/// The answer's body is the result.
///
/// A receiver that remembers the key makes even a recovery harmless.
#[derive(Debug)]
pub struct Webhook {
    settings: WebhookSettings,
    client: OnceCell<Client>,
}

impl Webhook {
    /// A webhook. Nothing is connected yet.
    #[must_use]
    pub fn new(settings: WebhookSettings) -> Self {
        Self { settings, client: OnceCell::new() }
    }

    /// Made at the first use: loading certificates takes longer than starting the function.
    async fn client(&self) -> Result<&Client, WorkError> {
        let client = || async {
            Client::builder()
                .redirect(redirect::Policy::none())
                .timeout(self.settings.timeout)
                .user_agent(concat!("idempotent-sqs/", env!("CARGO_PKG_VERSION")))
                .build()
        };
        self.client.get_or_try_init(client).await.map_err(WorkError::retryable)
    }
}

impl Work for Webhook {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        let body = message.body();
        let mut request = self
            .client()
            .await?
            .post(self.settings.url.clone())
            .header(CONTENT_TYPE, content_type(body))
            .header("Idempotency-Key", header_value(claim.key().as_str()))
            .header("Idempotency-Fence", claim.fence().0)
            .header("Idempotency-Attempt", u16::from(claim.attempt()));
        if claim.is_recovery() {
            request = request.header("Idempotency-Recovery", "true");
        }
        let answer = request.body(body.to_owned()).send().await.map_err(unsent_or_uncertain)?;
        let status = answer.status();
        let reason = || format!("the webhook answered {}", status.as_u16());
        match status {
            _ if status.is_success() => result(answer, self.settings.answer_max_bytes).await,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Err(not_now(&answer, reason()))
            }
            _ if status.is_server_error() => Err(not_now(&answer, reason())),
            // Redirections are not followed: a POST that wanders is one that nobody asked for.
            _ => Err(WorkError::permanent(reason())),
        }
    }
}

/// Without a connection nothing was sent; after that, nobody knows.
fn unsent_or_uncertain(error: reqwest::Error) -> WorkError {
    let error = error.without_url();
    if error.is_connect() || error.is_builder() { WorkError::retryable(error) } else { WorkError::uncertain(error) }
}

fn not_now(answer: &Response, reason: String) -> WorkError {
    match answer.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?)) {
        Some(after) => WorkError::retryable_after(reason, after),
        None => WorkError::retryable(reason),
    }
}

/// Seconds or a date: RFC 9110, section 10.2.3.
fn retry_after(value: &str) -> Option<Duration> {
    let seconds = value.trim().parse().ok().map(Duration::from_secs);
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(value.trim()).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    })
}

/// The answer's body, no more of it than tells that it is too large to be kept.
async fn result(mut answer: Response, max_bytes: usize) -> Result<Vec<u8>, WorkError> {
    let mut result = Vec::new();
    while result.len() < max_bytes {
        match answer.chunk().await.map_err(|error| WorkError::uncertain(error.without_url()))? {
            Some(chunk) => result.extend_from_slice(&chunk),
            None => break,
        }
    }
    Ok(result)
}

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

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after("120"), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
    }
}
