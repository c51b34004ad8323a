//! Processes of the function's binary, each under a Runtime API of its own, fed by one mapping.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::testing::{Answer, Ended, Mapping};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::stage::Stage;
use super::tally::{Success, lock};

/// What a process is told to suffer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Kill,
    /// Stopped for so long, and then it goes on where it was.
    Stop(Duration),
}

/// One slot of the fleet: a process, and its successor when it dies.
pub(super) async fn serve(number: usize, stage: Arc<Stage>, mapping: Mapping, mut orders: mpsc::Receiver<Order>) {
    let mut function = stage.function(number).await;
    let mut thaws: Option<Instant> = None;
    while !stage.is_over(&mapping) {
        let Some(invocation) = mapping.poll() else {
            tokio::select! {
                () = mapping.queue().change() => {}
                () = stage.ended() => {}
            }
            continue;
        };
        *lock(&stage.tally.invocations) += 1;
        let (begun, deadline) = (Instant::now(), invocation.deadline());
        stage.set_deadline(number, deadline);
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
                        stage.tally.fault("process killed (SIGKILL)", Some(number), Instant::now(), Instant::now());
                        function.kill();
                        thaws = None;
                        break Answer::Failed;
                    }
                    Some(Order::Stop(time)) => {
                        let end = Instant::now() + time;
                        stage.tally.fault("process stopped beyond its lease (SIGSTOP)", Some(number), Instant::now(), end);
                        function.signal("-STOP");
                        thaws = Some(end);
                    }
                    None => {}
                },
                outcome = &mut answered => break outcome.map_or(Answer::Failed, Answer::Returned),
                () = sleep_until(deadline) => break Answer::TimedOut,
            }
        };
        if let Ended::Answered { deleted, kept: _ } = invocation.end(answer)
            && !deleted.is_empty()
        {
            lock(&stage.tally.successes).push(Success { process: number, begun, ended: Instant::now() });
        }
        if let Some(thaw) = thaws.take() {
            sleep_until(thaw).await;
            function.signal("-CONT");
        }
        if !function.is_running() {
            function = stage.function(number).await;
        }
    }
}

/// The settings of every process, besides where things are.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("LEASE_GRACE_MS", "200"),
    ("BATCH_CONCURRENCY", "4"),
    // However often a run is cut off, no message is given up.
    ("IDEMPOTENCY_MAX_ATTEMPTS", "255"),
];
