//! A request with a key, from the acquire to its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use idempotent_sqs::idempotency::{Outcome, Report, StoreError, error_chain};
use idempotent_sqs::{Deadline, Delivery, Store};
use tokio::time::{Instant, sleep};
use tower_service::Service;

use crate::answer::{Answer, Summary, conclude, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::handler::Handler;
use crate::key::ClientKey;
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::RequestOutcome;
use crate::settings::StoreOutage;

/// Pause between two acquires of a request that waits for another one.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// A request whose key, principal and body are known.
pub(crate) struct KeyedRequest {
    pub(crate) key: ClientKey,
    pub(crate) delivery: Delivery,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

/// Acquires the record, runs the handler and records its response. Runs to its end even if the client disconnects.
pub(crate) async fn run<Inner, S, B, RB>(
    shared: Arc<Shared<S>>,
    inner: Inner,
    request: KeyedRequest,
) -> (Answer<RB, Inner::Error>, Summary)
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>> + Send,
    Inner::Future: Send,
    Inner::Error: Send,
    S: Store,
    B: Body<Data = Bytes> + Send,
    RB: Body<Data = Bytes> + Send,
    RB::Error: Send,
{
    let settings = &shared.settings;
    let KeyedRequest { key, delivery, parts, body } = request;
    let request = Request::from_parts(parts, RequestBody::read(body));
    let handler = Handler {
        settings,
        client_key: &key.text,
        request: Mutex::new(Some((inner, request))),
        answer: Mutex::new(None),
    };
    let waits_until = Instant::now() + settings.wait;
    let (report, deadline) = loop {
        let deadline = Deadline::within(settings.timeout);
        let report = shared.idempotency.run(&delivery.clone().deadline(deadline), &handler, &()).await;
        match report {
            Ok(Report { outcome: Outcome::Conflict { lease_remains }, .. }) if Instant::now() < waits_until => {
                let pause = WAIT_STEP.min(lease_remains).min(waits_until - Instant::now());
                sleep(pause.max(Duration::from_millis(1))).await;
            }
            report => break (report, deadline),
        }
    };
    let answer = handler.answer.into_inner().unwrap_or_else(PoisonError::into_inner);
    match report {
        Ok(report) => conclude(report, answer, deadline, settings.mismatch_status),
        Err(error) => {
            let request = handler.request.into_inner().unwrap_or_else(PoisonError::into_inner);
            out_of_reach(&error, request, settings.store_outage).await
        }
    }
}

/// The store did not reply to the acquire. The handler has not run.
async fn out_of_reach<Inner, B, RB>(
    error: &StoreError,
    request: Option<(Inner, Request<RequestBody<B>>)>,
    policy: StoreOutage,
) -> (Answer<RB, Inner::Error>, Summary)
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>>,
{
    tracing::warn!(reason = error_chain(error), "the store did not reply");
    match request {
        // A value that is not a record is no outage.
        Some((mut inner, request)) if policy == StoreOutage::RunUnprotected && error.is_unavailable() => {
            let answer = inner.call(request).await.map(|response| response.map(ResponseBody::unread));
            (answer, RequestOutcome::Unprotected.into())
        }
        _ => reject(Problem::StoreUnavailable),
    }
}
