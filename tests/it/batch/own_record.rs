//! Messages of a work with a record of its own, which the store says cannot succeed.

use std::num::NonZeroUsize;

use super::{TIME, batch, many, outcomes, run, settings};
use harness::with;
use harness::work::{Action, Recorded, RecordingWork, ScriptedWork};
use idempotent_sqs::idempotency::{Claim, Deadline, Idempotency, OwnRecord, Policy, RecordedAttempt, Work, WorkError};
use idempotent_sqs::sqs::{Batch, DeadLetterOutcome, Disposition, Message};
use idempotent_sqs::stores::MemoryStore;
use idempotent_sqs_testing::{FaultyStore, StoreCall};

/// A work whose attempts fail permanently, and what its own record says.
fn failing(record: Recorded) -> RecordingWork {
    let work = RecordingWork::always(|| Err(WorkError::permanent("no")));
    work.set_record(record);
    work
}

#[tokio::test]
async fn a_message_that_failed_before_has_failed_unless_its_own_record_shows_that_it_is_done() {
    let (store, work) = (MemoryStore::default(), failing(Ok(None)));
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
        work.set_record(record);
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
        let reports = run(&batch(&store, &failing(Err(error))), &many(1)).await;
        assert_eq!((outcomes(&reports), reports[0].dead_letter), (vec!["UNAVAILABLE"], None), "{reports:?}");
        assert!(matches!(reports[0].disposition, Disposition::Redeliver { after: Some(_) }), "{reports:?}");
    }
}

#[tokio::test]
async fn a_database_that_did_not_show_whether_a_message_is_done_gets_one_message_of_a_later_batch() {
    let (store, work) = (MemoryStore::default(), failing(Err(|| WorkError::unavailable("no connection"))));
    let batch = batch(&store, &work);
    run(&batch, &many(10)).await;
    run(&batch, &many(10)).await;
    work.take_reads();
    run(&batch, &many(10)).await;
    assert_eq!(work.take_reads(), 1);
}

/// A work with a receiver for each message, whose attempts cannot reach the database that all of them need.
struct OfManyReceivers {
    work: RecordingWork,
}

impl Work<Message> for OfManyReceivers {
    async fn run(&self, claim: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        self.work.run(claim, message).await
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<Message>> {
        self.work.own_record()
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        &message.id
    }
}

#[tokio::test]
async fn once_a_database_that_all_messages_need_cannot_be_reached_no_message_of_another_receiver_is_started() {
    let store = FaultyStore::new(MemoryStore::default());
    let work = RecordingWork::new((0..40).map(|_| Ok(RecordedAttempt::Unreachable("no connection".into()))));
    let work = OfManyReceivers { work };
    let settings = with!(settings(), concurrency = NonZeroUsize::MIN);
    let batch = Batch::new(Idempotency::new(&store, Policy::default()), &work, settings);
    batch.run(&many(40), Deadline::within(TIME)).await.unwrap_err();
    let attempts = 40 - work.work.answers.lock().unwrap().len();
    assert_eq!((attempts, store.calls(StoreCall::Acquire)), (1, 1));
}
