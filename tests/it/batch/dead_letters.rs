//! Messages that cannot succeed are sent to the dead-letter queue, and every crash on the way.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{TIME, delay, dispositions, has_first_backoff, in_group, message, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Deadline, Failure, Idempotency, Policy, Recovery, Settled, Store, StoreError,
    StoredResult,
};
use idempotent_sqs::sqs::{
    AttributeValue, Batch, DeadLetter, DeadLetterMessage, DeadLetterOutcome, DeadLetterQueue, Disposition,
    FingerprintSource, Message, MessageAttribute, MessageReport,
};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

const URL: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/dead-letters";

/// A dead-letter queue in memory.
#[derive(Clone, Default)]
struct Letters {
    sent: Arc<Mutex<Vec<DeadLetterMessage>>>,
    /// Why sends are refused.
    refused: Arc<Mutex<Option<String>>>,
}

impl Letters {
    fn queue(&self, url: &str) -> DeadLetterQueue {
        let (sent, refused) = (Arc::clone(&self.sent), Arc::clone(&self.refused));
        DeadLetterQueue::with_replacement(url, move |message| {
            if let Some(reason) = refused.lock().unwrap().clone() {
                return Err(reason);
            }
            sent.lock().unwrap().push(message);
            Ok(())
        })
    }

    fn refuse(&self, reason: Option<&str>) {
        *self.refused.lock().unwrap() = reason.map(str::to_owned);
    }

    fn sent(&self) -> Vec<DeadLetterMessage> {
        self.sent.lock().unwrap().clone()
    }

    /// The letter of the only message.
    fn only(&self) -> DeadLetter {
        let [message] = self.sent().try_into().unwrap();
        letter(&message)
    }
}

fn letter(message: &DeadLetterMessage) -> DeadLetter {
    serde_json::from_str(message.attributes[DeadLetter::ATTRIBUTE].text().unwrap()).unwrap()
}

fn batch<'a, S: Store>(store: S, work: &'a ScriptedWork, letters: &Letters) -> Batch<S, &'a ScriptedWork> {
    batch_with(Policy::default(), store, work, letters.queue(URL))
}

fn batch_with<S: Store>(
    policy: Policy,
    store: S,
    work: &ScriptedWork,
    queue: DeadLetterQueue,
) -> Batch<S, &ScriptedWork> {
    Batch::new(Idempotency::new(store, policy), work, with!(settings(), dead_letter_queue = Some(queue)))
}

async fn run<S: Store>(batch: &Batch<S, &ScriptedWork>, messages: &[Message]) -> Vec<MessageReport> {
    batch.run(messages, Deadline::within(TIME)).await.unwrap()
}

fn attributes(number: usize) -> HashMap<String, MessageAttribute> {
    (0..number).map(|n| (format!("Attribute{n}"), "value".into())).collect()
}

#[tokio::test]
async fn a_permanent_failure_is_sent_whole_with_its_reason_and_deleted() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let bytes = MessageAttribute { data_type: "Binary.png".into(), value: AttributeValue::Binary(vec![0, 159, 255]) };
    let number = MessageAttribute { data_type: "Number.int".into(), value: AttributeValue::Text("7".into()) };
    let original = with!(
        message("m1", "pay_1"),
        attributes = [("Image".to_owned(), bytes), ("Count".to_owned(), number)].into(),
        group_id = Some("tenant".into()),
        first_receive_ms = Some(1_795_080_483_148),
        trace_header = Some("Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700".into())
    );
    let reports = run(&batch(MemoryStore::default(), &work, &letters), std::slice::from_ref(&original)).await;
    assert_eq!(dispositions(&reports), [Disposition::DeadLetter]);

    let [sent] = letters.sent().try_into().unwrap();
    let DeadLetterMessage { body, mut attributes, group_id, deduplication_id, trace_header, .. } = sent.clone();
    assert_eq!(Some(body), original.body);
    attributes.remove(DeadLetter::ATTRIBUTE);
    assert_eq!(attributes, original.attributes.into_iter().collect());
    assert_eq!((group_id, deduplication_id, trace_header), (original.group_id, None, original.trace_header));
    let DeadLetter { outcome, reason, key, attempts, fence, source_queue_arn, message_id, first_receive, .. } =
        letter(&sent);
    assert_eq!((outcome, attempts), (DeadLetterOutcome::FailedPermanently, Some(1)));
    assert_eq!((key.as_deref(), &*message_id), (Some("pay_1"), "m1"));
    assert!(reason.contains("no such account") && fence > Some(0), "{reason} {fence:?}");
    assert_eq!(source_queue_arn.as_deref(), Some("arn:aws:sqs:eu-central-1:123456789012:payments"));
    assert_eq!(first_receive.as_deref(), Some("2026-11-19T09:28:03.148Z"));
}

#[tokio::test]
async fn each_message_that_cannot_succeed_is_sent_with_its_outcome() {
    let parks = with!(Policy::default(), recovery = Recovery::Park);
    let once = with!(Policy::default(), max_attempts = 1);
    for (policy, action, earlier, second, outcome) in [
        (
            Policy::default(),
            Action::FailPermanently,
            None,
            message("m1", "pay_1"),
            DeadLetterOutcome::FailedPermanently,
        ),
        (once, Action::FailRetryable, None, message("m1", "pay_1"), DeadLetterOutcome::AttemptsUsedUp),
        (parks, Action::FailUncertain, Some(message("m1", "pay_1")), message("m1", "pay_1"), DeadLetterOutcome::Parked),
        (
            Policy::default(),
            Action::Return(b""),
            Some(message("m0", "pay_1")),
            with!(message("m1", "pay_1"), body = Some(r#"{"key":"pay_1","amount":2}"#.into())),
            DeadLetterOutcome::Mismatch,
        ),
        (
            Policy::default(),
            Action::Return(b""),
            None,
            with!(message("m1", "pay_1"), body = Some("no key".into())),
            DeadLetterOutcome::NoKey,
        ),
    ] {
        let (letters, work) = (Letters::default(), ScriptedWork::always(action));
        let batch = batch_with(policy, MemoryStore::default(), &work, letters.queue(URL));
        if let Some(earlier) = earlier {
            run(&batch, &[earlier]).await;
            assert!(letters.sent().is_empty());
        }
        let reports = run(&batch, &[second]).await;
        assert_eq!(dispositions(&reports), [Disposition::DeadLetter], "{reports:?}");
        assert_eq!(letters.only().outcome, outcome);
        assert_eq!(letters.only().message_id, "m1");
    }
}

#[tokio::test]
async fn a_permanent_failure_whose_dead_letter_was_refused_is_sent_by_the_next_delivery() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch(MemoryStore::default(), &work, &letters);
    letters.refuse(Some("AccessDenied"));
    for _ in 0..300 {
        let reports = run(&batch, &[message("m1", "pay_1")]).await;
        assert!(has_first_backoff(reports[0].disposition) && reports[0].dead_letter_not_sent, "{reports:?}");
        assert!(reports[0].reason.contains("AccessDenied"), "{reports:?}");
    }
    letters.refuse(None);
    let reports = run(&batch, &[message("m1", "pay_1")]).await;
    assert_eq!(dispositions(&reports), [Disposition::DeadLetter]);
    assert_eq!(letters.only().outcome, DeadLetterOutcome::Failed);
    assert_eq!(work.runs().len(), 1);
}

#[tokio::test]
async fn a_letter_that_is_refused_at_once_keeps_no_other_from_being_sent() {
    let work = ScriptedWork::always(Action::FailPermanently);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&sent);
    let queue = DeadLetterQueue::with_replacement(URL, move |message| match message.body {
        body if body == "one" => Err("AccessDenied".to_owned()),
        body => {
            bodies.lock().unwrap().push(body);
            Ok(())
        }
    });
    let settings = with!(settings(), dead_letter_queue = Some(queue), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages = ["one", "two", "three"].map(|body| with!(message(body, ""), body = Some(body.into())));
    let reports = run(&batch, &messages).await;
    assert!(reports[0].dead_letter_not_sent && reports[0].reason.contains("AccessDenied"), "{reports:?}");
    assert_eq!(dispositions(&reports)[1..], [Disposition::DeadLetter; 2]);
    assert_eq!(*sent.lock().unwrap(), ["two", "three"]);
}

#[tokio::test]
async fn a_queue_of_the_same_name_in_another_region_is_not_the_queue_of_the_message() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments";
    for (region, sent) in [("eu-central-1", 0), ("us-east-1", 1)] {
        let queue = letters.queue(&format!("https://sqs.{region}.amazonaws.com/123456789012/payments"));
        let batch = batch_with(Policy::default(), MemoryStore::default(), &work, queue);
        let reports = run(&batch, &[with!(message("m1", "pay_1"), queue_arn = Some(arn.into()))]).await;
        assert_eq!((letters.sent().len(), reports[0].dead_letter_not_sent), (sent, sent == 0), "{reports:?}");
    }
}

#[tokio::test]
async fn a_redelivery_of_a_dead_letter_is_deleted_without_a_second_letter() {
    let other_payload = with!(message("m3", "done"), body = Some(r#"{"key":"done","amount":2}"#.into()));
    let (letters, work) = (
        Letters::default(),
        ScriptedWork::new(|run| match run.key.as_str() {
            "done" => Action::Return(b""),
            _ => Action::FailPermanently,
        }),
    );
    let batch = batch(MemoryStore::default(), &work, &letters);
    run(&batch, &[message("m0", "done")]).await;
    let hopeless = [message("m1", "pay_1"), with!(message("m2", ""), body = Some("no key".into())), other_payload];
    for _ in 0..3 {
        assert_eq!(dispositions(&run(&batch, &hopeless).await), [Disposition::DeadLetter; 3]);
    }
    assert_eq!(letters.sent().len(), 3);
}

#[tokio::test]
async fn a_redriven_dead_letter_that_fails_again_is_another_dead_letter() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch(MemoryStore::default(), &work, &letters);
    for id in ["m1", "redriven"] {
        assert_eq!(dispositions(&run(&batch, &[message(id, "pay_1")]).await), [Disposition::DeadLetter]);
    }
    assert_eq!((letters.sent().len(), work.runs().len()), (2, 2));
}

#[tokio::test]
async fn without_the_records_of_its_letters_a_redelivery_is_sent_twice() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    for _ in 0..2 {
        run(&batch(MemoryStore::default(), &work, &letters), &[message("m1", "pay_1")]).await;
    }
    assert_eq!(letters.sent().len(), 2);
}

#[tokio::test]
async fn a_dead_letter_has_its_key_even_if_the_record_has_a_hash_of_it() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let long = "k".repeat(300);
    run(&batch(MemoryStore::default(), &work, &letters), &[message("m1", &long)]).await;
    assert_eq!(letters.only().key, Some(long));
}

#[tokio::test]
async fn a_fifo_group_continues_after_its_dead_letter() {
    let letters = Letters::default();
    let work = ScriptedWork::new(|run| if run.key == "bad" { Action::FailPermanently } else { Action::Return(b"") });
    let queue = letters.queue(&format!("{URL}.fifo"));
    let batch = batch_with(Policy::default(), MemoryStore::default(), &work, queue);
    // Its producer's deduplicationId may be that of another message in the dead-letter queue.
    let bad = with!(in_group("g", "m2", "bad"), deduplication_id = Some("of its producer".into()));
    let group = [in_group("g", "m1", "first"), bad, in_group("g", "m3", "last")];
    let reports = run(&batch, &group).await;
    assert_eq!(dispositions(&reports), [Disposition::Done, Disposition::DeadLetter, Disposition::Done]);
    assert_eq!(work.message_ids(), ["m1", "m2", "m3"]);
    let [sent] = letters.sent().try_into().unwrap();
    assert_eq!((sent.group_id.as_deref(), sent.deduplication_id.as_deref()), (Some("g"), Some("m2")));
}

#[tokio::test]
async fn a_fifo_group_waits_for_a_message_whose_dead_letter_was_refused() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    letters.refuse(Some("AccessDenied"));
    let queue = letters.queue(&format!("{URL}.fifo"));
    let batch = batch_with(Policy::default(), MemoryStore::default(), &work, queue);
    let reports = run(&batch, &[in_group("g", "m1", "bad"), in_group("g", "m2", "next")]).await;
    assert_eq!(delay(&reports[0]), delay(&reports[1]));
    assert_eq!(work.message_ids(), ["m1"]);
}

#[tokio::test]
async fn a_message_of_a_standard_queue_is_its_own_group_in_a_fifo_dead_letter_queue() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let queue = letters.queue(&format!("{URL}.fifo"));
    run(&batch_with(Policy::default(), MemoryStore::default(), &work, queue), &[message("m1", "pay_1")]).await;
    let [sent] = letters.sent().try_into().unwrap();
    assert_eq!((sent.group_id.as_deref(), sent.deduplication_id.as_deref()), (Some("m1"), Some("m1")));
}

#[tokio::test]
async fn only_the_in_batch_duplicate_that_cannot_succeed_either_is_a_dead_letter() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch(MemoryStore::default(), &work, &letters);
    let reports = run(&batch, &[message("m1", "pay_1"), message("m2", "pay_1")]).await;
    assert_eq!(reports[0].disposition, Disposition::DeadLetter);
    assert!(delay(&reports[1]) > Duration::from_secs(5), "another messageId may try: {reports:?}");

    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = self::batch(MemoryStore::default(), &work, &letters);
    run(&batch, &[message("m0", "pay_1")]).await;
    let other = |id| with!(message(id, "pay_1"), body = Some(r#"{"key":"pay_1","amount":2}"#.into()));
    let reports = run(&batch, &[other("m1"), other("m2")]).await;
    assert_eq!(dispositions(&reports), [Disposition::DeadLetter; 2]);
    assert_eq!(letters.sent().len(), 2);
}

#[tokio::test]
async fn a_message_with_ten_attributes_is_sent_without_the_letter() {
    for (number, has_letter) in [(9, true), (10, false)] {
        let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
        let message = with!(message("m1", "pay_1"), attributes = attributes(number));
        let reports = run(&batch(MemoryStore::default(), &work, &letters), &[message]).await;
        assert_eq!(dispositions(&reports), [Disposition::DeadLetter]);
        let [sent] = letters.sent().try_into().unwrap();
        assert_eq!((sent.attributes.len(), sent.attributes.contains_key(DeadLetter::ATTRIBUTE)), (10, has_letter));
    }
}

#[tokio::test]
async fn the_letter_of_an_earlier_redrive_is_replaced() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let mut attributes = attributes(9);
    attributes.insert(DeadLetter::ATTRIBUTE.to_owned(), "old".into());
    let message = with!(message("m1", "pay_1"), attributes = attributes);
    run(&batch(MemoryStore::default(), &work, &letters), &[message]).await;
    assert_eq!(letters.only().message_id, "m1");
}

/// Bytes that SQS counts.
fn size(message: &DeadLetterMessage) -> usize {
    let text = |attribute: &MessageAttribute| attribute.data_type.len() + attribute.text().unwrap().len();
    message.body.len() + message.attributes.iter().map(|(name, value)| name.len() + text(value)).sum::<usize>()
}

#[tokio::test]
async fn a_large_message_is_sent_with_a_shortened_reason_or_without_the_letter() {
    const MAX: usize = 1_048_576;
    /// The reason of a message that leaves this many bytes free, and the size of its letter.
    async fn with(free: usize) -> Option<(String, usize)> {
        let start = r#"{"key":"pay_1","text":""#;
        let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
        let body = format!("{start}{}\"}}", "x".repeat(MAX - free - start.len() - 2));
        let message = with!(message("m1", "pay_1"), body = Some(body.clone()));
        let reports = run(&batch(MemoryStore::default(), &work, &letters), &[message]).await;
        assert_eq!(dispositions(&reports), [Disposition::DeadLetter]);
        let [sent] = letters.sent().try_into().unwrap();
        assert!(size(&sent) <= MAX && sent.body == body, "{free}");
        sent.attributes.contains_key(DeadLetter::ATTRIBUTE).then(|| (letter(&sent).reason, size(&sent) - body.len()))
    }
    let (whole, bytes) = with(5000).await.unwrap();
    // The fence and the time may have other lengths.
    assert_eq!(with(bytes + 10).await.unwrap().0, whole);
    let (shortened, _) = with(bytes - 10).await.unwrap();
    assert!(whole.starts_with(&shortened) && (10..whole.len()).contains(&shortened.len()), "{shortened}");
    assert_eq!((with(100).await, with(0).await), (None, None));
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_whole_is_left_to_the_redrive_policy() {
    let unreadable = MessageAttribute { data_type: "String".into(), value: AttributeValue::Unreadable };
    for (message, url) in [
        (with!(message("m1", "pay_1"), body = None), URL),
        (with!(message("m1", ""), body = Some(String::new())), URL),
        (with!(message("m1", "pay_1"), attributes = [("Lost".to_owned(), unreadable)].into()), URL),
        (message("m1", "pay_1"), "https://sqs.eu-central-1.amazonaws.com/123456789012/payments"),
    ] {
        let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
        let batch = batch_with(Policy::default(), MemoryStore::default(), &work, letters.queue(url));
        let reports = run(&batch, &[message]).await;
        assert!(has_first_backoff(reports[0].disposition) && reports[0].dead_letter_not_sent, "{reports:?}");
        assert!(letters.sent().is_empty());
    }
}

#[tokio::test]
async fn a_producers_key_that_looks_like_the_key_of_a_letter_has_another_record() {
    for fingerprint in [FingerprintSource::Body, FingerprintSource::None] {
        let work =
            ScriptedWork::new(|run| if run.key == "bad" { Action::FailPermanently } else { Action::Return(b"") });
        let letters = Letters::default();
        let settings =
            with!(settings(), dead_letter_queue = Some(letters.queue(URL)), fingerprint = fingerprint.clone());
        let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
        let reports = run(&batch, &[message("m0", "dead-letter:m1")]).await;
        assert_eq!(dispositions(&reports), [Disposition::Done]);
        let reports = run(&batch, &[message("m1", "bad")]).await;
        assert_eq!((dispositions(&reports), letters.sent().len()), (vec![Disposition::DeadLetter], 1));

        let reports = run(&batch, &[message("m2", "bad")]).await;
        assert_eq!((dispositions(&reports), letters.sent().len()), (vec![Disposition::DeadLetter], 2));
        let reports = run(&batch, &[message("m3", "dead-letter:m2")]).await;
        assert_eq!(dispositions(&reports), [Disposition::Done]);
        assert_eq!(work.runs().iter().filter(|run| run.key.starts_with("dead-letter:")).count(), 2);
    }
}

#[tokio::test]
async fn a_message_with_the_id_of_one_of_another_queue_is_left_to_its_redrive_policy() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = batch(MemoryStore::default(), &work, &letters);
    let no_key = |queue: &str| with!(message("m1", ""), body = Some("no key".into()), queue_arn = Some(queue.into()));
    for queue in ["arn:aws:sqs:eu-central-1:123456789012:a", "arn:aws:sqs:eu-central-1:123456789012:b"] {
        run(&batch, &[no_key(queue)]).await;
    }
    // The second one has the record of the first, and is left to its redrive policy.
    assert_eq!(letters.sent().len(), 1);
    let reports = run(&batch, &[no_key("arn:aws:sqs:eu-central-1:123456789012:b")]).await;
    assert!(reports[0].dead_letter_not_sent, "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_parks_recoveries_does_not_park_letters() {
    let store = FaultyStore::new(MemoryStore::default());
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let parks = with!(Policy::default(), recovery = Recovery::Park);
    let batch = batch_with(parks, &store, &work, letters.queue(URL));
    let no_key = [with!(message("m1", ""), body = Some("no key".into()))];
    // A crash after the acquire.
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_hours(1)));
    assert!(timeout(Duration::from_secs(1), batch.run(&no_key, Deadline::within(TIME))).await.is_err());
    tokio::time::advance(2 * TIME).await;
    assert_eq!(dispositions(&run(&batch, &no_key).await), [Disposition::DeadLetter]);
    assert_eq!(letters.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_a_policy_do_not_limit_those_to_send_a_letter() {
    let store = FaultyStore::new(MemoryStore::default());
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch_with(with!(Policy::default(), max_attempts = 1), &store, &work, letters.queue(URL));
    let no_key = [with!(message("m1", ""), body = Some("no key".into()))];
    // Two crashes after the acquire.
    for _ in 0..2 {
        store.next(StoreCall::Acquire, Fault::Slow(Duration::from_hours(1)));
        assert!(timeout(Duration::from_secs(1), batch.run(&no_key, Deadline::within(TIME))).await.is_err());
        tokio::time::advance(2 * TIME).await;
    }
    assert_eq!(dispositions(&run(&batch, &no_key).await), [Disposition::DeadLetter]);
    assert_eq!(letters.sent().len(), 1);
}

#[tokio::test]
async fn a_letter_is_sent_after_any_number_of_attempts_that_may_have_sent_it() {
    let (store, letters) = (MemoryStore::default(), Letters::default());
    let work = ScriptedWork::always(Action::FailPermanently);
    let no_key = [with!(message("m1", ""), body = Some("no key".into()))];
    let panics = DeadLetterQueue::with_replacement(URL, |_| panic!("planned"));
    let broken = batch_with(Policy::default(), &store, &work, panics);
    for _ in 0..300 {
        let reports = run(&broken, &no_key).await;
        assert!(matches!(reports[0].disposition, Disposition::Redeliver { .. }), "{reports:?}");
    }
    assert_eq!(dispositions(&run(&batch(&store, &work, &letters), &no_key).await), [Disposition::DeadLetter]);
    assert_eq!(letters.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_letter_is_kept_for_the_retention_of_the_policy() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Return(b"")));
    let policy = with!(Policy::default(), retention = Duration::from_hours(1));
    let batch = batch_with(policy, MemoryStore::default(), &work, letters.queue(URL));
    let no_key = [with!(message("m1", ""), body = Some("no key".into()))];
    for (minutes, sent) in [(0, 1), (59, 1), (2, 2)] {
        tokio::time::advance(Duration::from_mins(minutes)).await;
        assert_eq!(dispositions(&run(&batch, &no_key).await), [Disposition::DeadLetter]);
        assert_eq!(letters.sent().len(), sent, "after {minutes} more minutes");
    }
}

/// A store that records what acquires ask for.
#[derive(Default)]
struct Requests {
    store: MemoryStore,
    acquires: Mutex<Vec<AcquireRequest>>,
}

impl Store for &Requests {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.acquires.lock().unwrap().push(request.clone());
        self.store.acquire(request).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.store.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.store.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.store.release(request, claim).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_letter_is_that_of_the_policy() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let grace = with!(Policy::default(), lease_grace = Duration::from_secs(9));
    let shortened = with!(Policy::default(), longest_lease = Duration::from_secs(20));
    for policy in [grace, shortened] {
        let store = Requests::default();
        let batch = batch_with(policy, &store, &work, letters.queue(URL));
        assert_eq!(dispositions(&run(&batch, &[message("m1", "pay_1")]).await), [Disposition::DeadLetter]);
        let [of_work, of_letter] = store.acquires.into_inner().unwrap().try_into().unwrap();
        assert_eq!((of_letter.lease, of_letter.longest_lease), (of_work.lease, of_work.longest_lease));
    }
}

#[tokio::test]
async fn a_recovery_that_fails_permanently_is_not_parked() {
    let runs = Mutex::new([Action::FailUncertain, Action::FailPermanently].into_iter());
    let (letters, work) = (Letters::default(), ScriptedWork::new(move |_| runs.lock().unwrap().next().unwrap()));
    let batch = batch(MemoryStore::default(), &work, &letters);
    for _ in 0..2 {
        run(&batch, &[message("m1", "pay_1")]).await;
    }
    assert_eq!(letters.only().outcome, DeadLetterOutcome::FailedPermanently);
}

#[tokio::test(start_paused = true)]
async fn a_letter_whose_record_cannot_be_acquired_ends_with_the_time_for_settling() {
    let store = FaultyStore::new(MemoryStore::default());
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = batch(&store, &work, &letters);
    let no_key = with!(message("m1", ""), body = Some("no key".into()));
    store.always(StoreCall::Acquire, Some(Fault::Unreachable));
    let deadline = Deadline::within(TIME);
    batch.run(&[no_key], deadline).await.unwrap_err();
    assert!((deadline.work..=deadline.settle).contains(&Instant::now()), "{deadline:?}");
}

#[test]
fn the_outcome_of_a_letter_is_read_from_its_text() {
    for outcome in DeadLetterOutcome::ALL {
        assert_eq!(outcome.to_string().parse(), Ok(outcome));
        assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
    }
    "failed".parse::<DeadLetterOutcome>().unwrap_err();
}

#[tokio::test]
async fn a_letter_that_was_sent_counts_as_work_so_its_batch_does_not_fail() {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let of_send = Arc::clone(&store);
    let queue = DeadLetterQueue::with_replacement(URL, move |_| {
        of_send.always(StoreCall::Acquire, Some(Fault::Refused));
        Ok(())
    });
    let work = ScriptedWork::always(Action::Return(b""));
    let batch = batch_with(Policy::default(), Arc::clone(&store), &work, queue);
    let messages = [with!(in_group("g", "m1", ""), body = Some("no key".into())), in_group("g", "m2", "pay_2")];
    let reports = run(&batch, &messages).await;
    assert_eq!(reports[0].disposition, Disposition::DeadLetter);
    assert!(has_first_backoff(reports[1].disposition), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_does_not_wait_until_the_record_of_a_sent_letter_can_be_settled() {
    let store = FaultyStore::new(MemoryStore::default());
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Return(b"")));
    let batch = batch(&store, &work, &letters);
    let no_key = with!(message("m1", ""), body = Some("no key".into()));
    store.always(StoreCall::Settle, Some(Fault::Refused));
    let started = Instant::now();
    assert_eq!(dispositions(&run(&batch, &[no_key]).await), [Disposition::DeadLetter]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_letter_another_delivery_is_sending_is_not_deleted() {
    let store = FaultyStore::new(MemoryStore::default());
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let batch = batch(&store, &work, &letters);
    let no_key = [with!(message("m1", ""), body = Some("no key".into()))];
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_hours(1)));
    assert!(timeout(Duration::from_secs(1), batch.run(&no_key, Deadline::within(TIME))).await.is_err());
    let reports = run(&batch, &no_key).await;
    assert!(has_first_backoff(reports[0].disposition) && !reports[0].dead_letter_not_sent, "{reports:?}");
    assert!(letters.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_work_that_was_cancelled_at_the_deadline_is_sent_in_the_same_delivery() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::Hang));
    let once = with!(Policy::default(), max_attempts = 1);
    let batch = batch_with(once, MemoryStore::default(), &work, letters.queue(URL));
    assert_eq!(dispositions(&run(&batch, &[message("m1", "pay_1")]).await), [Disposition::DeadLetter]);
    let DeadLetter { outcome, reason, attempts, .. } = letters.only();
    assert_eq!((outcome, attempts), (DeadLetterOutcome::AttemptsUsedUp, Some(1)));
    assert_eq!(reason, "attempts used up, and may have taken effect: the work was cancelled at the deadline");
}

#[tokio::test]
async fn while_the_store_is_unavailable_no_letter_is_sent() {
    let (letters, work) = (Letters::default(), ScriptedWork::always(Action::FailPermanently));
    let store = FaultyStore::new(MemoryStore::default());
    let batch = batch(&store, &work, &letters);
    let no_key = with!(message("m1", ""), body = Some("no key".into()));
    store.always(StoreCall::Acquire, Some(Fault::Refused));
    batch.run(std::slice::from_ref(&no_key), Deadline::within(TIME)).await.unwrap_err();
    assert!(letters.sent().is_empty());
    store.always(StoreCall::Acquire, None);
    assert_eq!(dispositions(&run(&batch, &[no_key]).await), [Disposition::DeadLetter]);
}

#[tokio::test]
async fn a_letter_whose_store_became_unavailable_is_not_reported_as_refused() {
    let letters = Letters::default();
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let fails = Arc::clone(&store);
    // The letter is sent after the work.
    let work = ScriptedWork::new(move |_| {
        fails.always(StoreCall::Acquire, Some(Fault::Refused));
        Action::FailPermanently
    });
    let reports = run(&batch(store, &work, &letters), &[message("m1", "pay_1")]).await;
    assert!(reports[0].reason.contains("the idempotency store is unavailable"), "{reports:?}");
    assert!(!reports[0].dead_letter_not_sent && letters.sent().is_empty(), "{reports:?}");
}

/// A crash: the call and everything after it does not happen, or nothing happens after the call.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Before,
    After,
}

/// Sets the fault of the next call so that the batch hangs there. The test then drops it.
fn crash(store: &FaultyStore<MemoryStore>, call: StoreCall, crash: Crash) {
    store.next(
        call,
        match crash {
            Crash::Before => Fault::Unreachable,
            Crash::After => Fault::Slow(Duration::from_hours(1)),
        },
    );
}

/// Number of letters, and of runs of the work, after a crash and as many redeliveries as it takes.
async fn crashed(at_work: Option<(StoreCall, Crash)>, at_send: Option<Crash>) -> (usize, usize) {
    let store = Arc::new(FaultyStore::new(MemoryStore::default()));
    let sent = Arc::new(Mutex::new(0));
    let runs = Mutex::new(0);
    let (of_work, of_send, counted) = (Arc::clone(&store), Arc::clone(&store), Arc::clone(&sent));
    let work = ScriptedWork::new(move |_| {
        let mut runs = runs.lock().unwrap();
        *runs += 1;
        if let (Some((call, kind)), 1) = (at_work, *runs) {
            crash(&of_work, call, kind);
        }
        Action::FailPermanently
    });
    let queue = DeadLetterQueue::with_replacement(URL, move |_| {
        let mut sent = counted.lock().unwrap();
        *sent += 1;
        if let (Some(kind), 1) = (at_send, *sent) {
            crash(&of_send, StoreCall::Settle, kind);
        }
        Ok(())
    });
    let batch = batch_with(Policy::default(), Arc::clone(&store), &work, queue);
    let message = [message("m1", "pay_1")];
    let crashes = timeout(Duration::from_secs(1), batch.run(&message, Deadline::within(TIME))).await.is_err();
    assert!(crashes);
    for _ in 0..3 {
        tokio::time::advance(Duration::from_mins(2)).await;
        if dispositions(&run(&batch, &message).await) == [Disposition::DeadLetter] {
            let sent = *sent.lock().unwrap();
            return (sent, work.runs().len());
        }
    }
    panic!("the message is not in the dead-letter queue");
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_failure_is_recorded_runs_the_work_again_as_a_recovery_and_sends_one_letter() {
    assert_eq!(crashed(Some((StoreCall::Settle, Crash::Before)), None).await, (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_failure_is_recorded_sends_one_letter() {
    assert_eq!(crashed(Some((StoreCall::Settle, Crash::After)), None).await, (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_letter_is_sent_sends_one_letter() {
    assert_eq!(crashed(Some((StoreCall::Acquire, Crash::Before)), None).await, (1, 1));
    assert_eq!(crashed(Some((StoreCall::Acquire, Crash::After)), None).await, (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_letter_is_sent_and_before_that_is_recorded_sends_a_second_letter() {
    assert_eq!(crashed(None, Some(Crash::Before)).await, (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_sent_letter_is_recorded_sends_one_letter() {
    assert_eq!(crashed(None, Some(Crash::After)).await, (1, 1));
}
