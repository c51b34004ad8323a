//! Serves Lambda: event → messages → batch → visibility → response.
//!
//! - `parsed_events`: parses each event once

mod parsed_events;

use std::env;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::future::poll_immediate;
use lambda_runtime::layers::TracingLayer;
use lambda_runtime::tower::layer::layer_fn;
use lambda_runtime::{Context, Error, LambdaEvent, Runtime, service_fn};
use serde::de::IgnoredAny;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Instrument;

use crate::idempotency::{Deadline, Store, Work, error_chain};
use crate::metrics::Metrics;
use crate::sqs::{
    self, Batch, Disposition, Message, MessageOutcome, MessageReport, SqsBatchResponse, Timings, Visibility,
};
use crate::traces;

use parsed_events::{Event, ParseEvents, ParsedEvents};

/// Handles the invocations of a function.
#[derive(Debug)]
pub struct Handler<S, W> {
    batch: Batch<S, W>,
    /// `None` leaves visibility timeouts unchanged.
    visibility: Option<Visibility>,
    /// `None` prints no metrics.
    metrics: Option<Metrics>,
    /// The warning that a lease outlived the visibility timeout is logged once.
    early_redelivery: Once,
}

/// Variables that the runtime reads: <https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html>.
const REQUIRED: [&str; 4] = [
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_VERSION",
];

impl<S: Store, W: Work<Message>> Handler<S, W> {
    /// Creates a handler. Without `visibility`, failed messages are redelivered after the visibility timeout of their
    /// queue.
    pub fn new(batch: Batch<S, W>, visibility: Option<Visibility>) -> Self {
        Self { batch, visibility, metrics: None, early_redelivery: Once::new() }
    }

    /// Prints metrics for each invocation.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves invocations until Lambda ends the process: one after another or, on Lambda Managed Instances, up to
    /// `AWS_LAMBDA_MAX_CONCURRENCY` concurrently. They share the clients and the connection to Redis.
    ///
    /// With SnapStart, this call waits for the restore of the snapshot. No connection is opened and no token is signed
    /// before the first invocation, so nothing in a snapshot can be outdated.
    ///
    /// # Errors
    /// If the process was not started by Lambda or an emulator, or the Lambda Runtime API cannot be reached. With
    /// several concurrent invocations, a request for the next invocation that fails is repeated without limit instead.
    /// If a response cannot be sent, the task that serves one of the concurrent invocations ends and is not replaced.
    /// `serve` returns an error when the last of these tasks has ended.
    ///
    /// ## Cancel safety
    /// If the future is dropped, so is the current invocation, as if the future of [`handle`](Self::handle) were
    /// dropped. On Lambda Managed Instances, invocations run in spawned tasks, which continue until the tokio runtime
    /// is shut down.
    pub async fn serve(self) -> Result<(), Error>
    where
        S: 'static,
        W: 'static,
    {
        // The runtime would panic.
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(name) = REQUIRED.into_iter().find(|name| !is_set(name)) {
            let how = "start this function by AWS Lambda, or with `cargo lambda watch`";
            return Err(format!("{name} is not set: {how}").into());
        }
        let handler = Arc::new(self);
        let events = ParsedEvents::default();
        let parse = events.clone();
        let handle_event = move |LambdaEvent { payload: _, context }: LambdaEvent<IgnoredAny>| {
            let handler = Arc::clone(&handler);
            let event = events.take(&context.request_id);
            async move { handler.handle_parsed(event, &context).await }
        };
        let runtime = Runtime::new(service_fn(handle_event))
            .layer(layer_fn(move |inner| ParseEvents { inner, events: parse.clone() }))
            .layer(TracingLayer::new());
        // Boxed, because callers would otherwise move this large future.
        Box::pin(runtime.run_concurrent()).await
    }

    /// Handles one invocation. `event` is the JSON text of its event.
    ///
    /// # Errors
    /// If there is no partial batch response: the event is not an SQS event, a record has no messageId, or the store
    /// was unavailable before any work ran. SQS delivers all messages again.
    ///
    /// ## Cancel safety
    /// If the future is dropped, each current claim remains until its lease ends, as after a crash. Messages whose work
    /// is recorded are duplicates when SQS delivers them again. Some visibility timeouts may have been changed.
    pub async fn handle(&self, event: &str, context: &Context) -> Result<SqsBatchResponse, Error> {
        self.handle_parsed(sqs::messages(event), context).await
    }

    async fn handle_parsed(&self, event: Event, context: &Context) -> Result<SqsBatchResponse, Error> {
        let deadline = Deadline::at(context.deadline());
        let _timer = register_timer(deadline.work).await;
        let span = traces::of_invocation(&context.request_id, context.xray_trace_id.as_deref());
        let response = self.respond(event, &context.request_id, deadline).instrument(span).await;
        // Lambda may freeze the process after the response, before later spans are sent.
        traces::flush(deadline.answer).await;
        response
    }

    async fn respond(&self, event: Event, request_id: &str, deadline: Deadline) -> Result<SqsBatchResponse, Error> {
        let messages = event?;
        let timings = Timings::default();
        let measured = self.metrics.is_some().then_some(&timings);
        let conclude = async |reports: &[MessageReport]| {
            if let Some(metrics) = &self.metrics {
                metrics.print(request_id, reports, &timings);
            }
            self.conclude(&messages, reports, deadline).await;
        };
        let (reports, outage) = self.batch.run_timed(&messages, deadline, measured, conclude).await;
        if let Some(outage) = outage {
            return Err(error_chain(&outage).into());
        }
        Ok(sqs::response(messages.iter().zip(&reports).map(|(message, report)| (message, report.disposition))))
    }

    /// Logs each message, and sets the visibility timeouts of those that are delivered again after a delay.
    async fn conclude(&self, messages: &[Message], reports: &[MessageReport], deadline: Deadline) {
        let reported = || messages.iter().zip(reports);
        // Without changes of visibility timeouts, the delay of a message is that of its queue, which is not known here.
        let delay = |report: &MessageReport| report.disposition.delay().filter(|_| self.visibility.is_some());
        reported().for_each(|(message, report)| log(message, report, delay(report)));
        if reported().any(|(message, report)| was_redelivered_during_lease(message, report)) {
            self.early_redelivery.call_once(|| {
                tracing::warn!(
                    "a message was delivered again during a lease of its key: unless several messages have this key, or \
                     Redis did not respond before, check that the queue's visibility timeout is longer than the \
                     function's timeout plus LEASE_GRACE_MS"
                );
            });
        }
        let Some(visibility) = &self.visibility else { return };
        let changes: Vec<_> =
            reported().filter_map(|(message, report)| Some((message, report.disposition.delay()?))).collect();
        visibility.change(&changes, deadline.answer).await;
    }
}

/// Registers a timer at `until` with the runtime. If no earlier timer is registered, each new timer wakes the runtime
/// with a system call, and a batch has many timers.
async fn register_timer(until: Instant) -> Pin<Box<Sleep>> {
    let mut timer = Box::pin(sleep_until(until));
    let _pending = poll_immediate(timer.as_mut()).await;
    yield_now().await;
    timer
}

/// Whether a message was delivered again before the lease of its earlier delivery, or of another message with the same
/// key, ended. A conflict on a first delivery always has the second cause.
fn was_redelivered_during_lease(message: &Message, report: &MessageReport) -> bool {
    report.outcome == MessageOutcome::Conflict && message.receive_count.is_some_and(|count| count > 1)
}

/// Logs one line for a message, without its payload. `delay` is its new visibility timeout.
fn log(message: &Message, report: &MessageReport, delay: Option<Duration>) {
    macro_rules! line {
        ($level:ident, $disposition:literal) => {
            tracing::$level!(
                message_id = message.id,
                idempotency_key = report.key.as_ref().map(|key| key.as_str()),
                outcome = report.outcome.as_str(),
                disposition = $disposition,
                retry_after_s = delay.map(|after| after.as_secs_f64().ceil()),
                fence = report.fence.map(|fence| fence.0),
                attempt = report.attempts,
                receive_count = message.receive_count,
                reason = &*report.reason,
                "message"
            )
        };
    }
    match report.disposition {
        Disposition::Done => line!(info, "done"),
        Disposition::DeadLetter => line!(warn, "dead_letter"),
        Disposition::Redeliver { after: _ } => line!(warn, "redeliver"),
    }
}
