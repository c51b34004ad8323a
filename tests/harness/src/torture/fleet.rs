//! Processes of the function's binary, each with its own Runtime API, which share one mapping.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs_testing::{BatchOutcome, Invocation, InvocationResult, Mapping, ReceivedMessage};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::fixture::Fixture;
use super::tally::{Delivery, Invoked, Success, lock};

/// The fault that [`Order::Stop`] is.
pub const PROCESS_STOPPED: &str = "process stopped beyond its lease (SIGSTOP)";

/// A fault of a process.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Kill,
    /// Freezes the process for this time.
    Stop(Duration),
    /// Freezes the process for this time after its invocation, as Lambda does until the next one. On Linux its monotonic
    /// clock stops meanwhile, as that of Lambda may.
    Rest(Duration),
}

/// Runs one process, and a new one after each that ends.
pub async fn serve(number: usize, fixture: Arc<Fixture>, mapping: Mapping, mut orders: mpsc::Receiver<Order>) {
    let mut function = fixture.function(number).await;
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
        let mut deliveries: Vec<Delivery> =
            invocation.messages().iter().map(|message| delivery(message, number, begun)).collect();
        let answered = function.begin(event(&invocation, &deliveries), deadline - begun).outcome();
        tokio::pin!(answered);
        let (mut rest, mut was_stopped) = (None, resumes_at.is_some());
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
                        fixture.tally.fault(PROCESS_STOPPED, Some(number), now);
                        function.signal("-STOP");
                        resumes_at = Some(now + time);
                        was_stopped = true;
                    }
                    Some(Order::Rest(time)) => rest = Some(time),
                    None => {}
                },
                outcome = &mut answered => {
                    for delivery in &mut deliveries {
                        delivery.invocation = invoked(&outcome, &delivery.message_id);
                        delivery.ended = Instant::now();
                    }
                    break outcome.map_or(InvocationResult::Failed, InvocationResult::Returned);
                }
                () = sleep_until(deadline) => {
                    if !was_stopped {
                        *lock(&fixture.tally.timeouts) += 1;
                    }
                    break InvocationResult::TimedOut;
                }
            }
        };
        lock(&fixture.tally.deliveries).extend(deliveries);
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
            function = fixture.function(number).await;
        } else if let Some(time) = rest {
            fixture.tally.fault("process frozen between invocations", Some(number), Instant::now());
            function.signal("-STOP");
            sleep(time).await;
            fixture.add_frozen(number, time);
            function.signal("-CONT");
        }
    }
}

/// The delivery of a message to this process, whose invocation has not ended yet.
fn delivery(message: &ReceivedMessage, process: usize, begun: Instant) -> Delivery {
    let (message_id, receive_count) = (message.message_id.clone(), message.receive_count());
    Delivery {
        // Some messages, and only their first delivery.
        is_malformed: receive_count == 1 && message_id.ends_with('0'),
        message_id,
        receipt_handle: message.receipt_handle.clone(),
        body: message.body.clone(),
        receive_count,
        process,
        begun,
        ended: begun,
        invocation: Invoked::Unknown,
    }
}

/// The event of these deliveries. The body of a malformed record is a number.
fn event(invocation: &Invocation, deliveries: &[Delivery]) -> String {
    let mut event: Value = serde_json::from_str(&invocation.event()).unwrap();
    for (record, delivery) in event["Records"].as_array_mut().unwrap().iter_mut().zip(deliveries) {
        if delivery.is_malformed {
            record["body"] = json!(7);
        }
    }
    event.to_string()
}

/// How an invocation with this outcome ended for this message.
fn invoked(outcome: &Result<Vec<u8>, Vec<u8>>, message_id: &str) -> Invoked {
    match outcome {
        Ok(response) if String::from_utf8_lossy(response).contains(message_id) => Invoked::Named,
        Ok(_) => Invoked::NotNamed,
        Err(error) => Invoked::Error(String::from_utf8_lossy(error).into_owned()),
    }
}

/// The settings of every process, without addresses.
pub const SETTINGS: &[(&str, &str)] = &[
    ("LEASE_GRACE_MS", "200"),
    ("BATCH_CONCURRENCY", "4"),
    // No message reaches the limit, however many runs are cut off.
    ("IDEMPOTENCY_MAX_ATTEMPTS", "255"),
];
