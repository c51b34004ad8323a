//! The layer.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use idempotent_sqs::{Idempotency, Store, Work};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_layer::Layer;
use tracing::Instrument;

use crate::endpoint::IdempotentEndpoint;
use crate::principal::Principal;
use crate::service::IdempotencyService;
use crate::settings::{IdempotencyLayerBuilder, Settings};

/// A layer that makes requests with an `Idempotency-Key` take effect once. The [crate](crate) has an example.
///
/// Put it inside layers that authenticate, limit or trace, so that these also see replayed responses, and outside of
/// anything that changes the path, such as axum's `Router::nest`: the path that the layer sees is compared.
#[derive(Debug)]
pub struct IdempotencyLayer<S> {
    pub(crate) shared: Arc<Shared<S>>,
}

/// What all services of a layer share.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) idempotency: Idempotency<S>,
    pub(crate) settings: Arc<Settings>,
    /// Each running task has a receiver.
    pub(crate) running: watch::Sender<()>,
}

impl<S> Shared<S> {
    /// Runs a task that [`drained`](IdempotencyLayer::drained) waits for.
    pub(crate) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let running = self.running.subscribe();
        let task = async move {
            let ended = task.await;
            drop(running);
            ended
        };
        tokio::spawn(task.in_current_span())
    }
}

impl<S: Store> IdempotencyLayer<S> {
    /// A builder with default settings. `principal` returns whose key it is, the same in every retry; a request for
    /// which it returns `None` is rejected with 401. To share keys among all clients, return [`Principal::GLOBAL`].
    ///
    /// The store's namespace must not be used for anything else.
    pub fn builder(
        store: S,
        principal: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> IdempotencyLayerBuilder<S> {
        IdempotencyLayerBuilder::new(store, principal)
    }

    /// A service that answers with the result of a [`Work`] instead of an inner service, so that the response can be
    /// part of the transaction of an inbox (`idempotent-sqs-postgres`). The work returns its response by
    /// [`encode_response`](crate::encode_response). Every request needs a key.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use idempotent_sqs::{Claim, MemoryStore, Work, WorkError};
    /// use idempotent_sqs_http::{IdempotencyLayer, Principal, encode_response};
    ///
    /// struct Pay;
    ///
    /// impl Work<Request<Bytes>> for Pay {
    ///     async fn run(&self, claim: &Claim, request: &Request<Bytes>) -> Result<Vec<u8>, WorkError> {
    ///         let receipt = format!("paid {} bytes under {}", request.body().len(), claim.key());
    ///         Ok(encode_response(&Response::builder().status(201).body(receipt).map_err(WorkError::permanent)?))
    ///     }
    /// }
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::default(), |_| Some(Principal::GLOBAL)).build();
    /// let router: axum::Router = axum::Router::new().route_service("/payments", layer.endpoint(Pay));
    /// ```
    ///
    /// | the work returns | answer |
    /// |---|---|
    /// | `Ok` | its response, as kept; [500](crate#failed) if it is no response, and a retry gets [410](crate#response-not-kept) |
    /// | retryable, unavailable, busy | [503](crate#unavailable) with `Retry-After`; a retry runs |
    /// | uncertain, a panic, the deadline | [500](crate#failed), [504](crate#deadline); a retry is a recovery |
    /// | permanent; retryable in the last attempt | [500](crate#failed-before), for [`Policy::failed_retention`](idempotent_sqs::Policy::failed_retention) |
    ///
    /// If the store does not record the end of a run that failed retryably or permanently, the answer is 500 or 504,
    /// and a retry is a recovery. If it does not record that a run had no effect, because it was unavailable or busy,
    /// the answer is 503 with the remaining lease in `Retry-After`, and a retry after that is a recovery. Responses
    /// with 429 and 503 are released, and other 5xx are uncertain, as those of a handler are. An inbox commits its
    /// response whatever its status: return a [`WorkError`](idempotent_sqs::WorkError) to roll back.
    ///
    /// A response above `result_max_bytes` is not kept in the store; a retry gets it from the inbox, and without one
    /// [410](crate#response-not-kept). Do not put an endpoint inside a layer: it
    /// acquires the key itself, and answers with [500](crate#failed).
    pub fn endpoint<W: Work<Request<Bytes>>>(&self, work: W) -> IdempotentEndpoint<W, S> {
        IdempotentEndpoint { work: Arc::new(work), shared: Arc::clone(&self.shared) }
    }

    /// Waits until no handler runs in a task of its own. Await it before the process ends, after the server has stopped
    /// accepting requests. Handlers end at their
    /// [timeout](IdempotencyLayerBuilder::timeout).
    ///
    /// ## Cancel safety
    /// Changes nothing.
    pub async fn drained(&self) {
        self.shared.running.closed().await;
    }
}

/// Clones share their settings and tasks.
impl<S> Clone for IdempotencyLayer<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<Inner, S> Layer<Inner> for IdempotencyLayer<S> {
    type Service = IdempotencyService<Inner, S>;

    fn layer(&self, inner: Inner) -> Self::Service {
        IdempotencyService { inner, shared: Arc::clone(&self.shared) }
    }
}
