use harness::with;
use std::num::NonZeroUsize;
use std::time::Duration;

use idempotent_sqs::idempotency::{Deadline, Idempotency, Policy, Store, StoreError};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, Envelopes, KeySource, Message, MessageReport, Payload};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};
use tokio::time::{Instant, advance};

use harness::work::{Do, Told};

const TIME: Duration = Duration::from_secs(30);

/// What a message that is sent on to the dead-letter queue, or comes again at once, is given.
/// The first step of the back-off, of which half is jitter.
fn is_first_step(disposition: Disposition) -> bool {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(2));
    matches!(disposition, Disposition::Redeliver { after: Some(after) } if (least..=most).contains(&after))
}

/// What is left to the queue's visibility timeout.
const LEFT_ALONE: Disposition = Disposition::Redeliver { after: None };

/// A message of a standard queue, whose key is its body.
fn message(id: &str, key: &str) -> Message {
    with!(
        Message::default(),
        id = id.into(),
        body = Some(format!("{{\"key\":\"{key}\"}}")),
        queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments".into())
    )
}

/// A message of a FIFO queue.
fn in_group(group: &str, id: &str, key: &str) -> Message {
    with!(
        message(id, key),
        group_id = Some(group.into()),
        queue_arn = Some("arn:aws:sqs:eu-central-1:123456789012:payments.fifo".into())
    )
}

fn many(count: usize) -> Vec<Message> {
    (0..count).map(|n| message(&format!("m{n}"), &format!("pay_{n}"))).collect()
}

fn settings() -> BatchSettings {
    with!(BatchSettings::default(), keys = vec![KeySource::Body("/key".into())])
}

fn batch<S: Store>(store: S, told: &Told) -> Batch<S, &Told> {
    Batch::new(Idempotency::new(store, Policy::default()), told, settings())
}

async fn run<S: Store>(batch: &Batch<S, &Told>, messages: &[Message]) -> Vec<MessageReport> {
    batch.run(messages, Deadline::within(TIME)).await.unwrap()
}

fn outcomes(reports: &[MessageReport]) -> Vec<&'static str> {
    reports.iter().map(|report| report.outcome.as_str()).collect()
}

fn dispositions(reports: &[MessageReport]) -> Vec<Disposition> {
    reports.iter().map(|report| report.disposition).collect()
}

fn wait(report: &MessageReport) -> Duration {
    match report.disposition {
        Disposition::Redeliver { after: Some(after) } => after,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_message_runs_once_and_its_duplicate_is_acknowledged() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let batch = batch(&store, &told);
    assert_eq!(outcomes(&run(&batch, &many(3)).await), ["ACQUIRED"; 3]);
    let again = run(&batch, &many(3)).await;
    assert_eq!(outcomes(&again), ["DUPLICATE"; 3]);
    assert_eq!(dispositions(&again), [Disposition::Done; 3]);
    assert_eq!(
        again.iter().map(|report| report.key.as_ref().unwrap().as_str()).collect::<Vec<_>>(),
        ["pay_0", "pay_1", "pay_2"]
    );
    assert_eq!(told.runs().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_comes_again_when_the_lease_has_ended_and_not_all_at_the_same_moment() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Hang));
    let batch = batch(&store, &told);
    let messages = many(20);
    let killed = tokio::time::timeout(Duration::from_secs(10), run(&batch, &messages[..16])).await;
    assert!(killed.is_err());
    let reports = run(&batch, &messages[..16]).await;
    assert_eq!(outcomes(&reports), ["CONFLICT"; 16]);
    let remains = TIME + Policy::default().lease_grace - Duration::from_secs(10);
    let waits: Vec<_> = reports.iter().map(wait).collect();
    assert!(waits.iter().all(|wait| (remains..=remains + Duration::from_secs(2)).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_message_comes_again_after_a_growing_and_jittered_time() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Refuse));
    let policy = with!(Policy::default(), max_attempts = 20);
    let batch = Batch::new(Idempotency::new(&store, policy), &told, settings());
    for doublings in 0..12_u32 {
        let received = |message: Message| with!(message, receive_count = Some(doublings + 1));
        let messages: Vec<_> = many(16).into_iter().map(received).collect();
        let waits: Vec<_> = run(&batch, &messages).await.iter().map(wait).collect();
        let step = Duration::from_secs((2_u64 << doublings).min(900));
        assert!(waits.iter().all(|wait| (step / 2..=step).contains(wait)), "{doublings}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }
}

#[tokio::test]
async fn what_is_unavailable_is_asked_no_sooner_than_the_back_off_that_grows_with_the_receives() {
    let (store, down) = (MemoryStore::default(), Told::to(Do::BeUnavailable));
    let batch = batch(&store, &down);
    for doublings in 0..30_u32 {
        let message = with!(message("m", "pay_1"), receive_count = Some(doublings + 1));
        let reports = run(&batch, &[message]).await;
        let step = Duration::from_secs(2_u64.saturating_mul(2_u64.pow(doublings)).min(900));
        assert!((step / 2..=step).contains(&wait(&reports[0])), "{doublings}: {reports:?}");
        assert!(!reports[0].failed_permanently);
    }
}

#[tokio::test]
async fn a_wait_that_the_work_asks_for_is_kept_within_what_sqs_takes() {
    for (asked, given) in [(0, 1), (7, 7), (3600, 3600), (86_400, 12 * 3600 - 900)] {
        let (store, told) = (MemoryStore::default(), Told::to(Do::RefuseFor(Duration::from_secs(asked))));
        let reports = run(&batch(&store, &told), &many(1)).await;
        assert_eq!(wait(&reports[0]), Duration::from_secs(given));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_uncertain_comes_again_and_runs_as_a_recovery() {
    for what in [Do::BeUncertain, Do::Panic, Do::Hang] {
        let (store, told) =
            (MemoryStore::default(), Told::by(move |run| if run.recovery { Do::Return(b"") } else { what }));
        let batch = batch(&store, &told);
        let reports = run(&batch, &many(1)).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED"]);
        assert!(wait(&reports[0]) <= Duration::from_secs(2));
        let reports = run(&batch, &many(1)).await;
        assert_eq!((outcomes(&reports), dispositions(&reports)), (vec!["ACQUIRED_STALE"], vec![Disposition::Done]));
    }
}

#[tokio::test]
async fn what_fails_for_good_comes_again_until_it_is_dead_lettered_and_never_runs_again() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::FailForGood));
    let batch = batch(&store, &told);
    for outcome in ["ACQUIRED", "FAILED", "FAILED"] {
        let reports = run(&batch, &many(1)).await;
        assert_eq!(outcomes(&reports), [outcome]);
        assert!(is_first_step(reports[0].disposition), "{reports:?}");
    }
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test]
async fn attempts_used_up_fail_a_message_for_good_until_it_is_redriven() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Refuse));
    let batch = batch(&store, &told);
    for _ in 1..10 {
        assert!(!run(&batch, &many(1)).await[0].failed_permanently);
    }
    assert!(run(&batch, &many(1)).await[0].failed_permanently);
    assert_eq!(outcomes(&run(&batch, &many(1)).await), ["FAILED"]);
    assert_eq!(told.runs().len(), 10);
    assert_eq!(outcomes(&run(&batch, &[message("redriven", "pay_0")]).await), ["ACQUIRED"]);
}

#[tokio::test]
async fn a_message_without_a_key_comes_again_alone_until_it_is_dead_lettered() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let with = |body: &str| with!(message("m", ""), body = Some(body.into()));
    for body in [
        "",
        "no JSON",
        "{}",
        "[]",
        "{\"key\":null}",
        "{\"key\":\"\"}",
        "{\"key\":true}",
        "{\"key\":{}}",
        "{\"key\":[1]}",
    ] {
        let reports = run(&batch(&store, &told), &[message("good", "pay_1"), with(body)]).await;
        assert_eq!(reports[1].outcome.as_str(), "NO_KEY", "{body}");
        assert!(is_first_step(reports[1].disposition), "{reports:?}");
        assert_eq!(reports[0].disposition, Disposition::Done);
    }
}

#[tokio::test]
async fn a_message_that_could_not_be_read_comes_again_alone() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let unreadable = with!(message("m", "pay_1"), body = None);
    let reports = run(&batch(&store, &told), &[unreadable, message("good", "pay_2")]).await;
    assert_eq!(outcomes(&reports), ["UNREADABLE", "ACQUIRED"]);
    assert!(is_first_step(reports[0].disposition), "{reports:?}");
    assert_eq!(reports[1].disposition, Disposition::Done);
}

#[tokio::test]
async fn another_payload_under_a_key_does_not_run() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let batch = batch(&store, &told);
    run(&batch, &many(1)).await;
    let other = with!(message("other", ""), body = Some("{\"key\":\"pay_0\",\"amount\":1}".into()));
    let reports = run(&batch, &[other]).await;
    assert_eq!(outcomes(&reports), ["MISMATCH"]);
    assert!(is_first_step(reports[0].disposition), "{reports:?}");
    assert_eq!(told.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_run_once_and_share_the_verdict() {
    let duplicates = [message("first", "pay_1"), message("second", "pay_1"), message("third", "pay_1")];
    for (what, done) in [
        (Do::Take(Duration::from_secs(1)), true),
        (Do::Refuse, false),
        (Do::FailForGood, false),
        (Do::Panic, false),
        (Do::Hang, false),
    ] {
        let (store, told) = (MemoryStore::default(), Told::to(what));
        let reports = run(&batch(&store, &told), &duplicates).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED", "IN_BATCH_DUPLICATE", "IN_BATCH_DUPLICATE"]);
        assert!(reports.iter().all(|report| (report.disposition == Disposition::Done) == done), "{reports:?}");
        // At another time than the first, so that each is judged by itself then.
        assert!(done || reports[1..].iter().all(|report| wait(report) >= wait(&reports[0]) + Duration::from_secs(5)));
        assert_eq!(told.ran(), ["first"]);
    }
}

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_in_different_groups_run_once() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Take(Duration::from_secs(1))));
    let messages =
        [in_group("a", "a1", "x"), in_group("b", "b1", "y"), in_group("a", "a2", "y"), in_group("b", "b2", "x")];
    let reports = run(&batch(&store, &told), &messages).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "IN_BATCH_DUPLICATE", "IN_BATCH_DUPLICATE"]);
    assert_eq!(dispositions(&reports), [Disposition::Done; 4]);
}

#[tokio::test(start_paused = true)]
async fn another_payload_under_the_key_of_its_batch_is_a_conflict_and_no_duplicate() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Take(Duration::from_secs(1))));
    let other = with!(message("other", ""), body = Some("{\"key\":\"pay_1\",\"amount\":1}".into()));
    let reports = run(&batch(&store, &told), &[message("first", "pay_1"), other]).await;
    assert_eq!(outcomes(&reports), ["ACQUIRED", "CONFLICT"]);
}

#[tokio::test(start_paused = true)]
async fn groups_run_side_by_side_and_in_order_within() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Take(Duration::from_secs(1))));
    let messages = [
        in_group("a", "a1", "1"),
        in_group("b", "b1", "2"),
        in_group("a", "a2", "3"),
        in_group("b", "b2", "4"),
        in_group("a", "a3", "5"),
    ];
    let started = Instant::now();
    let reports = run(&batch(&store, &told), &messages).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 5]);
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(told.most_at_once(), 2);
    let of = |group: char| told.ran().into_iter().filter(|id| id.starts_with(group)).collect::<Vec<_>>();
    assert_eq!((of('a'), of('b')), (vec!["a1".into(), "a2".into(), "a3".into()], vec!["b1".to_owned(), "b2".into()]));
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_the_rest_of_its_group_is_held_for_the_same_time_and_other_groups_go_on() {
    for what in [Do::Refuse, Do::BeUncertain, Do::FailForGood, Do::Panic] {
        let (store, told) =
            (MemoryStore::default(), Told::by(move |run| if run.message_id == "a2" { what } else { Do::Return(b"") }));
        let messages = [
            in_group("a", "a1", "1"),
            in_group("a", "a2", "2"),
            in_group("b", "b1", "3"),
            in_group("a", "a3", "4"),
            in_group("a", "a4", "5"),
        ];
        let reports = run(&batch(&store, &told), &messages).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "ACQUIRED", "NOT_PROCESSED", "NOT_PROCESSED"]);
        assert_eq!((reports[0].disposition, reports[2].disposition), (Disposition::Done, Disposition::Done));
        assert!(matches!(reports[1].disposition, Disposition::Redeliver { after: Some(_) }));
        assert_eq!(dispositions(&reports)[3..], [reports[1].disposition; 2]);
        assert!(!told.ran().contains(&"a3".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_group_a_conflict_holds_the_rest_and_a_duplicate_does_not() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    let (done, taken) = (in_group("a", "a1", "done"), in_group("a", "a2", "taken"));
    let batch = batch(&store, &told);
    run(&batch, std::slice::from_ref(&done)).await;
    let hangs = Told::to(Do::Hang);
    let other = crate::batch::batch(&store, &hangs);
    assert!(tokio::time::timeout(Duration::from_secs(1), run(&other, std::slice::from_ref(&taken))).await.is_err());
    let reports = run(&batch, &[done, in_group("a", "new", "new"), taken, in_group("a", "last", "last")]).await;
    assert_eq!(outcomes(&reports), ["DUPLICATE", "ACQUIRED", "CONFLICT", "NOT_PROCESSED"]);
    assert_eq!(reports[3].disposition, reports[2].disposition);
}

#[tokio::test(start_paused = true)]
async fn a_group_on_a_standard_queue_means_no_order() {
    let (store, told) = (
        MemoryStore::default(),
        Told::by(|run| if run.message_id == "m0" { Do::Refuse } else { Do::Take(Duration::from_secs(1)) }),
    );
    let messages: Vec<_> =
        many(4).into_iter().map(|message| with!(message, group_id = Some("tenant".into()))).collect();
    let started = Instant::now();
    let reports = run(&batch(&store, &told), &messages).await;
    assert_eq!(dispositions(&reports)[1..], [Disposition::Done; 3]);
    assert_eq!(started.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_concurrency_run_at_once_and_claims_are_taken_only_for_them() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Take(Duration::from_secs(1))));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(3).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    let messages = many(10);
    let run = batch.run(&messages, Deadline::within(TIME));
    tokio::pin!(run);
    assert!(tokio::time::timeout(Duration::from_millis(1500), &mut run).await.is_err());
    assert_eq!((store.calls(StoreCall::Acquire), told.runs().len()), (6, 6));
    run.await.unwrap();
    assert_eq!((store.calls(StoreCall::Acquire), told.runs().len(), told.most_at_once()), (10, 10, 3));
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_while_the_one_before_it_is_recorded() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Take(Duration::from_secs(1))));
    store.always(StoreCall::Settle, Some(Fault::Slow(Duration::from_secs(1))));
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    let started = Instant::now();
    let reports = run(&batch, &many(4)).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 4]);
    // Four works one after another, and the last record.
    assert_eq!((started.elapsed(), told.most_at_once()), (Duration::from_secs(5), 1));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_start_in_time_is_reported_without_a_claim() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Take(Duration::from_secs(20))));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(2).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    let started = Instant::now();
    let reports = batch.run(&many(6), Deadline::within(TIME)).await.unwrap();
    assert!(started.elapsed() < TIME);
    assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "ACQUIRED", "ACQUIRED", "NOT_PROCESSED", "NOT_PROCESSED"]);
    assert_eq!(dispositions(&reports)[..2], [Disposition::Done; 2]);
    assert_eq!(dispositions(&reports)[4..], [LEFT_ALONE; 2]);
    assert_eq!(store.calls(StoreCall::Acquire), 4);
    // The two that were cut off settled: they are no conflict, but a recovery.
    let quick = Told::to(Do::Return(b""));
    let again = run(&crate::batch::batch(&store, &quick), &many(6)).await;
    assert_eq!(
        outcomes(&again),
        ["DUPLICATE", "DUPLICATE", "ACQUIRED_STALE", "ACQUIRED_STALE", "ACQUIRED", "ACQUIRED"]
    );
}

#[tokio::test]
async fn one_panic_costs_its_neighbours_nothing() {
    let (store, told) =
        (MemoryStore::default(), Told::by(|run| if run.message_id == "m1" { Do::Panic } else { Do::Return(b"") }));
    let reports = run(&batch(&store, &told), &many(3)).await;
    assert_eq!((reports[0].disposition, reports[2].disposition), (Disposition::Done, Disposition::Done));
    assert!(reports[1].reason.contains("panicked"), "{}", reports[1].reason);
}

#[tokio::test(start_paused = true)]
async fn a_store_out_of_reach_before_any_work_is_an_error_of_the_batch_and_is_not_asked_for_each_message() {
    for fault in [Fault::Refused, Fault::ReplyLost, Fault::OutOfReach] {
        let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
        store.always(StoreCall::Acquire, Some(fault));
        let error = batch(&store, &told).run(&many(1000), Deadline::within(TIME)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)));
        assert!(store.calls(StoreCall::Acquire) <= 16, "{}", store.calls(StoreCall::Acquire));
        assert_eq!(told.runs().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_in_mid_batch_costs_only_what_it_did_not_answer() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Take(Duration::from_secs(1))));
    let settings = with!(settings(), concurrency = NonZeroUsize::new(2).unwrap());
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &told, settings);
    let gone = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        store.always(StoreCall::Acquire, Some(Fault::Refused));
    };
    let messages = many(6);
    let (reports, ()) = tokio::join!(batch.run(&messages, Deadline::within(TIME)), gone);
    let reports = reports.unwrap();
    assert_eq!(dispositions(&reports)[..2], [Disposition::Done; 2]);
    assert_eq!(dispositions(&reports)[2..], [LEFT_ALONE; 4]);
    assert_eq!(told.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_effect_whose_record_cannot_be_written_is_not_acknowledged() {
    let (store, told) = (FaultyStore::new(MemoryStore::default()), Told::to(Do::Return(b"")));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let reports = run(&batch(&store, &told), &many(1)).await;
    assert_eq!(dispositions(&reports), [LEFT_ALONE]);
    assert!(reports[0].reason.contains("could not be recorded"), "{}", reports[0].reason);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_lost_its_record_acknowledges_only_what_is_completed() {
    for (other, outcome, disposition) in [
        (Do::Return(b""), "LOST", Disposition::Done),
        // What is done is recorded as done, though the other owner failed.
        (Do::Refuse, "ACQUIRED", Disposition::Done),
        (Do::Hang, "LOST", LEFT_ALONE),
    ] {
        let (store, slow) = (MemoryStore::default(), Told::to(Do::Take(Duration::from_secs(20))));
        let (slow_batch, other) = (batch(&store, &slow), Told::to(other));
        let other_batch = batch(&store, &other);
        let messages = many(1);
        let stale = with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1));
        let takes_over = async {
            advance(Duration::from_secs(5)).await;
            // One that hangs is still at it when the slow one settles.
            let _ = tokio::time::timeout(Duration::from_secs(20), run(&other_batch, &messages)).await;
        };
        let (reports, ()) = tokio::join!(slow_batch.run(&messages, stale), takes_over);
        let reports = reports.unwrap();
        assert_eq!((outcomes(&reports), dispositions(&reports)), (vec![outcome], vec![disposition]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_failed_and_lost_its_record_acknowledges_nothing() {
    let (store, slow) = (MemoryStore::default(), Told::to(Do::Hang));
    let (slow_batch, other) = (batch(&store, &slow), Told::to(Do::Return(b"")));
    let other_batch = batch(&store, &other);
    let messages = many(1);
    let stale = with!(Deadline::within(TIME), end = Instant::now() + Duration::from_secs(1));
    let takes_over = async {
        advance(Duration::from_secs(5)).await;
        run(&other_batch, &messages).await
    };
    let (reports, other) = tokio::join!(slow_batch.run(&messages, stale), takes_over);
    assert_eq!(dispositions(&other), [Disposition::Done]);
    // What was completed may be another payload under the same key: the next delivery finds out.
    assert_eq!(
        (outcomes(reports.as_ref().unwrap()), dispositions(&reports.unwrap())),
        (vec!["LOST"], vec![LEFT_ALONE])
    );
}

#[tokio::test]
async fn an_empty_batch_is_answered() {
    let (store, told) = (MemoryStore::default(), Told::to(Do::Return(b"")));
    assert!(run(&batch(&store, &told), &[]).await.is_empty());
}

#[test]
fn the_key_is_the_first_that_is_present() {
    let message = with!(
        Message::default(),
        id = "id".into(),
        body = Some("{\"a\":{\"b\":\"in body\"},\"n\":7}".into()),
        attributes = [("Key".to_owned(), Some("in attribute".to_owned())), ("Bytes".to_owned(), None)].into(),
        deduplication_id = Some("dedup".into()),
        group_id = Some("group".into())
    );
    let find = |places: &str| {
        let places: Vec<KeySource> = places.split(',').map(|place| place.parse().unwrap()).collect();
        let found = KeySource::find(&places, &Payload::of(&message, Envelopes::Auto));
        found.map(|key| key.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(find("attribute:Key,messageId").unwrap(), "in attribute");
    assert_eq!(find("attribute:None,body:/a/b,messageId").unwrap(), "in body");
    assert_eq!(find("body:/x,deduplicationId,messageId").unwrap(), "group dedup");
    assert_eq!(find("body:/n").unwrap(), "7");
    assert_eq!(find("messageId").unwrap(), "id");
    assert!(find("body:/x").unwrap_err().contains("no key source"));
    assert!(find("body:/a,messageId").unwrap_err().contains("body:/a"), "looking on would lose the protection");
    assert!(find("attribute:Bytes,messageId").unwrap_err().contains("attribute:Bytes"));
}
