//! Promises of the test kit and of docs/upgrading.md that do not hold.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use idempotent_sqs::idempotency::{Idempotency, Policy};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, Disposition, FingerprintSource, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs::Deadline;
use idempotent_sqs_testing::{Mapping, MappingSettings, QueueSettings};

use super::{SECOND, queue, settings};
use harness::work::{Action, ScriptedWork};

/// docs/upgrading.md: "set IDEMPOTENCY_FINGERPRINT=none, deploy, and remove the setting when the retention is over. Until then
/// the same key with another payload is not detected."
#[tokio::test(start_paused = true)]
async fn another_payload_under_a_key_is_detected_once_the_setting_none_is_removed() {
    let (store, work) = (MemoryStore::default(), ScriptedWork::always(Action::Return(b"")));
    let payment = |id: &str, amount: &str| {
        let mut message = Message::new(id, amount);
        message.attributes.insert("Idempotency-Key".into(), "pay_1".into());
        message
    };
    let deliver = async |fingerprint, message| {
        let mut settings = BatchSettings::default();
        settings.fingerprint = fingerprint;
        let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
        batch.run(&[message], Deadline::within(30 * SECOND)).await.unwrap().remove(0)
    };
    // An hour before the retention is over, and the setting is removed.
    tokio::time::advance(Policy::default().retention - Duration::from_hours(1)).await;
    assert_eq!(deliver(FingerprintSource::None, payment("a", "12.50")).await.disposition, Disposition::Done);
    tokio::time::advance(Duration::from_hours(1)).await;
    // Two days after it.
    tokio::time::advance(Duration::from_hours(48)).await;
    let report = deliver(FingerprintSource::Body, payment("b", "99.00")).await;
    assert_eq!(work.runs().len(), 1);
    assert_ne!(report.disposition, Disposition::Done, "deleted without being run: {report:?}");
}

/// [`Mapping::drain`]: "Invokes the handler until the queue is empty. If tokio's clock is paused, waits for a visibility timeout
/// take no real time." With 120,000 messages in flight none can be received, and it does not wait for one of them: it polls
/// again and again, and the clock stands still.
#[test]
fn a_queue_with_all_messages_in_flight_that_sqs_permits_is_drained() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (retention, visibility_timeout) = (Duration::from_mins(1), Duration::from_hours(1));
            let queue = queue(QueueSettings { retention, visibility_timeout, ..settings("payments") });
            for number in 0..120_010 {
                drop(queue.send(number.to_string()).unwrap());
            }
            let batching_window = SECOND;
            let large = MappingSettings { batch_size: 10_000, batching_window, ..MappingSettings::default() };
            let other = Mapping::new(&queue, large);
            while queue.in_flight() < 120_000 {
                drop(other.poll().unwrap());
            }
            done.send(false).unwrap();
            let work = ScriptedWork::always(Action::Return(b""));
            let batch = Batch::new(Idempotency::new(MemoryStore::default(), Policy::default()), &work, BatchSettings::default());
            let handler = Handler::new(batch, Some(queue.visibility()));
            // All messages expire after a minute of tokio's clock.
            Mapping::new(&queue, MappingSettings::default()).drain(&handler).await;
            assert!(queue.is_empty());
            done.send(true).unwrap();
        });
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(300)), Ok(false), "not set up in five minutes");
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(true), "no progress in a minute of real time");
}
