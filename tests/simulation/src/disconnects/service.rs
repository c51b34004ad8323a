//! The store, and what answers the requests: a handler in a layer, or a work with its own record.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Failure, OwnRecord, RecordedAttempt, Settled, StoreError, StoredResult,
};
use idempotent_sqs::{Claim, MemoryStore, Store, Work, WorkError};
use idempotent_sqs_http::{IdempotencyLayer, encode_response};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use super::{Case, Reply, Runs};
use crate::lock;
use crate::own_records::HttpAnswer;

/// A store that replies late to the first acquire after `is_armed` is set.
pub(super) struct Late {
    pub(super) reply: Reply,
    pub(super) records: MemoryStore,
    pub(super) is_armed: AtomicBool,
}

impl Store for Late {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        if !self.is_armed.swap(false, Ordering::Relaxed) {
            return self.records.acquire(request).await;
        }
        match self.reply {
            Reply::Late(after) => {
                let acquired = self.records.acquire(request).await;
                sleep(after).await;
                acquired
            }
            Reply::Slow(after) => {
                sleep(after).await;
                self.records.acquire(request).await
            }
            Reply::Unavailable(after) => {
                sleep(after).await;
                Err(StoreError::unavailable("no reply"))
            }
            Reply::Never => pending().await,
        }
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.records.release(request, claim).await
    }
}

/// The body of a request whose work fails permanently.
pub(super) const REJECTED: &str = "a payment that is rejected";

/// What answers the requests.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) case: Case,
    pub(super) begun: Instant,
    pub(super) runs: Arc<Mutex<Runs>>,
}

impl Handler {
    /// The answer to a request with this body.
    pub(super) async fn answer(&self, layer: &IdempotencyLayer<Arc<Late>>, body: &'static str) -> HttpAnswer {
        let request = request(body);
        if self.case.is_endpoint {
            let Ok(response) = layer.endpoint(self.clone()).oneshot(request).await;
            return HttpAnswer::of(response).await;
        }
        let handler = self.clone();
        let inner = service_fn(move |_| {
            let handler = handler.clone();
            async move {
                handler.handle().await;
                Ok::<_, Infallible>(response().map(|body| Full::new(Bytes::from(body))))
            }
        });
        let Ok(response) = layer.layer(inner).oneshot(request).await;
        HttpAnswer::of(response).await
    }

    /// Runs for as long as the case says.
    async fn handle(&self) {
        let number = {
            let mut runs = lock(&self.runs);
            runs.push((self.begun.elapsed(), None));
            runs.len() - 1
        };
        sleep(self.case.takes).await;
        lock(&self.runs)[number].1 = Some(self.begun.elapsed());
    }
}

pub(super) fn request(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("/payments").header("idempotency-key", "pay_1");
    request.body(Full::new(Bytes::from(body))).expect("it is a valid request")
}

fn response() -> Response<&'static str> {
    let mut response = Response::new("paid");
    *response.status_mut() = StatusCode::CREATED;
    response
}

impl Work<Request<Bytes>> for Handler {
    async fn run(&self, _: &Claim, _: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Request<Bytes>>> {
        Some(self)
    }
}

impl OwnRecord<Request<Bytes>> for Handler {
    fn attempt<'a>(
        &'a self,
        _: &'a Claim,
        request: &'a Request<Bytes>,
    ) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async move {
            self.handle().await;
            if request.body() == REJECTED {
                return Err(WorkError::permanent("rejected"));
            }
            Ok(RecordedAttempt::Done(encode_response(&response())))
        })
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async move {
            sleep(self.case.reads).await;
            Ok(self.case.has_row.then(|| encode_response(&response())))
        })
    }
}
