//! Processes of the function's binary, each with its own Runtime API, which share one mapping.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs_testing::{BatchOutcome, InvocationResult, Mapping};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::fixture::Fixture;
use super::tally::{Success, lock};

/// A fault of a process.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Kill,
    /// Freezes the process for this time.
    Stop(Duration),
}

/// Runs one process, and a new one after each that ends.
pub async fn serve(number: usize, fixture: Arc<Fixture>, mapping: Mapping, mut orders: mpsc::Receiver<Order>) {
    let mut function = fixture.function().await;
    let mut resumes_at: Option<Instant> = None;
    while !fixture.is_over(&mapping) {
        let Some(invocation) = mapping.poll() else {
            tokio::select! {
                () = mapping.queue().changed() => {}
                () = fixture.ended() => {}
            }
            continue;
        };
        *lock(&fixture.tally.invocations) += 1;
        let (begun, deadline) = (Instant::now(), invocation.deadline());
        let answered = function.begin(invocation.event(), deadline - begun).outcome();
        tokio::pin!(answered);
        let answer = loop {
            let resume = resumes_at.unwrap_or(deadline);
            tokio::select! {
                biased;
                () = sleep_until(resume), if resumes_at.is_some() => {
                    function.signal("-CONT");
                    resumes_at = None;
                }
                order = orders.recv() => match order {
                    Some(Order::Kill) => {
                        fixture.tally.fault("process killed (SIGKILL)", Some(number), Instant::now());
                        function.kill();
                        resumes_at = None;
                        break InvocationResult::Failed;
                    }
                    Some(Order::Stop(time)) => {
                        let now = Instant::now();
                        fixture.tally.fault("process stopped beyond its lease (SIGSTOP)", Some(number), now);
                        function.signal("-STOP");
                        resumes_at = Some(now + time);
                    }
                    None => {}
                },
                outcome = &mut answered => break outcome.map_or(InvocationResult::Failed, InvocationResult::Returned),
                () = sleep_until(deadline) => break InvocationResult::TimedOut,
            }
        };
        if let BatchOutcome::Processed { deleted, retained: _ } = invocation.finish(answer)
            && !deleted.is_empty()
        {
            lock(&fixture.tally.successes).push(Success { process: number, begun, ended: Instant::now() });
        }
        if let Some(resume) = resumes_at.take() {
            sleep_until(resume).await;
            function.signal("-CONT");
        }
        if !function.is_running() {
            function = fixture.function().await;
        }
    }
}

/// The settings of every process, without addresses.
pub const SETTINGS: &[(&str, &str)] = &[
    ("LEASE_GRACE_MS", "200"),
    ("BATCH_CONCURRENCY", "4"),
    // No message reaches the limit, however many runs are cut off.
    ("IDEMPOTENCY_MAX_ATTEMPTS", "255"),
];
