//! Large results that a redelivery finds in the work's own record, after the store has answered that the work failed,
//! while S3 does not respond. The time for settling is not spent on their objects.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use history::Rng;
use idempotent_sqs::idempotency::{
    AcquireRequest, Deadline, Location, ObjectError, ObjectStore, Outcome, OwnRecord, RecordedAttempt, Results,
};
use idempotent_sqs::{Claim, Delivery, Fingerprint, Idempotency, Key, MemoryStore, Policy, Work, WorkError, work_fn};
use tokio::time::Instant;

/// Number of deliveries of a seed.
const DELIVERIES: u64 = 4;

/// The result, which is not kept in the record.
const RESULT: &[u8] = b"a result";

/// What is wrong with the deliveries of this seed.
pub async fn find_results(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x1a7e);
    let mut wrong = Vec::new();
    for number in 0..DELIVERIES {
        let mut policy = Policy::default();
        policy.result_max_bytes = 0;
        policy.results = Some(Results::new(Arc::new(Silent), "results", ""));
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let key = Key::new(&format!("pay_{number}")).expect("it has a text");
        let delivery = Delivery::new(key).fingerprint(Fingerprint::of(b"a payment")).message_id("m1");
        let fails = work_fn(|_: &Claim, (): &()| async { Err::<Vec<u8>, _>(WorkError::permanent("rejected")) });
        let failed =
            idempotency.run(&delivery.clone().deadline(Deadline::within(rng.ms(1000..9000))), &fails, &()).await;
        let deadline = Deadline::within(rng.ms(500..9000));
        let report = idempotency.run(&delivery.deadline(deadline), &Recorded, &()).await;
        let is_found = report.as_ref().is_ok_and(
            |report| matches!(&report.outcome, Outcome::Duplicate { result } if result.as_deref() == Some(RESULT)),
        );
        if !is_found || Instant::now() > deadline.settle {
            wrong.push(format!("{report:?} after {failed:?}, {:?} after the time", deadline.settle.elapsed()));
        }
    }
    wrong
}

/// An object store that never responds.
#[derive(Debug)]
pub struct Silent;

impl ObjectStore for Silent {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(pending())
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(pending())
    }
}

/// Work whose own record shows that it is done.
struct Recorded;

impl Work<()> for Recorded {
    async fn run(&self, _: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        unreachable!("the core calls attempt")
    }

    fn own_record(&self) -> Option<&dyn OwnRecord<()>> {
        Some(self)
    }
}

impl OwnRecord<()> for Recorded {
    fn attempt<'a>(&'a self, _: &'a Claim, (): &'a ()) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>> {
        Box::pin(async { Ok(RecordedAttempt::DoneBefore(RESULT.to_vec())) })
    }

    fn recorded<'a>(&'a self, _: &'a AcquireRequest, _: Instant) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>> {
        Box::pin(async { Ok(Some(RESULT.to_vec())) })
    }
}
