//! A request with a key, from the acquire to its answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use idempotent_sqs::idempotency::{Outcome, Report, error_chain};
use idempotent_sqs::{Deadline, Delivery, Store};
use tokio::time::{Instant, sleep, timeout_at};
use tower_service::Service;

use crate::answer::{Answer, Summary, conclude, reject};
use crate::body::{RequestBody, ResponseBody};
use crate::handler::{Handler, Pending};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::report::RequestOutcome;
use crate::settings::StoreOutage;
use crate::time_limit::TimeLimit;

/// Pause between two acquires of a request that waits for another one.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// Acquires the record, runs the handler and records its response. Returns `None` if the request was withdrawn before
/// the handler started.
pub(crate) async fn run<Inner, S, B, RB>(
    shared: &Shared<S>,
    pending: &Pending<Inner, B>,
    client_key: &str,
    delivery: &Delivery,
    limit: TimeLimit,
) -> Option<(Answer<RB, Inner::Error>, Summary)>
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
    let handler = Handler { settings, client_key, pending, answer: Mutex::new(None) };
    let waits_until = limit.waits_until(settings.wait);
    let (report, deadline) = loop {
        let deadline = limit.deadline();
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
        // The record was released.
        Ok(Report { outcome: Outcome::Unavailable { .. }, .. }) if answer.is_none() => None,
        Ok(report) => Some(conclude(report, answer, deadline, settings.mismatch_status)),
        Err(error) => {
            tracing::warn!(reason = error_chain(&error), "the store did not reply");
            let request = pending.take()?;
            // A value that is not a record is no outage.
            let policy = if error.is_unavailable() { settings.store_outage } else { StoreOutage::Reject };
            Some(without_store(request, policy, limit.deadline()).await)
        }
    }
}

/// The store is out of reach, and the handler has not run. It runs up to this deadline, if the policy lets it.
pub(crate) async fn without_store<Inner, B, RB>(
    (mut inner, request): (Inner, Request<RequestBody<B>>),
    policy: StoreOutage,
    deadline: Deadline,
) -> (Answer<RB, Inner::Error>, Summary)
where
    Inner: Service<Request<RequestBody<B>>, Response = Response<RB>>,
{
    match policy {
        StoreOutage::RunUnprotected if !deadline.has_passed() => {
            match timeout_at(deadline.work, inner.call(request)).await {
                Ok(answer) => {
                    (answer.map(|response| response.map(ResponseBody::unread)), RequestOutcome::Unprotected.into())
                }
                Err(_elapsed) => reject(Problem::Deadline),
            }
        }
        StoreOutage::Reject | StoreOutage::RunUnprotected => reject(Problem::StoreUnavailable),
    }
}
