//! A request with a key: acquire, run, settle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Response, StatusCode};
use idempotent_sqs::idempotency::{Outcome, Report, StoreError, error_chain};
use idempotent_sqs::{Deadline, Delivery, Store, Work};
use tokio::time::{Instant, sleep, timeout};

use crate::answer::{Answer, Summary, conclude, reject};
use crate::layer::Shared;
use crate::pending::PendingRequest;
use crate::problem::Problem;
use crate::report::Reporter;
use crate::settings::StoreOutage;
use crate::time_limit::TimeLimit;

/// With less time, an acquire might be executed whose reply comes too late to release it.
const SHORTEST_RUN: Duration = Duration::from_millis(50);

/// Time to read a response that is kept outside the store: as an object, or in the work's own record.
pub(crate) const READ_KEPT: Duration = Duration::from_secs(5);

/// Pause between two acquires of a request that waits for another one.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// A request and what runs for it: the inner service of a layer, or the work of an endpoint.
pub(crate) trait Attempt: Work<()> + 'static {
    type Request: Send;
    type Body: Send;
    type Error: Send;

    fn request(&self) -> &PendingRequest<Self::Request>;

    /// The answer of the run, if it returned one.
    fn take_answer(&self) -> Option<Answer<Self::Body, Self::Error>>;

    /// Answers without the store, by [`StoreOutage::RunUnprotected`].
    fn run_unprotected(
        request: Self::Request,
        deadline: Deadline,
    ) -> impl Future<Output = (Answer<Self::Body, Self::Error>, Summary)> + Send;
}

/// Runs the request in a task of its own, unless the settings say otherwise.
pub(crate) async fn protect<S: Store + 'static, A: Attempt>(
    shared: Arc<Shared<S>>,
    attempt: A,
    delivery: Delivery,
    limit: TimeLimit,
    reporter: Reporter,
) -> Answer<A::Body, A::Error> {
    let another_runs = AtomicBool::new(false);
    let request = Arc::new(Protected { shared: Arc::clone(&shared), attempt, delivery, limit, reporter, another_runs });
    let run = {
        let request = Arc::clone(&request);
        async move { request.run().await }
    };
    let answer = if shared.settings.spawn {
        // If the client disconnects, this future is dropped, and the task goes on.
        let mut task = shared.spawn(run);
        match timeout(shared.settings.store_timeout.saturating_add(shared.settings.wait), &mut task).await {
            Ok(ended) => ended.ok().flatten(),
            Err(_elapsed) => match request.attempt.request().withdraw() {
                // The store hangs. The first task releases the record, and finds no request to run.
                Some(withdrawn) => shared.spawn(async move { request.outage(withdrawn).await }).await.ok(),
                None => task.await.ok().flatten(),
            },
        }
    } else {
        run.await
    };
    // The runtime is shutting down.
    answer.unwrap_or_else(|| reject(Problem::Failed).0)
}

/// A request, its record, and its time.
struct Protected<S, A> {
    shared: Arc<Shared<S>>,
    attempt: A,
    delivery: Delivery,
    limit: TimeLimit,
    reporter: Reporter,
    /// Whether the store has said that another request with this key runs.
    another_runs: AtomicBool,
}

impl<S: Store, A: Attempt> Protected<S, A> {
    /// Answers the request. Returns `None` if it was withdrawn before it started.
    async fn run(&self) -> Option<Answer<A::Body, A::Error>> {
        let request = self.attempt.request();
        if self.limit.deadline().work.saturating_duration_since(Instant::now()) < SHORTEST_RUN {
            return Some(self.answer(reject(Problem::NotStarted { after: Duration::ZERO })));
        }
        match self.report().await {
            Ok((report, deadline)) => {
                let ended = request.ended();
                // Once there is an answer, the request cannot be withdrawn any more.
                drop(request.start());
                if request.is_withdrawn() {
                    // The store replied too late, and the record was released.
                    return None;
                }
                let settings = &self.shared.settings;
                let answer = self.attempt.take_answer();
                Some(self.answer(conclude(report, answer, ended, deadline, settings)))
            }
            Err(error) => {
                tracing::warn!(reason = error_chain(&error), "the store cannot be used");
                match request.withdraw() {
                    // A value that is not a record is no outage.
                    Some(withdrawn) if error.is_unavailable() => Some(self.outage(withdrawn).await),
                    None if request.is_withdrawn() => None,
                    Some(_) | None => Some(self.answer(reject(Problem::StoreUnavailable))),
                }
            }
        }
    }

    /// Acquires the record, runs the request and settles the record. Waits for another run, if the settings say so.
    async fn report(&self) -> Result<(Report, Deadline), StoreError> {
        // An acquire at the end of an invocation would have no time for its reply.
        let waits_until = self.limit.waits_until(self.shared.settings.wait, SHORTEST_RUN);
        loop {
            let deadline = self.limit.deadline();
            // Without a result that is kept as an object or by the inbox: reading it is not waiting for the store.
            let delivery = self.delivery.clone().deadline(deadline);
            let report = self.shared.idempotency.run(&delivery.clone().without_result(), &self.attempt, &()).await?;
            // After a run that found another one in its own record, the request is gone.
            if let Outcome::Conflict { lease_remains } = report.outcome
                && Instant::now() < waits_until
                && self.attempt.request().ended().is_none()
            {
                self.another_runs.store(true, Ordering::Relaxed);
                let pause = WAIT_STEP.min(lease_remains).min(waits_until - Instant::now());
                sleep(pause.max(Duration::from_millis(1))).await;
                continue;
            }
            if let Outcome::Duplicate { result: None } = report.outcome
                && (self.shared.settings.policy.results.is_some() || self.attempt.own_record().is_some())
            {
                // Nothing runs for this request any more, even if the record is lost now.
                drop(self.attempt.request().start());
                let read = self.shared.idempotency.run(&delivery, &self.attempt, &());
                let limit = self.shared.settings.store_timeout.saturating_add(READ_KEPT);
                let read =
                    timeout(limit, read).await.unwrap_or_else(|elapsed| Err(StoreError::unavailable(elapsed)))?;
                let is_read = matches!(read.outcome, Outcome::Duplicate { .. });
                return Ok((if is_read { read } else { report }, deadline));
            }
            return Ok((report, deadline));
        }
    }

    /// Answers a request that did not start, because the store is out of reach. It does not run beside another one that
    /// the store has told it of.
    async fn outage(&self, withdrawn: A::Request) -> Answer<A::Body, A::Error> {
        let deadline = self.limit.deadline();
        let may_run = !deadline.has_passed() && !self.another_runs.load(Ordering::Relaxed);
        self.answer(match self.shared.settings.store_outage {
            StoreOutage::RunUnprotected if may_run => A::run_unprotected(withdrawn, deadline).await,
            StoreOutage::Reject | StoreOutage::RunUnprotected => reject(Problem::StoreUnavailable),
        })
    }

    fn answer(&self, (answer, summary): (Answer<A::Body, A::Error>, Summary)) -> Answer<A::Body, A::Error> {
        self.reporter.report(&self.shared.settings, status(&answer), &summary);
        answer
    }
}

pub(crate) fn status<B, E>(answer: &Answer<B, E>) -> Option<StatusCode> {
    answer.as_ref().ok().map(Response::status)
}
