//! A store that loses records, has a wrong clock, or is unreachable.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use idempotent_sqs::idempotency::{Acquire, Failure, ObjectStore, Settled, StoredResult};
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Disposition, ExtendedClient};
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_postgres::{OptionalStore, OutagePolicy};
use idempotent_sqs_testing::{Fault, FaultyStore, MemoryObjectStore, StoreCall};

use harness::parts::Parts;
use harness::redis::Redis;

#[tokio::test]
async fn a_store_that_is_flushed_during_the_work_gets_its_record_again() {
    let (base, redis) = (base().await, Redis::start().await);
    let gate = Arc::new(Gate::default());
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let quick = inbox(Pay::default(), database(&base.url()));
    let idempotency = on(redis.store());
    let (first, second) = soon(async {
        tokio::join!(run(&idempotency, &held), async {
            gate.reached.notified().await;
            let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
            gate.open.notify_one();
            run(&idempotency, &quick).await
        })
    })
    .await;
    assert!(matches!(first.outcome, Outcome::Done { .. } | Outcome::DoneByOwnRecord { .. }), "{first:?}");
    assert_eq!(duplicate(&second), b"receipt of pay_1");
    assert_eq!(duplicate(&run(&idempotency, &quick).await), b"receipt of pay_1");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_clock_that_jumps_forward_during_the_work_repeats_nothing() {
    let base = base().await;
    let gate = Arc::new(Gate::default());
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let quick = inbox(Pay::default(), database(&base.url()));
    let idempotency = on(Forward(MemoryStore::default()));
    let (first, second) = soon(async {
        tokio::join!(run(&idempotency, &held), async {
            gate.reached.notified().await;
            gate.open.notify_one();
            run(&idempotency, &quick).await
        })
    })
    .await;
    assert!(second.recovery || matches!(second.outcome, Outcome::Duplicate { .. }), "the lease had ended: {second:?}");
    // The first message is done, although the second one owns the record.
    assert!(matches!(&first.outcome, Outcome::DoneByOwnRecord { .. } | Outcome::Done { .. }), "{first:?}");
    assert_eq!(duplicate(&second), b"receipt of pay_1");
    assert_eq!(base.count(EFFECTS).await, 1);
}

/// A batch goes on with the messages of the parts that respond.
#[tokio::test]
async fn an_optional_store_has_the_parts_of_its_store() {
    let parts = Parts::new(["a", "b", "c"], [Instant::now(); 3]);
    let store = OptionalStore::new(parts, OutagePolicy::Refuse);
    assert_eq!(["a1", "b1", "c1"].map(|key| store.part(&idempotent_sqs::Key::new(key).unwrap())), [0, 1, 2]);
}

/// A store whose leases end immediately.
struct Forward(MemoryStore);

impl Store for Forward {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let asked = with!(request.clone(), lease = Duration::ZERO);
        Ok(match self.0.acquire(asked).await? {
            Acquire::Acquired(claim) => Acquire::claimed(request, claim.fence(), claim.attempt(), false),
            Acquire::AcquiredStale(claim) => Acquire::claimed(request, claim.fence(), claim.attempt(), true),
            other => other,
        })
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.0.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.0.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.0.release(request, claim).await
    }
}

#[tokio::test]
async fn a_committed_work_is_done_even_if_the_store_cannot_record_it() {
    let base = base().await;
    let store = FaultyStore::new(MemoryStore::default());
    store.next(StoreCall::Settle, Fault::Refused);
    let idempotency = on(store);
    let inbox = inbox(Pay::default(), database(&base.url()));
    let report = run(&idempotency, &inbox).await;
    assert!(
        matches!(&report.outcome, Outcome::DoneByOwnRecord { result } if result == b"receipt of pay_1"),
        "{report:?}"
    );
}

fn out_of_reach(outage: OutagePolicy) -> Idempotency<OptionalStore<FaultyStore<MemoryStore>>> {
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    on(OptionalStore::new(store, outage))
}

#[tokio::test]
async fn without_the_store_nothing_runs_by_default() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    // The acquire is tried again until the deadline.
    let short = delivery("pay_1").deadline(Deadline::within(SECOND));
    let ended = out_of_reach(OutagePolicy::default()).run(&short, &inbox, &Message::default()).await;
    assert!(ended.unwrap_err().is_unavailable());
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (0, 0));
}

#[tokio::test]
async fn without_the_store_the_inbox_alone_decides_if_the_outage_setting_is_proceed() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    let first = run(&out_of_reach(OutagePolicy::Proceed), &inbox).await;
    assert!(
        matches!(&first.outcome, Outcome::DoneByOwnRecord { result } if result == b"receipt of pay_1"),
        "{first:?}"
    );
    assert!(first.recovery, "earlier attempts are unknown");
    assert_eq!(duplicate(&run(&out_of_reach(OutagePolicy::Proceed), &inbox).await), b"receipt of pay_1");
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report = out_of_reach(OutagePolicy::Proceed).run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_value_that_is_no_record_is_an_error_whatever_the_outage_setting() {
    let (base, redis) = (base().await, Redis::start().await);
    let mut other = redis::cmd("SET");
    other.arg("payments:pay_1").arg("not a record");
    let () = other.query_async(&mut redis.connection().await).await.unwrap();
    let store = RedisStore::new(&RedisSettings::new(redis.url().parse().unwrap(), "payments")).unwrap();
    let idempotency = on(OptionalStore::new(store, OutagePolicy::Proceed));
    let error = try_run(&idempotency, &inbox(Pay::default(), database(&base.url()))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotARecord(_)), "{error:?}");
    assert_eq!(base.count(EFFECTS).await, 0);
}

#[tokio::test]
async fn attempts_without_redis_do_not_change_the_number_of_the_others() {
    let (base, store) = (base().await, Arc::new(FaultyStore::new(MemoryStore::default())));
    let fails = Pay { fails: Some(|| WorkError::retryable("not now")), ..Pay::default() };
    let fails = inbox(fails, database(&base.url()));
    let idempotency = on(OptionalStore::new(Arc::clone(&store), OutagePolicy::Proceed));
    for attempt in 1..=4 {
        // The acquire is executed, and its reply is lost.
        store.next(StoreCall::Acquire, Fault::ReplyLost);
        run(&idempotency, &fails).await;
        assert_eq!(run(&idempotency, &fails).await.attempts, Some(attempt));
    }
}

#[tokio::test]
async fn a_mismatch_without_redis_does_not_change_the_number_of_attempts() {
    let (base, store) = (base().await, Arc::new(FaultyStore::new(MemoryStore::default())));
    let fails = Pay { fails: Some(|| WorkError::retryable("not now")), ..Pay::default() };
    let (fails, inbox) = (inbox(fails, database(&base.url())), inbox(Pay::default(), database(&base.url())));
    let idempotency = on(OptionalStore::new(Arc::clone(&store), OutagePolicy::Proceed));
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    for attempt in 1..=2 {
        let report = idempotency.run(&other, &fails, &Message::default()).await.unwrap();
        assert_eq!(report.attempts, Some(attempt));
    }
    run(&out_of_reach(OutagePolicy::Proceed), &inbox).await;
    // The acquire is executed, and its reply is lost.
    store.next(StoreCall::Acquire, Fault::ReplyLost);
    let [without_redis, later] = [
        idempotency.run(&other, &inbox, &Message::default()).await.unwrap(),
        idempotency.run(&other, &inbox, &Message::default()).await.unwrap(),
    ];
    assert!(matches!(without_redis.outcome, Outcome::Mismatch), "{without_redis:?}");
    assert!(matches!(later.outcome, Outcome::Mismatch) && later.attempts == Some(3), "{later:?}");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_failure_does_not_wait_for_an_unavailable_store() {
    type IsOutcome = fn(&Outcome) -> bool;
    let base = base().await;
    let failures: [(fn() -> WorkError, IsOutcome); 2] = [
        (|| WorkError::retryable("not now"), |outcome| matches!(outcome, Outcome::Unsettled { .. })),
        (|| WorkError::busy("in use"), |outcome| matches!(outcome, Outcome::Unavailable { .. })),
    ];
    for (error, expected) in failures {
        let fails = Pay { fails: Some(error), ..Pay::default() };
        let report = soon(run(&out_of_reach(OutagePolicy::Proceed), &inbox(fails, database(&base.url())))).await;
        assert!(expected(&report.outcome), "{report:?}");
        assert_eq!(base.count(EFFECTS).await, 0);
    }
}

#[tokio::test]
async fn a_redis_that_restarts_empty_during_the_work_neither_repeats_nor_loses_it() {
    let (base, mut redis) = (base().await, Redis::start().await);
    let gate = Arc::new(Gate::default());
    let held = inbox(Pay { after: Some(gate.clone()), ..Pay::default() }, database(&base.url()));
    let idempotency = on(OptionalStore::new(redis.store(), OutagePolicy::Proceed));
    let quick = inbox(Pay::default(), database(&base.url()));
    let (first, ()) = soon(async {
        tokio::join!(run(&idempotency, &held), async {
            gate.reached.notified().await;
            redis.kill();
            gate.open.notify_one();
        })
    })
    .await;
    assert!(matches!(first.outcome, Outcome::DoneByOwnRecord { .. }), "{first:?}");
    assert_eq!(duplicate(&run(&idempotency, &quick).await), b"receipt of pay_1");
    redis.restart().await;
    assert_eq!(duplicate(&run(&idempotency, &quick).await), b"receipt of pay_1");
    // Redis has the record again.
    base.client.batch_execute("DROP TABLE idempotency_inbox").await.unwrap();
    assert_eq!(duplicate(&run(&idempotency, &quick).await), b"receipt of pay_1");
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_completed_message_whose_payload_and_record_are_lost_is_a_duplicate() {
    let base = base().await;
    let new_store = || Idempotency::new(MemoryStore::default(), Policy::default());
    done(&run(&new_store(), &inbox(Pay::default(), database(&base.url()))).await);
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::default());
    let extended_client = with!(ExtendedClient::default(), objects = Some(objects), buckets = vec!["payloads".into()]);
    let settings = with!(BatchSettings::default(), extended_client = extended_client);
    let batch = Batch::new(new_store(), inbox(Pay::default(), database(&base.url())), settings);
    let pointer =
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"payloads","s3Key":"removed"}]"#;
    let attributes = [("ExtendedPayloadSize", "300000"), ("Idempotency-Key", "pay_1")];
    let message = with!(
        Message::default(),
        id = "m-1".into(),
        body = Some(pointer.into()),
        attributes = attributes.map(|(name, value)| (name.to_owned(), value.into())).into()
    );
    let reports = batch.run(&[message], Deadline::within(TIME)).await.unwrap();
    assert_eq!(reports[0].disposition, Disposition::Done, "{reports:?}");
}

#[tokio::test]
async fn without_the_store_each_message_that_cannot_succeed_is_sent_to_the_dead_letter_queue_at_once() {
    let base = base().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let queue = DeadLetterQueue::with_replacement("https://sqs/1/dead.fifo", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let store = FaultyStore::new(MemoryStore::default());
    for call in [StoreCall::Acquire, StoreCall::Settle] {
        store.always(call, Some(Fault::Refused));
    }
    let store = Idempotency::new(OptionalStore::new(store, OutagePolicy::Proceed), Policy::default());
    let settings = with!(BatchSettings::default(), dead_letter_queue = Some(queue));
    let batch = Batch::new(store, inbox(Pay::default(), database(&base.url())), settings);
    let group = ["m1", "m2", "m3"].map(|id| {
        with!(
            Message::new(id, "{}"),
            attributes = [("Idempotency-Key".to_owned(), "".into())].into(),
            queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into()),
            group_id = Some("g".into())
        )
    });
    let began = Instant::now();
    let reports = batch.run(&group, Deadline::within(TIME)).await.unwrap();
    assert!(reports.iter().all(|report| report.disposition == Disposition::DeadLetter), "{reports:?}");
    assert!(began.elapsed() < TIME / 2, "{:?}", began.elapsed());
    assert_eq!(sent.load(Ordering::Relaxed), 3);
}
