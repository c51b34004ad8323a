//! Invocations of a handler in this process.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lambda_runtime::Context;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::mapping::{Ended, Invocation, Mapping};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::{Message, Store, Work};

impl Mapping {
    /// Invoke the handler until the queue is empty, on as many batches at once as the mapping's
    /// concurrency. On a paused clock the waits for a visibility timeout pass at once.
    ///
    /// Without a dead-letter queue a message that always fails is tried until its retention ends.
    ///
    /// ## Cancel safety
    /// Dropped, it ends the invocations that are under way as a killed process would.
    pub async fn drain<S: Store, W: Work<Message>>(&self, handler: &Handler<S, W>) {
        let poller = || async {
            loop {
                let heard = self.queue().listen();
                match self.poll() {
                    Some(invocation) => drop(invocation.run(handler).await),
                    None if self.queue().is_empty() => break,
                    None => self.queue().change_since(heard).await,
                }
            }
        };
        join_all((0..self.settings().concurrency).map(|_| poller())).await;
    }
}

impl Invocation {
    /// Run it on this handler, up to the function's timeout.
    ///
    /// ## Cancel safety
    /// Dropped, it ends as a killed process would.
    pub async fn run<S: Store, W: Work<Message>>(self, handler: &Handler<S, W>) -> Ended {
        self.run_until(handler, pending()).await
    }

    /// Run it on this handler, in a process that dies when `death` completes.
    ///
    /// ## Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until<S: Store, W: Work<Message>>(
        self,
        handler: &Handler<S, W>,
        death: impl Future<Output = ()>,
    ) -> Ended {
        let (event, context) = (self.event(), self.context());
        // Lambda's runtime makes an error of a panic that nobody caught.
        let response = AssertUnwindSafe(handler.handle(&event, &context)).catch_unwind();
        let answer = tokio::select! {
            biased;
            () = death => Answer::Failed,
            answer = timeout_at(self.deadline(), response) => match answer {
                Ok(Ok(Ok(response))) => serde_json::to_vec(&response).map_or(Answer::Failed, Answer::Returned),
                Ok(Ok(Err(_)) | Err(_)) => Answer::Failed,
                Err(_elapsed) => Answer::TimedOut,
            },
        };
        self.end(answer)
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
