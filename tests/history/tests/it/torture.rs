//! Processes of the function are killed and stopped, on a Redis that fails, with a webhook that answers as a plan of
//! the seed says. Every call of their stores is recorded, and the verdict is by this history: it is linearizable, the
//! model allows each of its steps, each effect that the webhook counted has its run, and each run was settled as the
//! webhook answered.
//!
//! A short run is part of all tests; `make torture` runs a long one. `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED` set the number of seeds, the number of messages and the first seed. `TORTURE_WITHOUT` names a
//! guard of the scripts that the servers run without; the torture then fails.

mod messages;
mod objects;
mod receiver;
mod spans;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::lambda::assert_holds_no_secret;
use harness::torture::faults::{Cluster, Pair, Rng, Target};
use harness::torture::fixture::Fixture;
use harness::torture::fleet::PROCESS_STOPPED;
use harness::torture::tally::{self, Sum, Tally, lock};
use harness::torture::{FAULTS_PER_SEED, Length, PROCESSES, perform, queue};
use history::{
    Allowances, Delivery, History, Invoked, Letter, Outside, Received, Report, ReusedConnection, is_of_dead_letter,
    monotonic_us,
};
use idempotent_sqs::sqs::DeadLetter;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::guards;
use messages::{Message, messages};
use objects::{LIMIT, Objects};
use receiver::{Receiver, Seen};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_and_each_history_is_that_of_the_state_machine() {
    let Length { seeds, messages: count, first } = Length::from_env();
    let (mut sum, mut report, mut faults) = (Sum::default(), Report::default(), Vec::new());
    let mut answers = BTreeMap::new();
    for seed in first..first + seeds {
        // One of four seeds uses a cluster, also in the short run.
        let mut target = match (seed - first) % 4 {
            1 => Target::Cluster(Cluster::start().await),
            _ => Target::Pair(Pair::start().await),
        };
        if let (Target::Pair(pair), Some((script, without))) = (&target, guards::removed()) {
            pair.front.replace_script(script, &without);
        }
        let directory = tempfile::tempdir().unwrap();
        let (url, cluster) = (target.url(), target.is_cluster());
        let inject_fault = async |rng: &mut Rng, tally: &Tally| target.inject_fault(rng, tally).await;
        let messages = messages(seed, count);
        sum.add(torture(seed, &messages, (url, cluster), directory.path(), inject_fault).await);
        let (of_seed, received, wrong) = judge(directory, &messages);
        for call in received.calls {
            *answers.entry(call.answer.status).or_insert(0) += 1;
        }
        report.add(of_seed);
        faults.extend(wrong);
    }
    print!("{}{report}\nanswers of the webhook\n  {answers:?}\n", sum.table(seeds));
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    assert!(
        sum.faults.values().flatten().count() > FAULTS_PER_SEED * usize::try_from(seeds).unwrap(),
        "too few faults"
    );
}

/// Runs functions with faults on the Redis at this address, which may be that of a cluster. Writes their history, and
/// what was seen from outside, to files in this directory.
async fn torture(
    seed: u64,
    messages: &[Message],
    (url, cluster): (String, bool),
    directory: &Path,
    mut inject_fault: impl AsyncFnMut(&mut Rng, &Tally),
) -> Sum {
    let (queue, webhook) = (queue(seed), Receiver::start(seed).await);
    let (objects, collector) = (Objects::start(messages, &webhook).await, spans::collector().await);
    let settings = vec![
        ("HISTORY_DIRECTORY", directory.to_str().unwrap().to_owned()),
        ("TARGET_URL", webhook.url()),
        ("IDEMPOTENCY_KEY", "attribute:Idempotency-Key,body:/paymentId".to_owned()),
        ("PAYLOAD_BUCKETS", "other-payloads, payloads".to_owned()),
        ("PAYLOAD_MAX_BYTES", LIMIT.to_string()),
        ("AWS_ENDPOINT_URL_S3", objects.url()),
        ("DEAD_LETTER_QUEUE_URL", "https://sqs.eu-central-1.amazonaws.com/123456789012/dead-letters".to_owned()),
    ];
    let binary = env!("CARGO_BIN_EXE_recorded-function");
    let address = collector.url();
    let settings = Box::new(move |number| {
        [settings.clone(), receiver::timeouts(number), spans::variables(seed, number, &address)].concat()
    });
    let fixture = Arc::new(Fixture::new(binary, (url, cluster), &queue, settings).await);
    let tally = Arc::clone(&fixture.tally);
    let inject_any_fault = async |rng: &mut Rng| {
        if rng.draw(0..3) > 0 {
            return inject_fault(rng, &tally).await;
        }
        let from = Instant::now();
        if rng.draw(0..3) == 0 {
            webhook.refuse(rng.millis(50..300)).await;
            tally.fault("webhook: connections refused", None, from);
        } else {
            webhook.ignore(rng.millis(500..1500)).await;
            tally.fault("webhook: connections ignored", None, from);
        }
    };
    perform(seed, &queue, Arc::clone(&fixture), messages.iter().map(Message::request).collect(), inject_any_fault)
        .await;

    let Seen { calls, effects, closed_us, .. } = webhook.seen();
    let (object_calls, spans) = (objects.calls(), Some(spans::of_messages(&collector)));
    let traces = (0..PROCESSES).map(|number| spans::traces(seed, number)).collect();
    let mut received = Received { calls, closed_us, object_calls, spans, traces, ..received(&tally, messages) };
    received.reused_connections.extend(objects.reused_connections());
    // The run ends when all messages were deleted.
    let with_effect = received.deliveries.iter().filter(|delivery| !received.has_letter(&delivery.message_id));
    let deleted = with_effect.map(|delivery| delivery.key.clone()).collect();
    let outside = Outside { effects, deleted, ..Outside::default() };
    fs::write(directory.join("outside.json"), serde_json::to_vec(&outside).unwrap()).unwrap();
    fs::write(directory.join("received.json"), serde_json::to_vec(&received).unwrap()).unwrap();
    tally.sum(&queue)
}

/// The deliveries and dead letters of these messages.
fn received(tally: &Tally, messages: &[Message]) -> Received {
    let messages: HashMap<&String, &Message> = messages.iter().map(|message| (&message.body, message)).collect();
    let (now, now_us) = (Instant::now(), monotonic_us());
    let us = |at: Instant| now_us - u64::try_from((now - at).as_micros()).unwrap();
    lock(&tally.letters).iter().for_each(|letter| assert_holds_no_secret(&serde_json::to_string(letter).unwrap()));
    let visibility_s = lock(&tally.visibility_s);
    let delivery = |delivery: &tally::Delivery| Delivery {
        message_id: delivery.message_id.clone(),
        key: messages[&delivery.body].key.clone(),
        body: messages[&delivery.body].payload().to_owned(),
        pointer: messages[&delivery.body].pointer(),
        receive_count: delivery.receive_count,
        process: delivery.process,
        sender: messages[&delivery.body].sender(),
        begun_us: us(delivery.begun),
        ended_us: us(delivery.ended),
        is_malformed: delivery.is_malformed,
        invocation: match &delivery.invocation {
            tally::Invoked::Named => Invoked::Named,
            tally::Invoked::NotNamed => Invoked::NotNamed,
            tally::Invoked::Error(error) => {
                assert_holds_no_secret(error);
                Invoked::Error(error.clone())
            }
            tally::Invoked::Unknown => Invoked::Unknown,
        },
        visibility_s: visibility_s.get(&delivery.receipt_handle).copied(),
    };
    let faults = lock(&tally.faults);
    let stops = faults.iter().filter(|fault| fault.kind == PROCESS_STOPPED);
    let reused_connection = |(at, idle): &(Instant, Duration)| ReusedConnection {
        server: "SQS".to_owned(),
        at_us: us(*at),
        idle_us: u64::try_from(idle.as_micros()).unwrap(),
    };
    let letter = |letter: &DeadLetter| Letter { message_id: letter.message_id.clone(), outcome: letter.outcome };
    Received {
        deliveries: lock(&tally.deliveries).iter().map(delivery).collect(),
        letters: lock(&tally.letters).iter().map(letter).collect(),
        stopped_us: stops.map(|fault| us(fault.from)).collect(),
        timeouts: *lock(&tally.timeouts),
        reused_connections: lock(&tally.reused_connections).iter().map(reused_connection).collect(),
        ..Received::default()
    }
}

/// The verdict by the files in this directory, which is kept if anything is wrong.
fn judge(directory: TempDir, messages: &[Message]) -> (Report, Received, Vec<String>) {
    let read = |name| fs::read(directory.path().join(name)).unwrap();
    let outside = serde_json::from_slice(&read("outside.json")).unwrap();
    let received: Received = serde_json::from_slice(&read("received.json")).unwrap();
    let history = History::read(directory.path()).unwrap();
    let report = Report::of_functions(&history, &outside, Allowances::REAL);
    let mut faults: Vec<_> = report.faults().chain(received.faults(&history)).collect();
    let known: BTreeSet<_> = history.keys.keys().filter(|key| !is_of_dead_letter(key)).collect();
    let keys = messages.iter().filter(|message| message.has_record()).map(|message| &message.key).collect();
    if known != keys {
        faults.push(format!("not the keys of the messages have a history: {:?}", known.symmetric_difference(&keys)));
    }
    if !faults.is_empty() {
        println!("`check-history {}` repeats the verdict", directory.keep().display());
    }
    (report, received, faults)
}
