//! Messages for whose work too little time is left.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::{QUEUE_TIMEOUT, TIME, batch, dispositions, in_group, many, message, one_by_one, outcomes, run, settings};
use harness::event::set_pointer;
use harness::parts::Parts;
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{
    Claim, Deadline, Idempotency, Location, ObjectError, ObjectStore, Policy, Recovery, Store, Work, WorkError, work_fn,
};
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Disposition, ExtendedClient, KeySource, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

const AT_ONCE: Disposition = Disposition::Redeliver { after: Some(Duration::ZERO) };

/// Work that takes seven seconds, and says that it takes `longest` at most.
struct SevenSeconds {
    longest: Duration,
    work: ScriptedWork,
}

impl SevenSeconds {
    fn new(longest: Duration) -> Self {
        Self { longest, work: ScriptedWork::always(Action::Sleep(Duration::from_secs(7))) }
    }
}

impl Work<Message> for SevenSeconds {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.work.run(claim, message).await
    }

    fn longest_run(&self, message: &Message) -> Duration {
        assert_ne!(message.id, "panics");
        self.longest
    }
}

fn five_of_a_group() -> Vec<Message> {
    (1..=5).map(|n| in_group("a", &format!("a{n}"), &format!("pay_{n}"))).collect()
}

/// Half of 29 seconds is the most that is asked for.
#[tokio::test(start_paused = true)]
async fn a_message_of_a_group_whose_work_could_be_cut_off_is_not_started_and_comes_at_once() {
    for longest in [Duration::from_millis(8001), Duration::from_secs(10), Duration::from_mins(1), Duration::MAX] {
        let (store, work) = (MemoryStore::default(), SevenSeconds::new(longest));
        let (batch, messages) = (batch(&store, &work), five_of_a_group());
        let began = Instant::now();
        let reports = run(&batch, &messages).await;
        assert_eq!(outcomes(&reports), ["ACQUIRED", "ACQUIRED", "ACQUIRED", "NOT_PROCESSED", "NOT_PROCESSED"]);
        assert_eq!(dispositions(&reports)[3..], [AT_ONCE, AT_ONCE]);
        assert_eq!(
            (began.elapsed(), &*reports[3].reason),
            (Duration::from_secs(21), "too little time was left to start the work")
        );
        let reports = run(&batch, &messages[3..]).await;
        assert_eq!(dispositions(&reports), [Disposition::Done; 2]);
        assert!(work.work.runs().iter().all(|run| run.attempt == 1 && !run.recovery), "{:?}", work.work.runs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_work_can_end_is_started() {
    for longest in [Duration::ZERO, Duration::from_secs(8)] {
        let (store, work) = (MemoryStore::default(), SevenSeconds::new(longest));
        let reports = run(&batch(&store, &work), &five_of_a_group()).await;
        assert_eq!(outcomes(&reports)[3..], ["ACQUIRED", if longest.is_zero() { "ACQUIRED" } else { "NOT_PROCESSED" }]);
        assert_eq!(reports[3].disposition, Disposition::Done);
    }
}

/// Each receive of a standard queue would be used up at once.
#[tokio::test(start_paused = true)]
async fn on_a_standard_queue_a_message_for_which_too_little_time_is_left_comes_after_the_visibility_timeout() {
    let (store, work) = (MemoryStore::default(), SevenSeconds::new(Duration::from_secs(10)));
    let reports = run(&one_by_one(&store, &work), &many(5)).await;
    assert_eq!(
        dispositions(&reports),
        [Disposition::Done, Disposition::Done, Disposition::Done, QUEUE_TIMEOUT, QUEUE_TIMEOUT]
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_longest_run_panics_is_started_as_long_as_any_time_is_left() {
    let (store, work) = (MemoryStore::default(), SevenSeconds::new(Duration::from_secs(10)));
    let messages: Vec<_> =
        (1..=4).map(|n| with!(message("panics", &format!("pay_{n}")), receive_count = Some(n))).collect();
    let reports = run(&one_by_one(&store, &work), &messages).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 4]);
}

/// S3 that takes nine seconds.
#[derive(Debug)]
struct SlowObjects;

impl ObjectStore for SlowObjects {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(async {
            sleep(Duration::from_secs(9)).await;
            Ok(b"payload".to_vec())
        })
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_message_of_a_batch_is_started_although_its_work_may_be_cut_off() {
    let objects: Option<Arc<dyn ObjectStore>> = Some(Arc::new(SlowObjects));
    let extended_client = with!(ExtendedClient::default(), objects = objects, buckets = vec!["payloads".into()]);
    let (store, work) = (MemoryStore::default(), SevenSeconds::new(Duration::from_secs(10)));
    let settings = with!(settings(), extended_client = extended_client, keys = vec![KeySource::MessageId]);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let mut message = in_group("a", "a1", "pay_1");
    set_pointer(&mut message, "payloads", "one");
    // Of 16.5 seconds for work, 7.5 are left.
    let deadline = Deadline::within(Duration::from_millis(17_500));
    let reports = batch.run(&[message, in_group("a", "a2", "pay_2")], deadline).await.unwrap();
    assert_eq!(dispositions(&reports), [Disposition::Done, AT_ONCE], "{reports:?}");
    assert!(work.work.runs().iter().all(|run| run.attempt == 1), "{:?}", work.work.runs());
}

/// Of 29 seconds for work, 2 are left for the last of three payloads. In an outage of a part of the store, the invocation
/// fails if no work runs and no dead letter is sent, and the others would not be acknowledged.
#[tokio::test(start_paused = true)]
async fn a_message_behind_duplicates_whose_payloads_took_most_of_the_time_is_started_only_in_an_outage() {
    for (is_outage, sends_letter) in [(false, false), (true, false), (true, true)] {
        let until = if is_outage { Duration::from_mins(1) } else { Duration::ZERO };
        let store = Parts::new(["well", "hung", "other"], [Instant::now(), Instant::now() + until, Instant::now()]);
        let objects: Option<Arc<dyn ObjectStore>> = Some(Arc::new(SlowObjects));
        let extended_client = with!(ExtendedClient::default(), objects = objects, buckets = vec!["payloads".into()]);
        let settings = with!(
            settings(),
            extended_client = extended_client,
            keys = vec![KeySource::Attribute("Idempotency-Key".into())],
            dead_letter_queue = sends_letter.then(|| DeadLetterQueue::with_replacement("queue", |_| Ok(())))
        );
        let work = SevenSeconds::new(Duration::from_secs(10));
        let mut messages: Vec<_> = (1..=3).map(|n| in_group("a", &format!("well-{n}"), "a payment")).collect();
        for message in &mut messages {
            set_pointer(message, "payloads", "one");
        }
        messages.push(in_group("b", "hung", "a payment"));
        for message in &mut messages {
            message.attributes.insert("Idempotency-Key".to_owned(), (&*message.id).into());
        }
        messages.push(in_group("c", "keyless", "a payment"));
        let done = batch_with(&store.records, &work, settings.clone());
        for message in messages[..2].iter().chain((!is_outage).then_some(&messages[3])) {
            run(&done, slice::from_ref(message)).await;
        }
        let reports = run(&batch_with(&store, &work, settings), &messages).await;
        assert_eq!(outcomes(&reports)[..2], ["DUPLICATE", "DUPLICATE"]);
        let is_started = is_outage && !sends_letter;
        assert_eq!(outcomes(&reports)[2], if is_started { "ACQUIRED" } else { "NOT_PROCESSED" });
        assert_eq!(outcomes(&reports)[3], if is_outage { "UNAVAILABLE" } else { "DUPLICATE" });
        assert_eq!(reports[1].disposition, Disposition::Done);
        assert!(is_started || reports[2].disposition == AT_ONCE, "{reports:?}");
        assert_eq!(reports[4].disposition == Disposition::DeadLetter, sends_letter, "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_message_that_stays_in_its_queue_is_no_progress() {
    let objects: Option<Arc<dyn ObjectStore>> = Some(Arc::new(SlowObjects));
    let extended_client = with!(ExtendedClient::default(), objects = objects, buckets = vec!["payloads".into()]);
    let settings = with!(settings(), extended_client = extended_client, keys = vec![KeySource::MessageId]);
    let store = MemoryStore::default();
    let parks = || Idempotency::new(&store, with!(Policy::default(), recovery = Recovery::Park));
    let parked = message("parked", "parked");
    let uncertain = ScriptedWork::always(Action::FailUncertain);
    run(&Batch::new(parks(), &uncertain, settings.clone()), slice::from_ref(&parked)).await;

    let work = SevenSeconds::new(Duration::from_secs(10));
    let mut other = message("other", "other");
    set_pointer(&mut other, "payloads", "one");
    // Of 16.5 seconds for work, 7.5 are left once the payload is read.
    let deadline = Deadline::within(Duration::from_millis(17_500));
    let reports = Batch::new(parks(), &work, settings).run(&[parked, other], deadline).await.unwrap();
    assert!(!reports[0].ran, "{reports:?}");
    assert_eq!(reports[1].disposition, Disposition::Done, "{reports:?}");
}

fn batch_with<S: Store>(store: S, work: &SevenSeconds, settings: BatchSettings) -> Batch<S, &SevenSeconds> {
    Batch::new(Idempotency::new(store, Policy::default()), work, settings)
}

#[tokio::test(start_paused = true)]
async fn in_batch_duplicates_for_which_too_little_time_is_left_are_at_least_5_seconds_apart() {
    let (store, work) = (MemoryStore::default(), SevenSeconds::new(Duration::from_secs(10)));
    let of_group = |group| (1..=4).map(move |n| in_group(group, &format!("{group}{n}"), &format!("pay_{group}{n}")));
    let mut messages: Vec<_> = of_group("a").chain(of_group("b")).collect();
    let body = messages[3].body.clone();
    messages[7].body = body;
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(outcomes(&reports)[3], "NOT_PROCESSED");
    assert_eq!((outcomes(&reports)[7], reports[3].disposition), ("IN_BATCH_DUPLICATE", AT_ONCE));
    let Disposition::Redeliver { after: Some(after) } = reports[7].disposition else { panic!("{reports:?}") };
    assert!((5.0..=15.0).contains(&after.as_secs_f64()), "{after:?}");
}

/// None of the group is done. Invocations that do only the work of other groups would follow each other without a pause.
#[tokio::test(start_paused = true)]
async fn the_first_message_of_a_group_for_which_too_little_time_is_left_comes_after_the_visibility_timeout() {
    let (store, work) = (MemoryStore::default(), SevenSeconds::new(Duration::from_secs(10)));
    let mut messages: Vec<_> =
        (1..=4).map(|n| in_group(&format!("g{n}"), &format!("m{n}"), &format!("pay_{n}"))).collect();
    messages.push(in_group("g4", "m5", "pay_5"));
    let reports = run(&one_by_one(&store, &work), &messages).await;
    assert_eq!(dispositions(&reports)[2..], [Disposition::Done, QUEUE_TIMEOUT, QUEUE_TIMEOUT]);
    let reports = batch(&store, &work).run(&five_of_a_group(), Deadline::within(Duration::ZERO)).await.unwrap();
    assert_eq!(dispositions(&reports), [QUEUE_TIMEOUT; 5]);
}

#[tokio::test(start_paused = true)]
async fn messages_whose_acquires_took_most_of_the_time_are_released_but_for_the_first() {
    let store = FaultyStore::new(MemoryStore::default());
    store.always(StoreCall::Acquire, Some(Fault::Slow(Duration::from_secs(20))));
    let work = SevenSeconds::new(Duration::from_secs(10));
    let messages = many(3);
    let reports = run(&batch(&store, &work), &messages).await;
    assert_eq!(dispositions(&reports), [Disposition::Done, QUEUE_TIMEOUT, QUEUE_TIMEOUT]);
    assert_eq!(&*reports[1].reason, "too little time was left to start the work");
    let reports = run(&batch(store.inner(), &work), &messages[1..]).await;
    assert_eq!(dispositions(&reports), [Disposition::Done; 2]);
    assert!(work.work.runs().iter().all(|run| run.attempt == 1 && !run.recovery), "{:?}", work.work.runs());
}

#[test]
fn a_pointer_to_a_work_takes_as_long_as_the_work() {
    fn longest(work: impl Work<Message>) -> Duration {
        work.longest_run(&Message::default())
    }
    let work = SevenSeconds::new(TIME);
    let boxed = Box::new(SevenSeconds::new(TIME));
    assert_eq!([longest(&work), longest(Arc::new(work)), longest(boxed)], [TIME; 3]);
    assert_eq!(longest(work_fn(|_: &Claim, _: &Message| async { Ok(Vec::new()) })), Duration::ZERO);
}
