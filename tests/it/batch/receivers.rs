//! Receivers that are unavailable: the rest of a batch is not sent, and later batches send one message at a time.

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{TIME, batch, has_first_backoff, in_group, many, message, one_by_one, outcomes, run, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Claim, Deadline, Idempotency, Policy, Recovery, Work, WorkError};
use idempotent_sqs::sqs::{Batch, Disposition, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{Fault, FaultyStore, StoreCall};

#[tokio::test]
async fn once_a_message_finds_its_receiver_unavailable_the_rest_of_the_batch_is_not_sent() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailUnavailable));
    let reports = run(&one_by_one(&store, &work), &many(5)).await;
    assert_eq!(work.message_ids(), ["m0"]);
    assert_eq!(outcomes(&reports)[1..], ["NOT_PROCESSED"; 4]);
    assert!(reports.iter().all(|report| has_first_backoff(report.disposition)), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_being_acquired_when_its_receiver_is_found_unavailable_is_not_sent_and_not_counted() {
    let (store, work) = (FaultyStore::new(MemoryStore::default()), ScriptedWork::always(Action::FailUnavailable));
    store.next(StoreCall::Acquire, Fault::Slow(Duration::from_secs(1)));
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings());
    let reports = run(&batch, &many(2)).await;
    assert_eq!(work.message_ids(), ["m1"]);
    assert!(reports.iter().all(|report| has_first_backoff(report.disposition)), "{reports:?}");
    let work = ScriptedWork::always(Action::Return(b""));
    run(&Batch::new(Idempotency::new(&store, Policy::default()), &work, settings()), &many(2)).await;
    assert!(work.runs().iter().all(|run| run.attempt == 1 && !run.recovery), "{:?}", work.runs());
    assert_eq!(work.runs().len(), 2);
}

#[tokio::test]
async fn neither_the_refused_message_nor_the_rest_of_its_batch_has_used_up_an_attempt() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailUnavailable));
    run(&one_by_one(&store, &work), &many(5)).await;
    let work = ScriptedWork::always(Action::Return(b""));
    run(&batch(&store, &work), &many(5)).await;
    assert!(work.runs().iter().all(|run| run.attempt == 1 && !run.recovery), "{:?}", work.runs());
    assert_eq!(work.runs().len(), 5);
}

#[tokio::test]
async fn a_receiver_known_to_be_unavailable_gets_one_message_of_a_batch() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::FailUnavailable));
    let batch = batch(&store, &work);
    run(&batch, &many(10)).await;
    let first = work.runs().len();
    for batches in 1..=3 {
        run(&batch, &many(10)).await;
        assert_eq!(work.runs().len(), first + batches);
    }
}

/// A work whose calls take a second and end in this way, after a first one that finds the receiver unavailable.
fn after_an_outage(ends: impl Fn(usize) -> Action + Send + Sync + 'static) -> ScriptedWork {
    let calls = AtomicUsize::new(0);
    ScriptedWork::new(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Action::FailUnavailable,
        call => ends(call),
    })
    .taking(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn once_an_unavailable_receiver_does_its_work_the_rest_of_the_batch_is_sent_concurrently() {
    let (store, work) = (MemoryStore::default(), after_an_outage(|_| Action::Return(b"")));
    let batch = batch(&store, &work);
    run(&batch, &many(1)).await;
    let reports = run(&batch, &many(10)).await;
    assert_eq!(work.runs().len(), 11, "{reports:?}");
    assert_eq!(work.max_concurrent(), 9, "the first one is sent alone");
}

#[tokio::test(start_paused = true)]
async fn an_error_other_than_unavailable_does_not_show_that_the_receiver_responds() {
    for fails in [Action::FailUncertain, Action::FailPermanently, Action::FailBusy, Action::FailRetryable] {
        let store = MemoryStore::default();
        let work = after_an_outage(move |call| if call < 4 { fails } else { Action::FailUnavailable });
        let batch = batch(&store, &work);
        run(&batch, &many(1)).await;
        run(&batch, &many(10)).await;
        assert_eq!((work.runs().len(), work.max_concurrent()), (5, 1), "{fails:?}");
    }
}

/// It was not called.
#[tokio::test(start_paused = true)]
async fn a_parked_message_does_not_show_that_the_receiver_responds() {
    let store = MemoryStore::default();
    run(&batch(&store, &ScriptedWork::always(Action::FailUncertain)), &many(1)).await;
    let work = after_an_outage(|_| Action::FailUnavailable);
    let policy = with!(Policy::default(), recovery = Recovery::Park);
    let batch = Batch::new(Idempotency::new(&store, policy), &work, settings());
    run(&batch, &many(2)[1..]).await;
    run(&batch, &many(10)).await;
    assert_eq!((work.runs().len(), work.max_concurrent()), (2, 1), "{:?}", work.runs());
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_their_turn_until_the_deadline_are_backed_off() {
    let store = MemoryStore::default();
    let work = after_an_outage(|_| Action::Hang);
    let batch = batch(&store, &work);
    run(&batch, &many(1)).await;
    let reports = run(&batch, &many(10)).await;
    assert_eq!(work.runs().len(), 2);
    assert!(reports[1..].iter().all(|report| has_first_backoff(report.disposition)), "{reports:?}");
}

#[tokio::test]
async fn a_busy_message_does_not_stop_the_others_and_uses_up_no_attempt() {
    let store = MemoryStore::default();
    let work = ScriptedWork::new(|run| if run.key == "pay_0" { Action::FailBusy } else { Action::Return(b"") });
    let batch = one_by_one(&store, &work);
    for _ in 0..3 {
        let reports = run(&batch, &many(5)).await;
        assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
        assert!(reports[1..].iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
    }
    assert!(work.runs().iter().all(|run| run.attempt == 1), "{:?}", work.runs());
}

/// A work with two receivers, `a` and `b`, the first letter of the messageId. `a` is unavailable.
struct TwoReceivers {
    calls: AtomicUsize,
}

impl Work<Message> for TwoReceivers {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if message.id.starts_with('a') { Err(WorkError::unavailable("no connection")) } else { Ok(Vec::new()) }
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        &message.id[..1]
    }
}

#[tokio::test]
async fn messages_for_another_receiver_are_sent() {
    let work = TwoReceivers { calls: AtomicUsize::new(0) };
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages = ["a1", "b1", "a2", "b2"].map(|id| message(id, id));
    for calls in [3, 4] {
        let reports = batch.run(&messages, Deadline::within(TIME)).await.unwrap();
        let done: Vec<_> = reports.iter().map(|report| report.disposition == Disposition::Done).collect();
        assert_eq!(done, [false, true, false, true]);
        // The first batch sends a1, b1 and b2; the second one sends a1. b1 and b2 are duplicates.
        assert_eq!(work.calls.load(Ordering::Relaxed), calls);
    }
}

/// A work whose receiver is the first letter of the messageId. Only `b` and `c` respond, after half a second.
struct HangingReceiver {
    unavailable: AtomicBool,
    sent: Mutex<Vec<String>>,
}

impl Work<Message> for HangingReceiver {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        if self.unavailable.load(Ordering::Relaxed) {
            return Err(WorkError::unavailable("no connection"));
        }
        self.sent.lock().unwrap().push(message.id.clone());
        if !message.id.starts_with(['b', 'c']) {
            return pending().await;
        }
        sleep(Duration::from_millis(500)).await;
        Ok(Vec::new())
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        let first = message.id.chars().next().map_or(0, char::len_utf8);
        &message.id[..first]
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_that_hang_delay_no_message_for_another_one() {
    let hanging = ["a", "ä", "å", "á", "à"];
    let work = HangingReceiver { unavailable: AtomicBool::new(true), sent: Mutex::default() };
    let settings = with!(settings(), concurrency = NonZeroUsize::new(4).unwrap());
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let first: Vec<_> = hanging.iter().chain(&["b"]).map(|id| message(id, id)).collect();
    // All of these are known to be unavailable, and c is not.
    batch.run(&first[..1], Deadline::within(TIME)).await.unwrap();
    batch.run(&first[5..], Deadline::within(TIME)).await.unwrap();
    batch.run(&first[1..4], Deadline::within(TIME)).await.unwrap();
    work.unavailable.store(false, Ordering::Relaxed);
    let of = |receiver: &'static str| (1..30).map(move |n| format!("{receiver}{n}"));
    let ids: Vec<_> = hanging[..4].iter().flat_map(|receiver| of(receiver)).chain(of("b")).chain(of("c")).collect();
    let messages: Vec<_> = ids.iter().map(|id| message(id, id)).collect();
    batch.run(&messages, Deadline::within(TIME)).await.unwrap();
    let sent = work.sent.lock().unwrap().clone();
    let count = |receiver: &str| sent.iter().filter(|id| id.starts_with(receiver)).count();
    assert_eq!((count("b"), count("c")), (29, 29), "{sent:?}");
    assert!(hanging[..4].iter().all(|receiver| count(receiver) <= 1), "{sent:?}");
}

/// There are slots for four of them. Which four come first in a batch is random.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_responds_again_is_called_soon_although_more_others_hang_than_the_concurrency() {
    let work = HangingReceiver { unavailable: AtomicBool::new(true), sent: Mutex::default() };
    let settings = with!(settings(), concurrency = NonZeroUsize::new(4).unwrap());
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    // `b` is neither among the first four nor among the last four, so neither order calls it.
    let receivers = ["1", "2", "3", "4", "b", "w", "x", "y", "z"];
    for receiver in receivers {
        batch.run(&[message(receiver, receiver)], Deadline::within(TIME)).await.unwrap();
    }
    work.unavailable.store(false, Ordering::Relaxed);
    let mut batches = 0;
    while !work.sent.lock().unwrap().iter().any(|id| id.starts_with('b')) {
        let ids = receivers.map(|receiver| format!("{receiver}{batches}"));
        batch.run(&ids.map(|id| message(&id, &id)), Deadline::within(TIME)).await.unwrap();
        batches += 1;
        // It would wait for 60 batches once in 10^15 runs.
        assert!(batches < 60);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_their_turn_in_a_group_delay_no_message_for_another_receiver() {
    let work = HangingReceiver { unavailable: AtomicBool::new(true), sent: Mutex::default() };
    let settings = with!(settings(), concurrency = NonZeroUsize::new(4).unwrap());
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    batch.run(&[message("a0", "a0")], Deadline::within(TIME)).await.unwrap();
    work.unavailable.store(false, Ordering::Relaxed);
    // Of five groups, the second message is for `a`, which hangs. One of them is sent, and four wait.
    let groups = (1..=5).flat_map(|group| ["b", "a"].map(|receiver| (group, format!("{receiver}{group}"))));
    let others = (6..=25).map(|group| (group, format!("c{group}")));
    let messages: Vec<_> = groups.chain(others).map(|(group, id)| in_group(&group.to_string(), &id, &id)).collect();
    batch.run(&messages, Deadline::within(TIME)).await.unwrap();
    let sent = work.sent.lock().unwrap().clone();
    let count = |receiver: &str| sent.iter().filter(|id| id.starts_with(receiver)).count();
    assert_eq!((count("a"), count("b"), count("c")), (1, 5, 20), "{sent:?}");
}

/// A work that panics when it is asked for the receiver of a message.
#[derive(Default)]
struct PanickingReceiver {
    ran: AtomicBool,
}

impl Work<Message> for PanickingReceiver {
    async fn run(&self, _claim: &Claim, _message: &Message) -> Result<Vec<u8>, WorkError> {
        self.ran.store(true, Ordering::Relaxed);
        Ok(Vec::new())
    }

    fn receiver<'a>(&'a self, _message: &'a Message) -> &'a str {
        panic!("planned")
    }
}

#[tokio::test]
async fn a_panic_in_the_name_of_a_receiver_fails_no_message() {
    let work = PanickingReceiver::default();
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings());
    let reports = batch.run(&many(1), Deadline::within(TIME)).await.unwrap();
    assert_eq!(reports[0].disposition, Disposition::Done);
    assert!(work.ran.load(Ordering::Relaxed));
}

/// The receiver of a message is the first letter of its messageId. `a` and `c` are unavailable for the messages `a0`
/// and `c0`. Afterwards `a` hangs, and `c` responds after a second. `b` responds.
#[derive(Default)]
struct Hanging {
    started: Mutex<Vec<String>>,
}

impl Work<Message> for Hanging {
    async fn run(&self, _claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.started.lock().unwrap().push(message.id.clone());
        match message.id.as_bytes() {
            b"a0" | b"c0" => Err(WorkError::unavailable("no connection")),
            [b'a', ..] => pending().await,
            [b'c', ..] => {
                sleep(Duration::from_secs(1)).await;
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        &message.id[..1]
    }
}

/// The messages of a batch that are sent, beside another invocation of the process that finds `a` unavailable after
/// 100 ms.
async fn sent_beside_an_outage(ids: &[&str]) -> Vec<String> {
    let work = Hanging::default();
    let settings = with!(settings(), concurrency = NonZeroUsize::new(2).unwrap());
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    let messages: Vec<_> = ids.iter().map(|id| message(id, id)).collect();
    let finds_it = async {
        sleep(Duration::from_millis(100)).await;
        batch.run(&[message("a0", "a0")], Deadline::within(TIME)).await.unwrap()
    };
    let (reports, _) = tokio::join!(batch.run(&messages, Deadline::within(TIME)), finds_it);
    assert_eq!(reports.unwrap().len(), ids.len());
    work.started.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_another_invocation_found_unavailable_gets_one_message_of_a_batch() {
    let sent = sent_beside_an_outage(&["c1", "c2", "a1", "a2", "a3", "a4", "a5", "b1"]).await;
    let to_a = sent.iter().filter(|id| id.starts_with('a') && *id != "a0").count();
    assert_eq!(to_a, 1, "{sent:?}");
    assert!(sent.contains(&"b1".to_owned()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_for_a_receiver_that_another_invocation_found_unavailable_hold_up_no_others() {
    let sent = sent_beside_an_outage(&["c1", "c2", "c3", "c4", "a1", "a2", "a3", "a4", "a5", "b1"]).await;
    assert!(sent.contains(&"b1".to_owned()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn groups_with_later_messages_for_an_unavailable_receiver_hold_up_no_other_group() {
    let work = Hanging::default();
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings);
    batch.run(&[message("a0", "a0")], Deadline::within(TIME)).await.unwrap();
    let groups = [("g1", "b1"), ("g1", "a1"), ("g2", "b2"), ("g2", "a2"), ("g3", "b3")];
    batch.run(&groups.map(|(group, id)| in_group(group, id, id)), Deadline::within(TIME)).await.unwrap();
    let sent = work.started.lock().unwrap();
    assert!(sent.contains(&"b3".to_owned()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_receiver_that_has_recovered_wait_for_one_that_another_group_sends_there() {
    let work = Hanging::default();
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, settings());
    batch.run(&[message("c0", "c0")], Deadline::within(TIME)).await.unwrap();
    let began = Instant::now();
    let groups = [("g1", "c9"), ("g2", "b2"), ("g2", "c8"), ("g3", "c3"), ("g4", "c4"), ("g5", "c5")];
    let reports = batch.run(&groups.map(|(group, id)| in_group(group, id, id)), Deadline::within(TIME)).await.unwrap();
    let redelivered: Vec<_> =
        groups.iter().zip(&reports).filter(|(_, report)| report.disposition != Disposition::Done).collect();
    assert!(redelivered.is_empty(), "{redelivered:#?}");
    // Once one is done, the others run at the same time.
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
}
