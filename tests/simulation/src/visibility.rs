//! Visibility timeouts of messages that were received long ago: which changes SQS accepts, how much less is asked for,
//! what is logged, and for how long a message may wait. SQS has no faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use harness::lines;
use history::{Rng, backoff_s};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, Message, MessageReport, Visibility};
use idempotent_sqs::{Claim, Deadline, Idempotency, MemoryStore, Policy, WorkError, work_fn};
use idempotent_sqs_testing::{DeadLetter, Mapping, MappingSettings, MessageState, Queue, QueueSettings};
use tokio::time::{Instant, sleep};

use crate::lock;
use crate::sqs::{SdkCall, Sqs};

const HOUR_S: u64 = 3600;

/// Number of messages of a seed whose work asks for a delay.
const DELAYS: usize = 50;

/// Longest visibility timeout, counted from the receive:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
const LONGEST_S: u64 = 12 * HOUR_S;

/// Longest delay that is asked for, as an invocation may begin late: docs/failures.md.
const MAX_DELAY_S: u64 = 42_000;

/// Failures that ask for a delay. The first one waits as long as it says, the others at least for the backoff.
const ERRORS: [fn(Duration) -> WorkError; 3] = [
    |after| WorkError::retryable_after("refused", after),
    |after| WorkError::unavailable_after("overloaded", after),
    |after| WorkError::busy_after("in use", after),
];

/// The process of the client.
const CLIENT: &str = "visibility";

const WARNING: &str = "visibility timeouts were not changed; the queue's default applies";

/// A message, and what SQS must be asked for.
struct Change {
    message: Message,
    after: Duration,
    /// The visibility timeouts, s, in their order.
    asked: Vec<u64>,
    /// Whether none of them is accepted.
    is_refused: bool,
}

/// What is wrong with the changes of this seed, to SQS and to a replacement of it.
pub async fn change_visibility(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x7151);
    let mut wrong = Vec::new();
    for replaces_sqs in [false, true] {
        let age_s = rng.draw(0..12) * HOUR_S + HOUR_S / 2;
        let queue = queue(seed);
        let changes = changes(&queue, age_s, replaces_sqs, rng);
        sleep(Duration::from_secs(age_s)).await;
        lines::take();
        let asked =
            if replaces_sqs { ask_replacement(&queue, &changes).await } else { ask(&queue, &changes, rng).await };
        for change in &changes {
            let handle = change.message.receipt_handle.clone().unwrap_or_default();
            let found = asked.get(&handle).cloned().unwrap_or_default();
            if found != change.asked {
                wrong.push(format!("{:?} after {age_s} s: asked for {found:?}, not {:?}", change.after, change.asked));
            }
        }
        let warnings: Vec<_> = lines::take().into_iter().filter(|line| line.get("message") == Some(WARNING)).collect();
        let failed: usize = warnings.iter().filter_map(|line| line.get("failed")?.parse::<usize>().ok()).sum();
        let refused = changes.iter().filter(|change| change.is_refused).count();
        if failed != refused || warnings.iter().any(|line| line.get("advice").is_some() || line.get("reason").is_none())
        {
            wrong.push(format!("{refused} changes were refused: {warnings:?}"));
        }
    }
    if seed.is_multiple_of(4) {
        wrong.extend(wrong_end(seed, rng).await);
    }
    for _ in 0..DELAYS {
        wrong.extend(wrong_delay(rng).await);
    }
    let rng = &mut Rng::new(seed ^ 0xd0b1);
    for _ in 0..DELAYS {
        wrong.extend(wrong_duplicate(rng).await);
    }
    wrong
}

/// What is wrong with the delay of a message that was first received hours ago, and whose work asks for one: it is
/// limited if it would end later than two days after the first receive (docs/failures.md).
async fn wrong_delay(rng: &mut Rng) -> Option<String> {
    let (age_s, receives) = (rng.draw(0..300) * HOUR_S + rng.draw(1..60) * 60 + 17, rng.draw(1..1000));
    let asked_s = *rng.pick(&[0, 30, 899, 900, 901, 3600, 20_000, 50_000]);
    let is_known = rng.happens(900);
    let kind = rng.draw(0..3);
    let mut message = received("m1", age_s, receives);
    message.first_receive_ms = message.first_receive_ms.filter(|_| is_known);
    let reports =
        refuse(std::slice::from_ref(&message), ERRORS[usize::try_from(kind).unwrap_or_default()], asked_s).await;
    let (least, most) = backoff_s(message.receive_count.unwrap_or_default()).into_inner();
    let (mut from_s, mut to_s) =
        if kind == 0 { (asked_s.max(1), asked_s.max(1)) } else { (asked_s.max(least), asked_s.max(most)) };
    if is_known && age_s + asked_s.min(MAX_DELAY_S) > 48 * HOUR_S {
        (from_s, to_s) = (from_s.min(450), to_s.min(900));
    }
    let Some(after) = delay(&reports[0]) else {
        return Some(format!("a message that failed has no delay: {reports:?}"));
    };
    let expected = Duration::from_secs(from_s.min(MAX_DELAY_S))..=Duration::from_secs(to_s.min(MAX_DELAY_S));
    let is_right = expected.contains(&after);
    (!is_right).then(|| format!("{after:?}, {age_s} s after receive 1 of {receives}, not {expected:?}"))
}

/// A message that was first received so long ago.
fn received(id: &str, age_s: u64, receives: u64) -> Message {
    let first_receive = SystemTime::now() - Duration::from_secs(age_s);
    let since_1970 = first_receive.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut message = Message::new(id, "a payment");
    message.receive_count = u32::try_from(receives).ok();
    message.first_receive_ms = u64::try_from(since_1970.as_millis()).ok();
    message
}

/// Runs a batch of these messages, whose work fails so and asks for this delay.
async fn refuse(messages: &[Message], error: fn(Duration) -> WorkError, asked_s: u64) -> Vec<MessageReport> {
    let work =
        work_fn(move |_: &Claim, _: &Message| async move { Err::<Vec<u8>, _>(error(Duration::from_secs(asked_s))) });
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let batch = Batch::new(idempotency, work, BatchSettings::default());
    batch.run(messages, Deadline::within(Duration::from_secs(10))).await.expect("the store is in memory")
}

fn delay(report: &MessageReport) -> Option<Duration> {
    match report.disposition {
        Disposition::Redeliver { after } => after,
        Disposition::Done | Disposition::DeadLetter => None,
    }
}

/// What is wrong with the delay of an in-batch duplicate, which has another age than the message that ran: 5 to 15
/// seconds later, or earlier if that has the longest delay, and limited as its own (docs/faults.md, docs/failures.md).
async fn wrong_duplicate(rng: &mut Rng) -> Option<String> {
    let ages_s = [(); 2].map(|()| rng.draw(0..60) * HOUR_S + rng.draw(1..60) * 60 + 17);
    let asked_s = *rng.pick(&[0, 30, 899, 900, 901, 3600, 20_000, 41_990, 50_000]);
    let messages = ["m1", "m2"].into_iter().zip(ages_s).map(|(id, age_s)| {
        let mut message = received(id, age_s, rng.draw(1..1000));
        message.attributes.insert("Idempotency-Key".to_owned(), "pay_1".into());
        message
    });
    let messages: Vec<_> = messages.collect();
    let reports = refuse(&messages, *rng.pick(&ERRORS), asked_s).await;
    let delays: Vec<_> = reports.iter().filter_map(delay).collect();
    let [first, second] = delays[..] else { return Some(format!("messages that failed have no delays: {reports:?}")) };
    let (separation_s, longest) = (5.0..=15.0, Duration::from_secs(MAX_DELAY_S));
    let is_right = if first.as_secs() > 900 && ages_s[1] + first.as_secs() > 48 * HOUR_S {
        (455..=915).contains(&second.as_secs())
    } else {
        let is_later = second > first && second <= longest;
        let is_earlier = second < first && first.as_secs_f64() + separation_s.end() > longest.as_secs_f64();
        (is_later || is_earlier) && separation_s.contains(&first.abs_diff(second).as_secs_f64())
    };
    (!is_right).then(|| format!("delays {first:?} and {second:?}, {ages_s:?} s after the first receives"))
}

/// What is wrong with the end of a message whose receiver always asks for a long delay: SQS must move it to the
/// dead-letter queue, and not delete it at the end of its retention.
async fn wrong_end(seed: u64, rng: &mut Rng) -> Option<String> {
    const RETENTION: Duration = Duration::from_hours(14 * 24);
    let settings =
        |name: &str| QueueSettings { name: name.to_owned(), retention: RETENTION, ..QueueSettings::default() };
    let letters = Queue::new(settings("refused-letters"), seed);
    let dead_letter = Some(DeadLetter { queue: letters, max_receive_count: 1000 });
    let queue = Queue::new(QueueSettings { dead_letter, ..settings("refused") }, seed);
    queue.send("a payment").expect("SQS accepts this message");
    let (after, takes) = (Duration::from_secs(rng.draw(900..50_000)), rng.ms(0..25_000));
    let work = work_fn(move |_: &Claim, _: &Message| async move {
        sleep(takes).await;
        Err::<Vec<u8>, _>(WorkError::busy_after("in use", after))
    });
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let handler = Handler::new(Batch::new(idempotency, work, BatchSettings::default()), Some(queue.visibility()));
    let settings = MappingSettings { function_timeout: Duration::from_secs(30), ..MappingSettings::default() };
    Mapping::new(&queue, settings).drain(&handler).await;
    let state = queue.history().swap_remove(0).state;
    let is_right = state == MessageState::Queue("refused-letters".to_owned());
    (!is_right).then(|| format!("a message that is refused for {after:?}, after {takes:?}: {state:?}"))
}

fn queue(seed: u64) -> Queue {
    let settings = QueueSettings {
        name: "visibility".to_owned(),
        visibility_timeout: Duration::from_secs(LONGEST_S),
        ..QueueSettings::default()
    };
    Queue::new(settings, seed)
}

/// Changes of messages that were received now, and will be this old.
fn changes(queue: &Queue, age_s: u64, replaces_sqs: bool, rng: &mut Rng) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..rng.draw(1..25) {
        queue.send("a payment").expect("SQS accepts this message");
        let received = queue.receive(1).remove(0);
        let mut message = Message::new(received.message_id, "a payment");
        (message.receipt_handle, message.queue_arn) = (Some(received.receipt_handle), Some(queue.arn()));
        let after = match rng.draw(0..4) {
            0 => rng.ms(1..90_000),
            1 => Duration::from_secs(MAX_DELAY_S),
            _ => Duration::from_secs(rng.draw(1..12) * HOUR_S + rng.draw(0..2)),
        };
        let (mut asked, mut is_refused) = (vec![after.as_secs() + u64::from(after.subsec_nanos() > 0)], false);
        match rng.draw(0..12) {
            // An expired one is refused whatever is asked for.
            0 => {
                message.receipt_handle = Some(format!("unknown-{}", changes.len()));
                is_refused = true;
            }
            // Without its queue, SQS is not asked.
            1 if !replaces_sqs => {
                (message.queue_arn, asked) = (None, Vec::new());
                is_refused = true;
            }
            _ => {
                while asked.last().is_some_and(|last| last + age_s > LONGEST_S) {
                    match asked.last().map(|last| last.saturating_sub(HOUR_S)) {
                        Some(less) if less > 0 => asked.push(less),
                        _ => {
                            is_refused = true;
                            break;
                        }
                    }
                }
            }
        }
        changes.push(Change { message, after, asked, is_refused });
    }
    changes
}

fn pairs(changes: &[Change]) -> Vec<(&Message, Duration)> {
    changes.iter().map(|change| (&change.message, change.after)).collect()
}

/// What the SDK asks SQS for, by receipt handle.
async fn ask(queue: &Queue, changes: &[Change], rng: &mut Rng) -> BTreeMap<String, Vec<u64>> {
    let sqs = Sqs::new(queue.clone(), queue.clone(), rng.fork(), false);
    sqs.end_faults();
    sqs.listen();
    let until = Instant::now() + Duration::from_secs(60);
    Visibility::new(sqs.config(CLIENT, CLIENT)).change(&pairs(changes), until).await;
    let mut asked: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for change in sqs.calls().iter().flat_map(SdkCall::changes) {
        asked.entry(change.receipt_handle).or_default().push(change.after.as_secs());
    }
    asked
}

/// The same of a replacement.
async fn ask_replacement(queue: &Queue, changes: &[Change]) -> BTreeMap<String, Vec<u64>> {
    let asked = Arc::new(Mutex::new(BTreeMap::<String, Vec<u64>>::new()));
    let (noted, queue) = (Arc::clone(&asked), queue.clone());
    let visibility = Visibility::with_replacement(move |message, after| {
        let handle = message.receipt_handle.clone().unwrap_or_default();
        lock(&noted).entry(handle.clone()).or_default().push(after.as_secs());
        queue.change_visibility(&handle, after).map_err(|error| format!("{}: {}", error.code, error.reason))
    });
    visibility.change(&pairs(changes), Instant::now() + Duration::from_secs(60)).await;
    lock(&asked).clone()
}
