//! `Report::decision` for every outcome, and the bounds of the backoff.

use std::time::Duration;

use harness::with;
use idempotent_sqs::idempotency::{
    Claim, Decision, Delivery, Idempotency, Key, Outcome, Policy, Report, State, StoreError, WorkError, backoff,
    work_fn,
};
use idempotent_sqs::stores::MemoryStore;

/// The numbers of deliveries, and the shortest and longest backoff of each: half of a step up to the whole step.
const BACKOFFS: [(u32, u64, u64); 3] = [(1, 1, 2), (5, 16, 32), (100, 450, 900)];

const MINUTE: Duration = Duration::from_secs(60);

/// What an outcome must lead to.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Ack,
    DeadLetter,
    /// Delivered again at a time that the broker chooses.
    RetryByBroker,
    /// Delivered again after a time in this range.
    RetryAfter(Duration, Duration),
    /// Delivered again after the backoff.
    RetryAfterBackoff,
    /// Delivered again after the backoff, and not before this time.
    RetryAfterAtLeast(Duration),
}

/// A report with this outcome.
async fn report(outcome: Outcome) -> Report {
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let work = work_fn(|_: &Claim, (): &()| async { Ok(Vec::new()) });
    let report = idempotency.run(&Delivery::new(Key::new("pay_1").unwrap()), &work, &()).await.unwrap();
    with!(report, outcome = outcome)
}

fn failed(error: WorkError) -> Outcome {
    Outcome::Failed { error, uncertain: false }
}

/// Every outcome, with every kind of its error.
fn outcomes() -> Vec<(Outcome, Expected)> {
    use Expected::{Ack, DeadLetter, RetryAfter, RetryAfterAtLeast, RetryAfterBackoff, RetryByBroker};

    let seconds = Duration::from_secs;
    let unavailable = |after| Outcome::Unavailable { error: WorkError::unavailable_after("down", after) };
    vec![
        (Outcome::Done { result: Vec::new() }, Ack),
        (Outcome::Duplicate { result: None }, Ack),
        (Outcome::DoneByOwnRecord { result: Vec::new() }, Ack),
        (Outcome::Lost { state: State::Completed, done: true }, Ack),
        (Outcome::Lost { state: State::Completed, done: false }, RetryByBroker),
        (Outcome::Lost { state: State::Processing, done: true }, Ack),
        (Outcome::Lost { state: State::Processing, done: false }, RetryByBroker),
        (Outcome::Lost { state: State::Failed, done: true }, Ack),
        (Outcome::Lost { state: State::Failed, done: false }, RetryByBroker),
        (Outcome::NotStarted, RetryByBroker),
        (Outcome::Unsettled { error: StoreError::unavailable("no reply") }, RetryAfterBackoff),
        (Outcome::Conflict { lease_remains: Duration::ZERO }, RetryAfter(Duration::ZERO, seconds(2))),
        (Outcome::Conflict { lease_remains: MINUTE }, RetryAfter(MINUTE, seconds(62))),
        (Outcome::Conflict { lease_remains: Duration::MAX }, RetryAfter(Duration::MAX, Duration::MAX)),
        (failed(WorkError::retryable("no")), RetryAfterBackoff),
        (failed(WorkError::uncertain("no")), RetryAfterBackoff),
        (Outcome::Failed { error: WorkError::retryable("no"), uncertain: true }, RetryAfterBackoff),
        (failed(WorkError::retryable_after("no", Duration::ZERO)), RetryAfter(seconds(1), seconds(1))),
        (failed(WorkError::retryable_after("no", seconds(7))), RetryAfter(seconds(7), seconds(7))),
        (failed(WorkError::retryable_after("no", MINUTE * 60)), RetryAfter(MINUTE * 60, MINUTE * 60)),
        (Outcome::Unavailable { error: WorkError::unavailable("down") }, RetryAfterBackoff),
        (unavailable(Duration::ZERO), RetryAfterBackoff),
        (unavailable(seconds(20)), RetryAfterAtLeast(seconds(20))),
        (unavailable(MINUTE * 60), RetryAfter(MINUTE * 60, MINUTE * 60)),
        (Outcome::Mismatch, DeadLetter),
        (Outcome::FailedBefore, DeadLetter),
        (Outcome::FailedPermanently { error: WorkError::permanent("no"), uncertain: false }, DeadLetter),
        (Outcome::FailedPermanently { error: WorkError::uncertain("no"), uncertain: true }, DeadLetter),
        (Outcome::FailedPermanently { error: WorkError::retryable("no"), uncertain: false }, DeadLetter),
    ]
}

/// Each outcome leads to its decision after 1, 5 and 100 deliveries.
#[tokio::test]
async fn every_outcome_leads_to_its_decision() {
    for (outcome, expected) in outcomes() {
        let report = report(outcome).await;
        for (deliveries, shortest, longest) in BACKOFFS {
            let (shortest, longest) = (Duration::from_secs(shortest), Duration::from_secs(longest));
            let range = match expected {
                Expected::Ack | Expected::DeadLetter | Expected::RetryByBroker => None,
                Expected::RetryAfter(from, to) => Some((from, to)),
                Expected::RetryAfterBackoff => Some((shortest, longest)),
                Expected::RetryAfterAtLeast(after) => Some((shortest.max(after), longest.max(after))),
            };
            // The delays are random.
            for _ in 0..100 {
                let decision = report.decision(deliveries);
                let as_expected = match (decision, expected) {
                    (Decision::Ack, Expected::Ack)
                    | (Decision::DeadLetter, Expected::DeadLetter)
                    | (Decision::Retry { after: None }, Expected::RetryByBroker) => true,
                    (Decision::Retry { after: Some(after) }, _) => {
                        range.is_some_and(|(from, to)| from <= after && after <= to)
                    }
                    _ => false,
                };
                assert!(as_expected, "delivery {deliveries} of {report:?}: {decision:?}, not {expected:?}");
            }
        }
    }
}

/// A conflict is delivered again after the lease, spread over two seconds.
#[tokio::test]
async fn conflicts_are_spread_over_two_seconds() {
    let report = report(Outcome::Conflict { lease_remains: MINUTE }).await;
    let delays: Vec<_> = (0..1000)
        .map(|_| match report.decision(1) {
            Decision::Retry { after: Some(after) } => after - MINUTE,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(delays.iter().min().unwrap() < &Duration::from_millis(200), "{:?}", delays.iter().min());
    assert!(delays.iter().max().unwrap() > &Duration::from_millis(1800), "{:?}", delays.iter().max());
}

/// The backoff uses its whole range, and is defined for every number of deliveries.
#[test]
fn the_backoff_is_from_half_of_a_step_to_the_whole_step() {
    for (deliveries, shortest, longest) in BACKOFFS.into_iter().chain([(0, 1, 2), (u32::MAX, 450, 900)]) {
        let (shortest, longest) = (Duration::from_secs(shortest), Duration::from_secs(longest));
        let delays: Vec<_> = (0..1000).map(|_| backoff(deliveries)).collect();
        let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        assert!(shortest <= least && most <= longest, "{deliveries}: {least:?} to {most:?}");
        let tenth = (longest - shortest) / 10;
        assert!(least < shortest + tenth && most > longest - tenth, "{deliveries}: {least:?} to {most:?}");
    }
}
