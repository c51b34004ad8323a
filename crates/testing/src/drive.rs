//! Invocations of a handler in this process.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lambda_runtime::Context;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::answer::InvocationResult;
use super::mapping::{BatchOutcome, Invocation, Mapping};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::{Message, Store, Work};

impl Mapping {
    /// Invokes the handler until the queue is empty, with as many concurrent batches as the mapping's concurrency.
    /// If tokio's clock is paused, waits for a visibility timeout take no real time.
    ///
    /// Without a dead-letter queue, a message that always fails is delivered until its retention ends.
    ///
    /// ## Cancel safety
    /// A dropped future ends its invocations as a killed process would.
    pub async fn drain<S: Store, W: Work<Message>>(&self, handler: &Handler<S, W>) {
        let poller = || async {
            loop {
                let notified = self.queue().notified();
                match self.poll() {
                    Some(invocation) => drop(invocation.run(handler).await),
                    None if self.queue().is_empty() => break,
                    None => self.queue().wait_for_change(notified).await,
                }
            }
        };
        join_all((0..self.settings().concurrency).map(|_| poller())).await;
    }
}

impl Invocation {
    /// Runs the handler on this batch, from its begin up to the function's timeout.
    ///
    /// ## Cancel safety
    /// A dropped future ends the invocation as a killed process would.
    pub async fn run<S: Store, W: Work<Message>>(self, handler: &Handler<S, W>) -> BatchOutcome {
        self.run_until(handler, pending()).await
    }

    /// Runs the handler on this batch, in a process that is killed when `kill` completes.
    ///
    /// ## Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until<S: Store, W: Work<Message>>(
        self,
        handler: &Handler<S, W>,
        kill: impl Future<Output = ()>,
    ) -> BatchOutcome {
        sleep_until(self.begins()).await;
        let (event, context) = (self.event(), self.context());
        // Lambda's runtime turns a panic into an error.
        let response = AssertUnwindSafe(handler.handle(&event, &context)).catch_unwind();
        let result = tokio::select! {
            biased;
            () = kill => InvocationResult::Failed,
            result = timeout_at(self.deadline(), response) => match result {
                Ok(Ok(Ok(response))) => serde_json::to_vec(&response).map_or(InvocationResult::Failed, InvocationResult::Returned),
                Ok(Ok(Err(_)) | Err(_)) => InvocationResult::Failed,
                Err(_elapsed) => InvocationResult::TimedOut,
            },
        };
        self.finish(result)
    }

    fn context(&self) -> Context {
        let end = SystemTime::now() + self.deadline().saturating_duration_since(Instant::now());
        let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut context = Context::default();
        context.request_id = self.request_id().into();
        context.deadline = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        context
    }
}
