//! The layer's own answers: problem details (RFC 9457).

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// Why the layer answers itself. The documentation of the crate has a section for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    KeyMissing,
    KeyMalformed,
    PrincipalMissing,
    BodyTooLarge,
    BodyTimeout,
    BodyUnreadable,
    InFlight {
        lease_remains: Duration,
    },
    Mismatch {
        status: StatusCode,
    },
    ResponseNotKept,
    Failed,
    Deadline,
    FailedBefore,
    /// `is_doubtful` as for [`Unavailable`](Self::Unavailable).
    FailedPermanently {
        is_doubtful: bool,
    },
    NotStarted {
        after: Duration,
    },
    /// `is_doubtful` if an earlier request with the key may have taken effect.
    Unavailable {
        after: Duration,
        is_doubtful: bool,
        /// Whether the key is free.
        is_released: bool,
    },
    StoreUnavailable,
}

/// The page with a section for each problem.
const TYPES: &str = "https://docs.rs/idempotent-sqs-http/latest/idempotent_sqs_http/#";

impl Problem {
    /// Status, the last part of the type, title and detail. None of them needs an escape in JSON.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn texts(self) -> (StatusCode, &'static str, &'static str, &'static str) {
        match self {
            Self::KeyMissing => (
                StatusCode::BAD_REQUEST,
                "key-missing",
                "Idempotency-Key is missing",
                "Send the header Idempotency-Key with a value that is unique for this operation, such as a UUID.",
            ),
            Self::KeyMalformed => (
                StatusCode::BAD_REQUEST,
                "key-malformed",
                "Idempotency-Key is malformed",
                "Send one Idempotency-Key of 1 to 255 printable ASCII characters, in double quotes or bare.",
            ),
            Self::PrincipalMissing => (
                StatusCode::UNAUTHORIZED,
                "principal-missing",
                "The request has no principal",
                "Idempotency keys belong to a principal: authenticate the request.",
            ),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
                "Requests with an Idempotency-Key have a limited size.",
            ),
            Self::BodyTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "body-timeout",
                "The body did not arrive in time",
                "This request did not run. Send it again.",
            ),
            Self::BodyUnreadable => (
                StatusCode::BAD_REQUEST,
                "body-unreadable",
                "The body could not be read",
                "This request did not run. Send it again.",
            ),
            Self::InFlight { .. } => (
                StatusCode::CONFLICT,
                "in-flight",
                "A request with this Idempotency-Key is running",
                "Send the same request again after the time in Retry-After.",
            ),
            Self::Mismatch { status } => (
                status,
                "mismatch",
                "Idempotency-Key is already used",
                "This key was used for another request. Use a new key for a new operation.",
            ),
            Self::ResponseNotKept => (
                StatusCode::GONE,
                "response-not-kept",
                "The response is no longer available",
                "The request was completed before, and its response was not kept or cannot be read now.",
            ),
            Self::Failed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed",
                "The request failed",
                "It may have taken effect. Send it again with the same key.",
            ),
            Self::Deadline => (
                StatusCode::GATEWAY_TIMEOUT,
                "deadline",
                "The request ran out of time",
                "It may have taken effect. Send it again with the same key.",
            ),
            Self::FailedBefore => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed-before",
                "Requests with this Idempotency-Key have failed for good",
                "They are not tried again for now. The request may have taken effect before.",
            ),
            Self::FailedPermanently { is_doubtful } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed-before",
                "Requests with this Idempotency-Key have failed for good",
                if is_doubtful {
                    "They are not tried again for now. This request had no effect, but an earlier one with this key may have \
                     had one."
                } else {
                    "They are not tried again for now. This request had no effect."
                },
            ),
            Self::NotStarted { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not-started",
                "The request was not started in time",
                "This request did not run. Send it again with the same key after the time in Retry-After.",
            ),
            Self::Unavailable { is_doubtful, .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "The request cannot be done now",
                if is_doubtful {
                    "This request had no effect, but an earlier one with this key may have had one. Send it again with the \
                     same key after the time in Retry-After."
                } else {
                    "This request had no effect. Send it again with the same key after the time in Retry-After."
                },
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store of idempotency records is out of reach",
                "This request did not run. Send it again with the same key after the time in Retry-After.",
            ),
        }
    }

    pub(crate) fn response(self) -> Response<Bytes> {
        let (status, kind, title, detail) = self.texts();
        let body =
            format!(r#"{{"type":"{TYPES}{kind}","title":"{title}","status":{},"detail":"{detail}"}}"#, status.as_u16());
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }

    /// The value of `Retry-After`, seconds.
    fn retry_after(self) -> Option<u64> {
        match self {
            Self::InFlight { lease_remains } => Some(seconds(lease_remains)),
            Self::Unavailable { after, .. } | Self::NotStarted { after } => Some(seconds(after)),
            Self::StoreUnavailable => Some(1),
            Self::KeyMissing
            | Self::KeyMalformed
            | Self::PrincipalMissing
            | Self::BodyTooLarge
            | Self::BodyTimeout
            | Self::BodyUnreadable
            | Self::Mismatch { .. }
            | Self::ResponseNotKept
            | Self::Failed
            | Self::Deadline
            | Self::FailedBefore
            | Self::FailedPermanently { .. } => None,
        }
    }
}

/// Whole seconds, at least one. Rounded up: a retry at that time finds the lease ended.
fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1)
}
