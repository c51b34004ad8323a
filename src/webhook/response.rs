//! What a response of the webhook means.

use std::error::Error;
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::idempotency::{WorkError, error_chain};

/// Returns an error unless the status means that the work is done.
pub(super) fn check(response: &Response) -> Result<(), WorkError> {
    let status = response.status();
    let reason = format!("the webhook returned {}", status.as_u16());
    match status {
        _ if status.is_success() => Ok(()),
        // The receiver still processes an earlier request with the same key, or does not accept this one yet.
        StatusCode::CONFLICT | StatusCode::TOO_EARLY => Err(match retry_after(response.headers()) {
            Some(after) => WorkError::busy_after(reason, after),
            None => WorkError::busy(reason),
        }),
        // The receiver is overloaded or down, and did nothing.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Err(match retry_after(response.headers()) {
            Some(after) => WorkError::unavailable_after(reason, after),
            None => WorkError::unavailable(reason),
        }),
        // A server or a proxy timed out on a request that it may have read.
        StatusCode::REQUEST_TIMEOUT => Err(WorkError::uncertain(reason)),
        // A redirect is not followed: a POST may take effect only at the configured URL.
        _ if status.is_redirection() || status.is_client_error() => Err(WorkError::permanent(reason)),
        _ => Err(WorkError::uncertain(reason)),
    }
}

/// The body, if it has fewer than `max_bytes` and is complete before `until`. The work is done in any case, so an
/// incomplete body is only logged.
pub(super) async fn body(mut response: Response, max_bytes: usize, until: Instant) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let read = async {
        while body.len() < max_bytes
            && let Some(chunk) = response.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok::<_, reqwest::Error>(())
    };
    let error: Box<dyn Error + Send + Sync> = match timeout_at(until, read).await {
        Ok(Ok(())) => return (body.len() < max_bytes).then_some(body),
        Ok(Err(error)) => error.without_url().into(),
        Err(elapsed) => elapsed.into(),
    };
    tracing::warn!(
        reason = error_chain(&*error),
        "the webhook's response is incomplete; the work is done, and its result is not kept"
    );
    None
}

/// The delay of the `Retry-After` header, which is a number of seconds or a date: RFC 9110, section 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) {
        // A number of any length is allowed.
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |value: &'static str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]));
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("100000000000000000000"), Some(Duration::MAX));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!((read("soon"), read(""), read(" ")), (None, None, None));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
