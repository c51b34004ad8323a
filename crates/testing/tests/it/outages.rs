//! Outages of a day, with the defaults of the function and of template.yaml.

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::Store;
use idempotent_sqs::idempotency::{Idempotency, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{
    DeadLetter, Fault, FaultyStore, Mapping, MappingSettings, MessageState, Queue, QueueSettings, SendRequest,
    StoreCall,
};
use tokio::time::{Instant, sleep_until};

use super::{queue, settings};
use harness::with;
use harness::work::{Action, ScriptedWork};

const HOUR: Duration = Duration::from_hours(1);

const OUTAGE: Duration = Duration::from_hours(24);

/// How long after the outage everything is done.
const CATCH_UP: Duration = Duration::from_mins(20);

const FIFO: bool = true;
const STANDARD: bool = false;

const KEYS: usize = 60;

/// The default of a parameter of template.yaml.
fn default_of(parameter: &str) -> u64 {
    let template = std::fs::read_to_string(harness::workspace("template.yaml")).unwrap();
    let (_, of_parameter) = template.split_once(&format!("\n  {parameter}:\n")).expect("the parameter exists");
    let (_, default) = of_parameter.split_once("\n    Default: ").unwrap();
    default.lines().next().unwrap().trim_matches('\'').parse().unwrap()
}

/// The number behind the first appearance of this name and a colon in template.yaml.
pub(super) fn number_of(name: &str) -> u64 {
    let template = std::fs::read_to_string(harness::workspace("template.yaml")).unwrap();
    let (_, number) = template.split_once(&format!("{name}: ")).expect("the template has the name");
    number.trim_start_matches('\'').chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A queue of the template, with messages, and its dead-letter queue.
fn queues(is_fifo: bool) -> (Queue, Queue) {
    let ending = if is_fifo { ".fifo" } else { "" };
    let dead = queue(settings(&format!("dead-letters{ending}")));
    let function_timeout = default_of("FunctionTimeout");
    let payments = queue(QueueSettings {
        visibility_timeout: Duration::from_secs(6 * function_timeout),
        retention: Duration::from_secs(number_of("MessageRetentionPeriod")),
        dead_letter: Some(DeadLetter {
            queue: dead.clone(),
            max_receive_count: number_of("maxReceiveCount").try_into().unwrap(),
        }),
        ..settings(&format!("payments{ending}"))
    });
    for n in 0..KEYS {
        let key = format!("pay_{n}");
        let message = SendRequest::new("12.50 EUR").attribute("Idempotency-Key", &*key);
        // Four messages in each group.
        let message = if is_fifo { message.group(format!("g{}", n / 4)).deduplication_id(key) } else { message };
        payments.send(message).unwrap();
    }
    (payments, dead)
}

fn policy() -> Policy {
    with!(Policy::default(), max_attempts = number_of("IDEMPOTENCY_MAX_ATTEMPTS").try_into().unwrap())
}

/// Processes the queue until it is empty, which must be within 20 minutes of the outage's end, without a dead letter.
async fn survives<S: Store>(is_fifo: bool, store: S, work: &ScriptedWork) -> Queue {
    let began = Instant::now();
    let (payments, dead) = queues(is_fifo);
    let settings = with!(BatchSettings::default(), dead_letter_queue = Some(dead.dead_letter_queue()));
    let batch = Batch::new(Idempotency::new(store, policy()), work, settings);
    let function_timeout = Duration::from_secs(default_of("FunctionTimeout"));
    let mapping = Mapping::new(&payments, MappingSettings { function_timeout, ..MappingSettings::default() });
    mapping.drain(&Handler::new(batch, Some(payments.visibility()))).await;
    assert!(dead.is_empty(), "{:?}", payments.history());
    let history = payments.history();
    assert!(history.iter().all(|message| message.state == MessageState::Deleted), "{history:?}");
    let (took, most) = (began.elapsed(), history.iter().map(|message| message.receives).max());
    assert!(took > OUTAGE && took <= OUTAGE + CATCH_UP, "{took:?}, at most {most:?} receives");
    payments
}

/// A receiver that fails in this way for a day.
fn fails_for_a_day(failure: Action) -> ScriptedWork {
    let began = Instant::now();
    ScriptedWork::new(move |_| if began.elapsed() < OUTAGE { failure } else { Action::Return(b"") })
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_unavailable_for_a_day_causes_no_dead_letter() {
    for is_fifo in [STANDARD, FIFO] {
        let began = Instant::now();
        let work = fails_for_a_day(Action::FailUnavailable);
        survives(is_fifo, MemoryStore::default(), &work).await;
        assert!(work.runs().iter().all(|run| run.attempt == 1 && !run.recovery), "{:?}", work.runs());
        assert!(began.elapsed() > OUTAGE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_may_have_acted_on_each_request_for_a_day_causes_no_dead_letter() {
    for is_fifo in [STANDARD, FIFO] {
        survives(is_fifo, MemoryStore::default(), &fails_for_a_day(Action::FailUncertain)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_does_not_respond_for_a_day_causes_no_dead_letter() {
    survives(STANDARD, MemoryStore::default(), &fails_for_a_day(Action::Hang)).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_unavailable_for_a_day_causes_no_dead_letter() {
    for is_fifo in [STANDARD, FIFO] {
        let store = Arc::new(FaultyStore::new(MemoryStore::default()));
        store.always(StoreCall::Acquire, Some(Fault::Refused));
        let end = Instant::now() + OUTAGE;
        let ends = async {
            sleep_until(end).await;
            store.always(StoreCall::Acquire, None);
        };
        let work = ScriptedWork::always(Action::Return(b""));
        tokio::join!(survives(is_fifo, Arc::clone(&store), &work), ends);
        assert_eq!(work.runs().len(), KEYS);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_receiver_gets_at_most_sixteen_calls_for_each_message_in_the_first_hour() {
    let began = Instant::now();
    let work = ScriptedWork::new(move |_| match began.elapsed() {
        elapsed if elapsed < HOUR => Action::FailUnavailable,
        _ => Action::Return(b""),
    });
    let (payments, _dead) = queues(STANDARD);
    let batch = Batch::new(Idempotency::new(MemoryStore::default(), policy()), &work, BatchSettings::default());
    let mapping = Mapping::new(&payments, MappingSettings { concurrency: 2, ..MappingSettings::default() });
    mapping.drain(&Handler::new(batch, Some(payments.visibility()))).await;
    let failed = work.runs().len() - KEYS;
    for n in 0..KEYS {
        let calls = work.runs().iter().filter(|run| run.key == format!("pay_{n}")).count() - 1;
        assert!(calls <= 16, "{calls} calls for pay_{n}");
    }
    assert!(failed < 16 * KEYS, "{failed} calls in all");
}
