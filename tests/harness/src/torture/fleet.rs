//! Processes of the function's binary, each under a Runtime API of its own, fed by one mapping.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs_testing::{BatchOutcome, InvocationResult, Mapping};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::fixture::Fixture;
use super::tally::{Success, lock};

/// What a process is told to suffer.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Kill,
    /// Stopped for so long, and then it goes on where it was.
    Stop(Duration),
}

/// One slot of the fleet: a process, and its successor when it dies.
pub async fn serve(number: usize, fixture: Arc<Fixture>, mapping: Mapping, mut orders: mpsc::Receiver<Order>) {
    let mut function = fixture.function(number).await;
    let mut thaws: Option<Instant> = None;
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
        fixture.set_deadline(number, deadline);
        let answered = function.begin(invocation.event(), deadline - begun).outcome();
        tokio::pin!(answered);
        let answer = loop {
            let thaw = thaws.unwrap_or(deadline);
            tokio::select! {
                biased;
                () = sleep_until(thaw), if thaws.is_some() => {
                    function.signal("-CONT");
                    thaws = None;
                }
                order = orders.recv() => match order {
                    Some(Order::Kill) => {
                        fixture.tally.fault("process killed (SIGKILL)", Some(number), Instant::now(), Instant::now());
                        function.kill();
                        thaws = None;
                        break InvocationResult::Failed;
                    }
                    Some(Order::Stop(time)) => {
                        let end = Instant::now() + time;
                        fixture.tally.fault("process stopped beyond its lease (SIGSTOP)", Some(number), Instant::now(), end);
                        function.signal("-STOP");
                        thaws = Some(end);
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
        if let Some(thaw) = thaws.take() {
            sleep_until(thaw).await;
            function.signal("-CONT");
        }
        if !function.is_running() {
            function = fixture.function(number).await;
        }
    }
}

/// The settings of every process, besides where things are.
pub const SETTINGS: &[(&str, &str)] = &[
    ("LEASE_GRACE_MS", "200"),
    ("BATCH_CONCURRENCY", "4"),
    // However often a run is cut off, no message is given up.
    ("IDEMPOTENCY_MAX_ATTEMPTS", "255"),
];
