#![cfg_attr(docsrs, feature(doc_cfg))]
//! A [`tower`](https://docs.rs/tower) layer for the HTTP header `Idempotency-Key`, for axum, hyper and `lambda_http`.
//!
//! A client that does not know whether its request took effect sends it again with the same key. The layer runs the
//! first request, keeps its response, and answers each retry with it. It follows
//! [draft-ietf-httpapi-idempotency-key-header-07](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/07/).
//!
//! ```
//! use axum::{Extension, Router, routing::post};
//! use http::StatusCode;
//! use idempotent_sqs::MemoryStore;
//! use idempotent_sqs_http::{IdempotencyLayer, IdempotentRequest, Principal};
//!
//! /// The authenticated caller. The authentication outside of the layer inserts it as an extension of the request.
//! #[derive(Clone)]
//! struct Account(String);
//!
//! async fn pay(Extension(request): Extension<IdempotentRequest>) -> (StatusCode, String) {
//!     if request.is_recovery {
//!         // An earlier attempt may have paid: check before paying again.
//!     }
//!     (StatusCode::CREATED, format!("paid under {}", request.client_key))
//! }
//!
//! let layer = IdempotencyLayer::builder(MemoryStore::default(), |request| {
//!     // Whose key it is. It must be the same in every retry, so not a token that is refreshed.
//!     request.extensions.get::<Account>().map(|account| Principal::new(&account.0))
//! })
//! .build();
//! let router: Router = Router::new().route("/payments", post(pay)).layer(layer);
//! ```
//!
//! # Responses
//! | situation | answer |
//! |---|---|
//! | first request | the handler's response |
//! | retry of a completed request | its status, headers and body, with `Idempotent-Replayed: true` |
//! | retry while the first request runs, also with another payload | [409](#in-flight) with `Retry-After`, the remaining time of its lease |
//! | the key was used for another request | [422](#mismatch) |
//! | no key, or a malformed one | [400](#key-missing) |
//! | no principal | [401](#principal-missing) |
//! | request body too large, also for a limit outside of the layer, or too slow | [413](#body-too-large), [408](#body-timeout) |
//! | store out of reach | [503](#store-unavailable); the handler does not run |
//! | the handler panicked, or ran out of time | [500](#failed), [504](#deadline) |
//! | attempts used up | [500](#failed-before) |
//!
//! The layer's own answers are problem details ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)). A valid key is
//! echoed in each response.
//!
//! # What is kept
//! | response of the handler | record | a retry |
//! |---|---|---|
//! | 2xx, 3xx, 4xx except 429 | COMPLETED with status, headers and body | gets the same response |
//! | 429, 503 | released | runs |
//! | other 5xx, an unknown status, a panic, an error of the service, the deadline | FAILED, uncertain | runs as a recovery |
//! | larger than the limit, a stream, an upgrade | COMPLETED with status and headers | gets status and headers, and `Idempotent-Body-Omitted: true` |
//!
//! A stream is `text/event-stream`, or a body that has not ended five seconds after its head, or at half of the time
//! that remains if that is sooner. What a handler does while its body streams is not protected: the request is already
//! completed, and a client that disconnects ends it.
//!
//! With [`ServerErrors::Keep`] other 5xx are kept as 4xx are. A recovery has [`IdempotentRequest::is_recovery`]. After
//! a release the key is free, also for another request, unless an earlier run may have taken effect.
//!
//! Kept responses do not have these headers: those of one connection (RFC 9110, section 7.6.1), `Date`,
//! `Server-Timing`, `Set-Cookie`, `X-CSRF-Token`, those of authentication, and ids of requests and traces. A response
//! whose trailers were read is kept without them, so the layer is not for gRPC.
//!
//! If the store loses a record, a retry runs again as a first request. An inbox (see below) prevents that.
//!
//! # In one transaction with the effect
//! With [`IdempotencyLayer::endpoint`] a [`Work`](idempotent_sqs::Work) answers the requests. If it is the `Inbox` of
//! `idempotent-sqs-postgres`, the response commits in one transaction with the effect: it takes effect once even if the
//! store loses its records.
//!
//! # A key that failed for good
//! A retried HTTP request has no messageId that would distinguish it from the request that failed. Once a key has used
//! up [`Policy::max_attempts`](idempotent_sqs::Policy::max_attempts), its retries are answered with
//! [500](#failed-before) and do not run for [`Policy::failed_retention`](idempotent_sqs::Policy::failed_retention),
//! counted from the start of the last attempt. Then the next retry runs, as a recovery if an attempt may have taken
//! effect, and attempts are counted from 1. With
//! [`Recovery::Park`](idempotent_sqs::idempotency::Recovery::Park) no recovery runs, except of a work with its own record
//! at an [endpoint](IdempotencyLayer::endpoint), so such a key fails for as long as its record exists. The record, and
//! with it the knowledge that an attempt may have taken effect, lasts for
//! [`Policy::retention`](idempotent_sqs::Policy::retention).
//!
//! # Disconnected clients and shutdown
//! The handler runs in a task of its own, so a client that disconnects does not cancel it. Call
//! [`IdempotencyLayer::drained`] after the server has stopped accepting requests. On Lambda, where a process is frozen
//! after its response, set [`spawn(false)`](IdempotencyLayerBuilder::spawn) and the invocation's
//! [`deadline`](IdempotencyLayerBuilder::deadline).
//!
//! # Problems
//! ## key-missing
//! The request needs an `Idempotency-Key`.
//! ## key-malformed
//! The key is a String of structured fields ([RFC 8941](https://www.rfc-editor.org/rfc/rfc8941), section 3.3.3) such as
//! `"7f3a"`, or the same without quotes, and has 1 to 255 characters. Parameters are not allowed.
//! ## principal-missing
//! The request has no principal that its key belongs to. The layer does not authenticate requests, so it sends no
//! `WWW-Authenticate`. Put a layer that authenticates outside of this one.
//! ## body-too-large
//! The body is larger than the layer reads, or than a limit outside of the layer.
//! ## body-timeout
//! The body did not arrive in time. Nothing ran.
//! ## body-unreadable
//! The body could not be read. Nothing ran.
//! ## in-flight
//! A request with this key is running. Retry after the given time.
//! ## mismatch
//! The key was used for a request with another method, path, query, content type, content encoding or body.
//! ## response-not-kept
//! The request was completed, and its response was not kept or cannot be read now.
//! ## failed
//! The handler failed, and the request may have taken effect. A retry runs as a recovery, unless this was the last
//! attempt or recoveries are parked: then it gets [500](#failed-before). If the result of an endpoint's work is no
//! response, a retry gets [410](#response-not-kept).
//! ## deadline
//! The handler ran out of time, and the request may have taken effect. A retry runs as a recovery, unless this was the
//! last attempt or recoveries are parked: then it gets [500](#failed-before).
//! ## failed-before
//! Requests with this key have failed permanently: this request, or earlier ones. If this request ran and had no
//! effect, the detail says so. Otherwise an earlier request may have taken effect.
//! ## not-started
//! There was no time left to start the handler. Retry after the given time.
//! ## unavailable
//! The work cannot be done now. This request had no effect. The detail says if an earlier one may have had one.
//! ## store-unavailable
//! The store of idempotency records is out of reach, or the value of the key there is not a record. This request did
//! not run. A value that is not a record is not an outage: an operator must remove it, and the log has the reason.
//!
//! # Modules
//! - `key`, `principal`, `fingerprint`: what makes two requests the same
//! - `layer`, `settings`: the layer and its builder
//! - `service`: requests, with and without a key
//! - `run`: acquire, run, settle, in a task of its own
//! - `pending`: a request until it starts
//! - `handler`: the inner service as a work
//! - `endpoint`: a work instead of an inner service
//! - `stored`, `headers`: responses as results of the record
//! - `body`: bodies of requests and responses
//! - `answer`, `problem`: answers, and problem details
//! - `time_limit`: how long a request may take
//! - `request`: what the handler is told
//! - `report`: what is logged and counted
//! - `metrics`: metrics for CloudWatch (feature `emf`)

mod answer;
mod body;
mod endpoint;
mod fingerprint;
mod handler;
mod headers;
mod key;
mod layer;
#[cfg(feature = "emf")]
mod metrics;
mod pending;
mod principal;
mod problem;
mod report;
mod request;
mod run;
mod service;
mod settings;
mod stored;
mod time_limit;

pub use body::{RequestBody, ResponseBody};
pub use endpoint::IdempotentEndpoint;
pub use layer::IdempotencyLayer;
#[cfg(feature = "emf")]
#[cfg_attr(docsrs, doc(cfg(feature = "emf")))]
pub use metrics::EmfMetrics;
pub use principal::Principal;
pub use report::{RequestOutcome, RequestReport};
pub use request::IdempotentRequest;
pub use service::IdempotencyService;
pub use settings::{IdempotencyLayerBuilder, KeyRule, ServerErrors, StoreOutage};
pub use stored::encode_response;
