//! Messages of a work with a record of its own, which the store says cannot succeed.

use std::future::ready;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{batch, many, outcomes, run};
use idempotent_sqs::idempotency::{AcquireRequest, Claim, OwnRecord, RecordedAttempt, Work, WorkError};
use idempotent_sqs::sqs::{DeadLetterOutcome, Disposition, Message};
use idempotent_sqs::stores::MemoryStore;

/// What the work's own record says of a message.
type Recorded = Result<Option<Vec<u8>>, fn() -> WorkError>;

/// A work whose attempts fail permanently.
struct Failing {
    record: Mutex<Recorded>,
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
        Box::pin(ready(self.record.lock().unwrap().clone().map_err(|error| error())))
    }
}

#[tokio::test]
async fn a_message_that_failed_before_has_failed_unless_its_own_record_shows_that_it_is_done() {
    let (store, work) = (MemoryStore::default(), Failing { record: Mutex::new(Ok(None)) });
    let batch = batch(&store, &work);
    let reports = run(&batch, &many(1)).await;
    assert_eq!((outcomes(&reports), reports[0].failed_permanently), (vec!["ACQUIRED"], true));
    let cases: [(Recorded, &str, Option<DeadLetterOutcome>); 4] = [
        (Ok(None), "FAILED", Some(DeadLetterOutcome::Failed)),
        (Err(|| WorkError::unavailable("no connection")), "FAILED", None),
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
