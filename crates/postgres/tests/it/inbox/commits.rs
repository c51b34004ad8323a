//! Commits whose replies are lost, and attempts that are used up.

use super::*;
use idempotent_sqs::idempotency::{Acquire, MessageIdHash, WorkErrorKind};
use idempotent_sqs_testing::attempt;

use harness::front::Front;
use harness::redis::closed_port;

/// The core with this number of attempts, on an empty store.
fn attempts(most: u8) -> Idempotency<MemoryStore> {
    Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = most))
}

/// Delivers a message whose work waits before its commit while `inject_fault` runs.
async fn run_with_fault<S: Store>(
    idempotency: &Idempotency<S>,
    base: &Base,
    front: &Front,
    inject_fault: impl AsyncFnOnce(&Gate),
) -> Report {
    let gate = Arc::new(Gate::default());
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url_by(front.port)));
    let (report, ()) = soon(async {
        tokio::join!(run(idempotency, &held), async {
            gate.reached.notified().await;
            inject_fault(&gate).await;
        })
    })
    .await;
    report
}

/// The commit is executed, and the connection is closed before the reply.
async fn lose_the_reply(base: &Base, front: &Front, gate: &Gate) {
    front.drop_replies(true);
    gate.open.notify_one();
    until_count(base, EFFECTS, 1).await;
    front.drop_replies(false);
    front.cut();
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_found_in_the_inbox_immediately() {
    for most in [1, 10] {
        let base = base().await;
        let (front, idempotency) = (Front::to(base.port).await, attempts(most));
        let report =
            run_with_fault(&idempotency, &base, &front, async |gate| lose_the_reply(&base, &front, gate).await).await;
        assert_eq!(done(&report), b"receipt of pay_1");
        let next = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
        assert_eq!(duplicate(&next), b"receipt of pay_1");
        assert_eq!(base.count(EFFECTS).await, 1);
    }
}

/// The retention of a row begins with its transaction.
#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_found_although_its_row_has_expired() {
    let base = base().await;
    let (front, gate) = (Front::to(base.port).await, Arc::new(Gate::default()));
    let brief = with!(settings(), retention = SECOND / 5);
    let work = Pay { after: Some(gate.clone()), ..Pay::default() };
    let held = Inbox::new(work, database(&base.url_by(front.port)), brief);
    let idempotency = flushed();
    let (report, ()) = soon(async {
        tokio::join!(run(&idempotency, &held), async {
            gate.reached.notified().await;
            base.client.batch_execute("SELECT pg_sleep(0.3)").await.unwrap();
            lose_the_reply(&base, &front, &gate).await;
        })
    })
    .await;
    assert_eq!(done(&report), b"receipt of pay_1");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_commit_that_never_reached_the_server_is_not_counted() {
    let base = base().await;
    let (front, idempotency) = (Front::to(base.port).await, attempts(1));
    // The commit is sent into a connection that drops it; the connection is closed before the commit.
    for is_sent in [true, false] {
        let report = run_with_fault(&idempotency, &base, &front, async |gate| {
            if is_sent {
                front.drop_requests(true);
                gate.open.notify_one();
                front.dropped().await;
                front.drop_requests(false);
                front.cut();
            } else {
                front.cut();
                gate.open.notify_one();
            }
        })
        .await;
        assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
        assert_eq!(base.count(EFFECTS).await, 0);
    }
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_commit_that_could_not_be_sent_is_not_counted_even_if_the_server_is_unreachable() {
    let base = base().await;
    let (front, idempotency) = (Front::to(base.port).await, attempts(1));
    let report = run_with_fault(&idempotency, &base, &front, async |gate| {
        front.forward_to(closed_port());
        front.cut();
        let open =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
        until_count(&base, open, 0).await;
        gate.open.notify_one();
    })
    .await;
    assert!(matches!(report.outcome, Outcome::Unavailable { .. }), "{report:?}");
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false));
}

#[tokio::test]
async fn a_commit_that_cannot_be_looked_up_is_uncertain_and_the_next_delivery_finds_it() {
    for most in [1, 10] {
        let base = base().await;
        let (front, idempotency) = (Front::to(base.port).await, attempts(most));
        let report = run_with_fault(&idempotency, &base, &front, async |gate| {
            front.forward_to(closed_port());
            lose_the_reply(&base, &front, gate).await;
        })
        .await;
        assert!(matches!(report.outcome, Outcome::Failed { uncertain: true, .. }), "{report:?}");
        let next = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
        assert_eq!(duplicate(&next), b"receipt of pay_1");
        assert_eq!(base.count(EFFECTS).await, 1);
    }
}

#[tokio::test]
async fn a_commit_without_a_reply_until_the_deadline_is_found_by_the_next_delivery() {
    for most in [1, 10] {
        let base = base().await;
        let (front, idempotency, gate) = (Front::to(base.port).await, attempts(most), Arc::new(Gate::default()));
        let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url_by(front.port)));
        let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
        let (report, ()) = soon(async {
            tokio::join!(async { idempotency.run(&short, &held, &Message::default()).await.unwrap() }, async {
                gate.reached.notified().await;
                front.drop_replies(true);
                gate.open.notify_one();
            })
        })
        .await;
        assert!(matches!(report.outcome, Outcome::Failed { uncertain: true, .. }), "{report:?}");
        let next = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
        assert_eq!(duplicate(&next), b"receipt of pay_1");
        assert_eq!(base.count(EFFECTS).await, 1);
    }
}

/// The claim of a process that was killed. Its lease ends immediately.
async fn claim_of_a_killed_process(store: &MemoryStore) -> Claim {
    let attempt = with!(
        attempt("pay_1"),
        fingerprint = Fingerprint::of(b"12.50 EUR"),
        message = MessageIdHash::of("message-1"),
        lease = Duration::from_millis(1),
        max_attempts = 1
    );
    match store.acquire(attempt.clone()).await.unwrap() {
        // With the time that the process had.
        Acquire::Acquired(claim) => {
            let lease = TIME;
            match Acquire::claimed(with!(attempt, lease = lease), claim.fence(), claim.attempt(), false) {
                Acquire::Acquired(claim) => claim,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_commit_of_the_last_attempt_counts_even_if_the_process_was_killed_after_it() {
    let base = base().await;
    let (store, inbox) = (MemoryStore::default(), inbox(Pay::default(), database(&base.url())));
    let claim = claim_of_a_killed_process(&store).await;
    OwnRecord::<Message>::attempt(&inbox, &claim, &Message::default()).await.unwrap();
    drop(claim);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let idempotency = Idempotency::new(store, with!(Policy::default(), max_attempts = 1));
    assert_eq!(duplicate(&run(&idempotency, &inbox).await), b"receipt of pay_1");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_last_attempt_that_was_killed_before_its_commit_has_failed_permanently() {
    let base = base().await;
    let store = MemoryStore::default();
    drop(claim_of_a_killed_process(&store).await);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let idempotency = Idempotency::new(store, with!(Policy::default(), max_attempts = 1));
    let report = run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await;
    assert!(matches!(report.outcome, Outcome::FailedBefore), "{report:?}");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0), "reading the row inserts nothing");
}

#[tokio::test]
async fn a_row_of_an_open_transaction_is_busy() {
    let base = base().await;
    let mut short = database_settings(&base.url());
    short.timeout = Duration::from_millis(200);
    let inbox = inbox(Pay::default(), Database::new(&short));
    let attempt = attempt("pay_1");
    let recorded = || OwnRecord::<Message>::recorded(&inbox, &attempt, Instant::now() + TIME);
    assert_eq!(recorded().await.unwrap(), None);
    let elsewhere = self::inbox(Pay::default(), database(&base.url_by(closed_port())));
    let error = OwnRecord::<Message>::recorded(&elsewhere, &attempt, Instant::now() + TIME).await.unwrap_err();
    assert!(error.is_unavailable(), "an unreachable database is an outage: {error:?}");
    let insert = "BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'pay_1', decode(repeat('00', 16), 'hex'), 1, 1, 'done')";
    base.client.batch_execute(insert).await.unwrap();
    let error = recorded().await.unwrap_err();
    assert!(matches!(error.kind(), WorkErrorKind::Busy { .. }), "{error:?}");
    base.client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(recorded().await.unwrap(), Some(b"done".to_vec()));
    let other = with!(attempt.clone(), fingerprint = Fingerprint::of(b"99.00 EUR"));
    base.client
        .execute("UPDATE idempotency_inbox SET fingerprint = $1", &[&attempt.fingerprint.as_bytes().as_slice()])
        .await
        .unwrap();
    assert_eq!(OwnRecord::<Message>::recorded(&inbox, &other, Instant::now() + TIME).await.unwrap(), None);
}

/// The time to wait for the row is over, and that to wait for a reply is not: 50 ms are left. A slow machine may need
/// more, so this is tried again.
#[tokio::test]
async fn a_row_of_an_open_transaction_is_busy_even_just_before_the_deadline() {
    let base = base().await;
    let (inbox, attempt) = (inbox(Pay::default(), database(&base.url())), attempt("pay_1"));
    let recorded = |time: Duration| OwnRecord::<Message>::recorded(&inbox, &attempt, Instant::now() + time);
    assert_eq!(recorded(TIME).await.unwrap(), None);
    let insert = "BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'pay_1', '', 1, 1, 'done')";
    base.client.batch_execute(insert).await.unwrap();
    // The error of the lock timeout. Without one, there is none of the server before the time is over.
    until(|| async {
        let error = recorded(SECOND / 10).await.unwrap_err();
        matches!(error.kind(), WorkErrorKind::Busy { .. }) && error.to_string().contains("55P03")
    })
    .await;
}
