//! Records that the server loses while their work runs.

use idempotent_sqs::idempotency::{Outcome, State};
use idempotent_sqs::{Claim, Decision, Delivery, Fingerprint, Idempotency, Key, Policy, Report, WorkError, work_fn};
use tokio::sync::Notify;

use super::*;

/// Messages with one key, each with another payload.
fn delivery(payload: &str) -> Delivery {
    let key = Key::new("pay_1").unwrap();
    Delivery::new(key).fingerprint(Fingerprint::of(payload.as_bytes())).message_id(payload)
}

/// Does the work of one payload, whose record is lost meanwhile. Then the work of another payload with its key begins,
/// and fails first if it `fails`. Returns the reports on both.
async fn lose_record(fails: bool) -> (Report, Report) {
    let redis = Redis::start().await;
    let idempotency = Idempotency::new(on(&redis.url()), Policy::default());
    let [started, goes_on, other_goes_on] = [(); 3].map(|()| Notify::new());
    let work = work_fn(|_: &Claim, (): &()| async {
        started.notify_one();
        goes_on.notified().await;
        Ok(Vec::new())
    });
    let other_work = work_fn(|_: &Claim, (): &()| async {
        if fails {
            return Err(WorkError::retryable("no route"));
        }
        goes_on.notify_one();
        other_goes_on.notified().await;
        Ok(Vec::new())
    });
    let (first, other) = (delivery("12.50 EUR"), delivery("99.00 EUR"));
    let run = async {
        let report = idempotency.run(&first, &work, &()).await.unwrap();
        other_goes_on.notify_one();
        report
    };
    let run_other = async {
        started.notified().await;
        let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
        let report = idempotency.run(&other, &other_work, &()).await.unwrap();
        goes_on.notify_one();
        report
    };
    tokio::join!(run, run_other)
}

// Another delivery of the work that is done would be a first attempt.

#[tokio::test]
async fn done_work_is_acknowledged_although_another_payload_has_failed_under_its_key() {
    let (done, failed) = lose_record(true).await;
    assert!(matches!(failed.outcome, Outcome::Failed { uncertain: false, .. }), "{failed:?}");
    assert!(matches!(done.outcome, Outcome::Lost { state: State::Failed, done: true }), "{done:?}");
    assert_eq!(done.decision(1), Decision::Ack);
}

#[tokio::test]
async fn done_work_is_acknowledged_although_another_payload_is_being_processed_under_its_key() {
    let (done, other) = lose_record(false).await;
    assert!(matches!(other.outcome, Outcome::Done { .. }), "{other:?}");
    assert!(matches!(done.outcome, Outcome::Lost { state: State::Processing, done: true }), "{done:?}");
    assert_eq!(done.decision(1), Decision::Ack);
}
