//! Messages of a work with a record of its own, which the store says cannot succeed.

use std::future::ready;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{batch, many, outcomes, run};
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{AcquireRequest, Claim, OwnRecord, RecordedAttempt, Work, WorkError};
use idempotent_sqs::sqs::{DeadLetterOutcome, Disposition, Message};
use idempotent_sqs::stores::MemoryStore;

/// What the work's own record says of a message.
type Recorded = Result<Option<Vec<u8>>, fn() -> WorkError>;

/// A work whose attempts fail permanently.
struct Failing {
    record: Mutex<Recorded>,
    /// Number of times that the record was read.
    reads: AtomicUsize,
}

impl Failing {
    fn new(record: Recorded) -> Self {
        Self { record: Mutex::new(record), reads: AtomicUsize::new(0) }
    }
}

impl Work<Message> for Failing {
    async fn run(&self, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Message>> {
        Some(self)
    }
}

impl OwnRecord<Message> for Failing {
    fn attempt<'a>(&'a self, _: &'a Claim, _: &'a Message) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(ready(Err(WorkError::permanent("no"))))
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(self.record.lock().unwrap().clone().map_err(|error| error())))
    }
}

#[tokio::test]
async fn a_message_that_failed_before_has_failed_unless_its_own_record_shows_that_it_is_done() {
    let (store, work) = (MemoryStore::default(), Failing::new(Ok(None)));
    let batch = batch(&store, &work);
    let reports = run(&batch, &many(1)).await;
    assert_eq!((outcomes(&reports), reports[0].failed_permanently), (vec!["ACQUIRED"], true));
    let cases: [(Recorded, &str, Option<DeadLetterOutcome>); 4] = [
        (Ok(None), "FAILED", Some(DeadLetterOutcome::Failed)),
        (Err(|| WorkError::unavailable("no connection")), "UNAVAILABLE", None),
        (Err(|| WorkError::uncertain("an unfinished row")), "FAILED", Some(DeadLetterOutcome::Failed)),
        (Ok(Some(Vec::new())), "DUPLICATE", None),
    ];
    for (record, outcome, dead_letter) in cases {
        *work.record.lock().unwrap() = record;
        let reports = run(&batch, &many(1)).await;
        assert_eq!((outcomes(&reports), reports[0].dead_letter), (vec![outcome], dead_letter), "{reports:?}");
        assert_eq!(reports[0].disposition == Disposition::Done, outcome == "DUPLICATE", "{reports:?}");
        // Only the attempt itself failed permanently.
        assert!(!reports[0].failed_permanently, "{reports:?}");
    }
}

#[tokio::test]
async fn a_mismatch_is_delivered_again_while_its_own_record_does_not_show_whether_it_is_done() {
    let errors: [fn() -> WorkError; 2] =
        [|| WorkError::unavailable("no connection"), || WorkError::uncertain("an unfinished row")];
    for error in errors {
        let store = MemoryStore::default();
        let other = with!(many(1).remove(0), body = Some(r#"{"key":"pay_0","amount":2}"#.into()));
        run(&batch(&store, &ScriptedWork::always(Action::FailUncertain)), &[other]).await;
        let reports = run(&batch(&store, &Failing::new(Err(error))), &many(1)).await;
        assert_eq!((outcomes(&reports), reports[0].dead_letter), (vec!["UNAVAILABLE"], None), "{reports:?}");
        assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    }
}

#[tokio::test]
async fn a_database_that_did_not_show_whether_a_message_is_done_gets_one_message_of_a_later_batch() {
    let (store, work) = (MemoryStore::default(), Failing::new(Err(|| WorkError::unavailable("no connection"))));
    let batch = batch(&store, &work);
    run(&batch, &many(10)).await;
    run(&batch, &many(10)).await;
    work.reads.store(0, Ordering::Relaxed);
    run(&batch, &many(10)).await;
    assert_eq!(work.reads.load(Ordering::Relaxed), 1);
}
