//! A store of several parts, of which some do not reply.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use redis::cluster_routing::Slot;
use tokio::time::{Instant, sleep};

use super::{batch, has_first_backoff, many, message, run, settings};
use harness::cluster::SmallCluster;
use harness::event::set_pointer;
use harness::parts::Parts;
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{Acquire, Deadline, Idempotency, Location, ObjectStore, Policy, Store};
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, ExtendedClient};
use idempotent_sqs::stores::{MemoryStore, RedisSettings, RedisStore};
use idempotent_sqs_testing::{MemoryObjectStore, attempt};

/// A store whose parts `hung` and `late` reply after these times.
fn replying_after(times: [Duration; 2]) -> Parts {
    let [hung, late] = times.map(|time| Instant::now() + time);
    Parts::new(["well", "hung", "late"], [Instant::now(), hung, late])
}

/// Runs a batch of 100 messages for 300 seconds, of which 34 have keys of a part that hangs for this time. Returns the
/// records and how long the batch took.
async fn run_while_a_part_hangs(hangs: Duration) -> (MemoryStore, Duration) {
    let began = Instant::now();
    let (store, work) = (replying_after([hangs; 2]), ScriptedWork::always(Action::Return(b"")));
    let is_hung = |number: usize| number.is_multiple_of(3);
    let key = |number| format!("{}-{number}", if is_hung(number) { "hung" } else { "well" });
    let messages: Vec<_> = (0..100).map(|number| message(&format!("m{number}"), &key(number))).collect();
    let batch = batch(&store, &work);
    let runs = async {
        // One acquire without a reply takes a second.
        sleep(Duration::from_millis(1500)).await;
        work.runs().len()
    };
    let (reports, soon) = tokio::join!(batch.run(&messages, Deadline::within(Duration::from_secs(300))), runs);
    assert_eq!(soon, 66);
    for (number, report) in reports.unwrap().iter().enumerate() {
        if is_hung(number) {
            assert!(has_first_backoff(report.disposition), "{report:?}");
        } else {
            assert_eq!(report.disposition, Disposition::Done, "{report:?}");
        }
    }
    (store.records, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn while_a_part_of_the_store_hangs_the_messages_of_the_others_are_done() {
    let (_records, took) = run_while_a_part_hangs(Duration::from_secs(3600)).await;
    // The releases are tried until the time for settling ends.
    assert!((Duration::from_secs(299)..Duration::from_secs(300)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn acquires_without_a_reply_are_released_once_their_part_of_the_store_replies() {
    let (records, took) = run_while_a_part_hangs(Duration::from_secs(30)).await;
    assert!((Duration::from_secs(30)..Duration::from_secs(32)).contains(&took), "{took:?}");
    for number in (0..100).step_by(3) {
        match records.acquire(attempt(&format!("hung-{number}"))).await.unwrap() {
            Acquire::Acquired(claim) => assert_eq!(claim.attempt(), 1),
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_a_reply_is_released_once_its_part_of_the_store_replies_while_another_one_hangs() {
    let hours = Duration::from_secs(3600);
    let store = replying_after([hours, Duration::from_secs(30)]);
    let work = ScriptedWork::always(Action::Return(b""));
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    let messages = ["hung", "late"].map(|key| message(key, key));
    let next = async {
        sleep(Duration::from_secs(32)).await;
        store.records.acquire(attempt("late")).await.unwrap()
    };
    let (reports, next) = tokio::join!(batch.run(&messages, Deadline::within(Duration::from_secs(300))), next);
    assert!(matches!(&next, Acquire::Acquired(claim) if claim.attempt() == 1 && !claim.is_recovery()), "{next:?}");
    assert!(reports.is_err() && work.runs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn while_a_part_of_the_store_hangs_a_message_of_another_one_with_its_payload_in_s3_is_done() {
    let objects = MemoryObjectStore::default();
    objects.put(&Location { bucket: "payloads".into(), name: "one".into() }, b"payload".into()).await.unwrap();
    let client = with!(ExtendedClient::default(), objects = Some(Arc::new(objects)), buckets = vec!["payloads".into()]);
    let settings = with!(BatchSettings::default(), concurrency = NonZeroUsize::MIN, extended_client = client);
    let hours = Duration::from_secs(3600);
    let (store, work) = (replying_after([hours; 2]), ScriptedWork::always(Action::Return(b"")));
    let batch = Batch::new(Idempotency::new(store, Policy::default()), &work, settings);
    let messages = ["hung", "well"].map(|key| {
        let mut message = message(key, key);
        set_pointer(&mut message, "payloads", "one");
        message.attributes.insert("Idempotency-Key".to_owned(), key.into());
        message
    });
    let reports = run(&batch, &messages).await;
    assert!(has_first_backoff(reports[0].disposition), "{reports:?}");
    assert_eq!(reports[1].disposition, Disposition::Done, "{reports:?}");
}

#[tokio::test]
async fn while_a_node_of_a_cluster_does_not_respond_the_messages_of_the_others_are_done() {
    let cluster = SmallCluster::start(3).await;
    // By default, the other nodes refuse all calls once they know that a node has failed.
    for node in 0..2 {
        cluster.ask::<()>(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let redis = RedisSettings::new(cluster.url().parse().unwrap(), "payments");
    let store = RedisStore::new(&with!(redis, cluster = true)).unwrap();
    let work = ScriptedWork::always(Action::Return(b""));
    let batch = batch(store, &work);
    run(&batch, &many(20)).await;
    cluster.nodes[2].signal("-STOP");
    let messages: Vec<_> = (0..100).map(|n| message(&format!("m{n}"), &format!("other {n}"))).collect();
    let reports = batch.run(&messages, Deadline::within(Duration::from_secs(12))).await.unwrap();
    let hung: Vec<_> = (10_923..16_384).filter_map(Slot::new).collect();
    let is_hung = |n: usize| hung.contains(&Slot::for_key(format!("payments:other {n}")));
    let is_done = |n: usize| reports[n].disposition == Disposition::Done;
    assert!(!(0..100).any(|n| is_hung(n) && is_done(n)), "{reports:?}");
    // Some time out, because new connections wait for the node. Without parts, the batch would do a third of them.
    let done = (0..100).filter(|n| is_done(*n)).count();
    let all = (0..100).filter(|n| !is_hung(*n)).count();
    assert!(done * 2 > all, "{done} of {all}: {reports:?}");
}
