//! One invocation: event → messages → batch → visibility → response.

mod ahead;

use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use ahead::{Ahead, ReadAhead};
use futures_util::future::poll_immediate;
use lambda_runtime::layers::TracingLayer;
use lambda_runtime::tower::layer::layer_fn;
use lambda_runtime::{Error, LambdaEvent, Runtime, service_fn};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Instrument;

use crate::batch::Batch;
use crate::deadline::Deadline;
use crate::disposition::{Disposition, Verdict, with_causes};
use crate::message::Message;
use crate::metrics::Metrics;
use crate::sqs::{self, Received, SqsBatchResponse};
use crate::store::{Store, StoreError};
use crate::timings::Timings;
use crate::traces;
use crate::visibility::Visibility;
use crate::work::Work;

/// Answers invocations.
#[derive(Debug)]
pub struct Handler<S, W> {
    batch: Batch<S, W>,
    /// `None` leaves every visibility alone.
    visibility: Option<Visibility>,
    /// `None` measures nothing.
    metrics: Option<Metrics>,
    /// Whether a lease was seen to outlive the visibility timeout. That is said once.
    outlived: Once,
}

impl<S: Store, W: Work> Handler<S, W> {
    /// A handler that runs batches, and changes visibilities where it is given what does that.
    pub fn new(batch: Batch<S, W>, visibility: Option<Visibility>) -> Self {
        Self { batch, visibility, metrics: None, outlived: Once::new() }
    }

    /// The same, with a document of metrics for each invocation.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serve Lambda until it ends the process: one invocation after another, or, on Lambda Managed
    /// Instances, as many at once as `AWS_LAMBDA_MAX_CONCURRENCY` says. Those share the connection to
    /// Redis and the clients, and nothing else.
    ///
    /// With SnapStart it waits here for the restore. Nothing is connected and no token is made before
    /// the first invocation, so nothing of the snapshot can be stale.
    ///
    /// # Errors
    /// Where the Lambda Runtime API cannot be reached.
    pub async fn serve(self) -> Result<(), Error>
    where
        S: 'static,
        W: 'static,
    {
        let handler = Arc::new(self);
        let answer = move |LambdaEvent { payload: ReadAhead(event), context }: LambdaEvent<ReadAhead>| {
            let handler = Arc::clone(&handler);
            async move {
                let deadline = Deadline::at(context.deadline());
                let _timer = a_timer(deadline.work).await;
                handler.handle_by(LambdaEvent::new(event, context), deadline).await
            }
        };
        let runtime = Runtime::new(service_fn(answer)).layer(layer_fn(Ahead)).layer(TracingLayer::new());
        // On the heap once, rather than moved whole by every caller.
        Box::pin(runtime.run_concurrent()).await
    }

    /// One invocation.
    ///
    /// # Errors
    /// Where no message can be answered on its own: the event is not SQS's, a record has no
    /// messageId, or the store was out of reach before any work ran. All messages come again.
    pub async fn handle(&self, event: LambdaEvent<Received>) -> Result<SqsBatchResponse, Error> {
        let deadline = Deadline::at(event.context.deadline());
        self.handle_by(event, deadline).await
    }

    async fn handle_by(&self, event: LambdaEvent<Received>, deadline: Deadline) -> Result<SqsBatchResponse, Error> {
        let span = traces::of_invocation(&event.context.request_id, event.context.xray_trace_id.as_deref());
        let answer = self.answer(event, deadline).instrument(span).await;
        // Whoever has answered may be frozen, and the spans with it.
        traces::flush(deadline.answer).await;
        answer
    }

    async fn answer(&self, event: LambdaEvent<Received>, deadline: Deadline) -> Result<SqsBatchResponse, Error> {
        let messages = event.payload.0?;
        let verdicts = self.run(&messages, deadline, &event.context.request_id).await;
        let verdicts = verdicts.map_err(|error| with_causes(&error))?;
        let judged = || messages.iter().zip(&verdicts);

        judged().for_each(|(message, verdict)| log(message, verdict));
        if judged().any(|(message, verdict)| came_before_its_lease_ended(message, verdict)) {
            self.outlived.call_once(|| {
                tracing::warn!(
                    "a message was delivered again while somebody holds its lease: is the queue's visibility timeout \
                     longer than the function's timeout plus LEASE_GRACE_MS?"
                );
            });
        }
        if let Some(visibility) = &self.visibility {
            let changes: Vec<_> = judged().filter_map(|(message, verdict)| Some((message, wait(verdict)?))).collect();
            visibility.change(&changes, deadline.answer).await;
        }
        Ok(sqs::response(judged().map(|(message, verdict)| (message, verdict.disposition))))
    }

    async fn run(
        &self,
        messages: &[Message],
        deadline: Deadline,
        request_id: &str,
    ) -> Result<Vec<Verdict>, StoreError> {
        let timings = Timings::default();
        let verdicts = self.batch.run_timed(messages, deadline, self.metrics.is_some().then_some(&timings)).await;
        if let Some(metrics) = &self.metrics {
            metrics.print(request_id, messages.len(), &verdicts, &timings);
        }
        verdicts
    }
}

/// A timer that the runtime knows of. While it knows of none that is as early, each new one wakes it by a system
/// call, and a batch has many.
async fn a_timer(until: Instant) -> Pin<Box<Sleep>> {
    let mut timer = Box::pin(sleep_until(until));
    let _to_come = poll_immediate(timer.as_mut()).await;
    yield_now().await;
    timer
}

/// A message that comes for the second time or later should find an ended lease, unless its key has
/// other messages too.
fn came_before_its_lease_ended(message: &Message, verdict: &Verdict) -> bool {
    verdict.outcome == "CONFLICT" && message.receive_count.is_some_and(|count| count > 1)
}

fn wait(verdict: &Verdict) -> Option<Duration> {
    match verdict.disposition {
        Disposition::Redeliver { after } => after,
        Disposition::Done => None,
    }
}

/// One line a message. Never a payload.
fn log(message: &Message, verdict: &Verdict) {
    macro_rules! line {
        ($level:ident, $disposition:literal) => {
            tracing::$level!(
                message_id = message.id,
                idempotency_key = verdict.key.as_ref().map(|key| key.as_str()),
                outcome = verdict.outcome,
                disposition = $disposition,
                retry_after_s = wait(verdict).map(|after| after.as_secs_f64().ceil()),
                fence = verdict.fence.map(|fence| fence.0),
                attempt = verdict.attempt,
                receive_count = message.receive_count,
                reason = &*verdict.reason,
                "message"
            )
        };
    }
    match verdict.disposition {
        Disposition::Done => line!(info, "done"),
        Disposition::Redeliver { after: _ } => line!(warn, "redeliver"),
    }
}
