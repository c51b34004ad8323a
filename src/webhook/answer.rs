//! What an answer of the webhook means.

use std::error::Error;
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::idempotency::WorkError;

/// Whether the work is done, by the status of the answer.
pub(super) fn check(answer: &Response) -> Result<(), WorkError> {
    let status = answer.status();
    let reason = format!("the webhook answered {}", status.as_u16());
    match status {
        _ if status.is_success() => Ok(()),
        // The receiver did nothing for this request: it is overloaded, or still at an earlier one of the same key.
        StatusCode::CONFLICT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE => Err(match retry_after(answer.headers()) {
            Some(after) => WorkError::unavailable_after(reason, after),
            None => WorkError::unavailable(reason),
        }),
        // A server, or a proxy before it, gave up on a request that may have been read.
        StatusCode::REQUEST_TIMEOUT => Err(WorkError::uncertain(reason)),
        // A redirection is not followed: a POST may only take effect where the settings say.
        _ if status.is_redirection() || status.is_client_error() => Err(WorkError::permanent(reason)),
        _ => Err(WorkError::uncertain(reason)),
    }
}

/// The body, where it has less than `max_bytes` and all of them came before `until`. The work is done in any case, so
/// an answer that is cut off is logged, and no error.
pub(super) async fn result(mut answer: Response, max_bytes: usize, until: Instant) -> Option<Vec<u8>> {
    let mut result = Vec::new();
    let read = async {
        while result.len() < max_bytes
            && let Some(chunk) = answer.chunk().await?
        {
            result.extend_from_slice(&chunk);
        }
        Ok::<_, reqwest::Error>(())
    };
    let cut_off: Box<dyn Error + Send + Sync> = match timeout_at(until, read).await {
        Ok(Ok(())) => return (result.len() < max_bytes).then_some(result),
        Ok(Err(error)) => error.without_url().into(),
        Err(elapsed) => elapsed.into(),
    };
    let cause = cut_off.source().map(tracing::field::display);
    tracing::warn!(reason = %cut_off, cause, "the webhook's answer was cut off; the work is done, its result is not kept");
    None
}

/// Seconds or a date: RFC 9110, section 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |value: &'static str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]));
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
