//! The layer.

use std::sync::Arc;

use http::request::Parts;
use idempotent_sqs::{Idempotency, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_layer::Layer;
use tracing::Instrument;

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
    pub(crate) settings: Settings,
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
    /// A builder with default settings. `principal` returns whose key it is; a request for which it returns `None` is
    /// rejected with 401. To share keys among all clients, return [`Principal::GLOBAL`].
    ///
    /// The store's namespace must not be used for anything else.
    pub fn builder(
        store: S,
        principal: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> IdempotencyLayerBuilder<S> {
        IdempotencyLayerBuilder::new(store, principal)
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
