//! Works of a process that does not run for some time. When it runs again after their deadline or their lease, they take
//! no further step.

use std::sync::Mutex;
use std::time::Duration;

use history::Rng;
use idempotent_sqs::idempotency::Deadline;
use idempotent_sqs::{Claim, Delivery, Idempotency, Key, MemoryStore, Policy, Work, WorkError};
use tokio::time::{Instant, sleep};

use crate::lock;
use crate::network::{freeze, run_on};

const WORKS: u64 = 8;

/// Time between two steps of a work.
const STEP: Duration = Duration::from_millis(20);

/// What is wrong with the works of this seed.
pub async fn freeze_works(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0xf4e2);
    let mut wrong = Vec::new();
    for number in 0..WORKS {
        let host = format!("frozen{number}");
        let mut policy = Policy::default();
        if rng.happens(300) {
            policy.longest_lease = rng.ms(1000..3000);
        }
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let work = Steps::default();
        let (from, lasts) = (rng.ms(0..3000), rng.ms(1..4000));
        let frozen = host.clone();
        tokio::spawn(async move {
            sleep(from).await;
            freeze(&frozen, lasts, true);
        });
        let key = Key::new(&format!("pay_{number}")).expect("it has a text");
        let delivery = Delivery::new(key).deadline(Deadline::within(rng.ms(500..4000)));
        let report = run_on(&host, idempotency.run(&delivery, &work, &())).await;
        let late = lock(&work.late);
        if !late.is_empty() {
            wrong.push(format!("steps of a work this long after its end: {late:?}, {report:?}"));
        }
    }
    wrong
}

/// A work that goes on until it is cancelled.
#[derive(Default)]
struct Steps {
    /// How long after the end of its claim each late step was.
    late: Mutex<Vec<Duration>>,
}

impl Work<()> for Steps {
    async fn run(&self, claim: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        loop {
            sleep(STEP).await;
            lock(&self.late).extend(Instant::now().checked_duration_since(claim.ends()));
        }
    }
}
