//! Records with leases of several lengths.

use std::time::Duration;

use futures_util::future::join_all;
use history::{Rng, Value};
use idempotent_sqs::Key;
use idempotent_sqs::idempotency::{AcquireRequest, Store};

use super::{NAMESPACE, RECORDS, Sharer};
use crate::records::truth::{lease_end, seen};

/// How much longer than requested a lease may be.
const TOLERANCE: Duration = Duration::from_millis(100);

/// The end of a lease is a whole millisecond.
const ROUNDED: Duration = Duration::from_millis(1);

impl Sharer {
    /// Records share a call only if their leases are nearly the same.
    pub(super) async fn mix_leases(&self, rng: &mut Rng) -> Vec<String> {
        let lease = |rng: &mut Rng| *rng.pick(&[Duration::from_secs(1), Duration::from_secs(60)]) + rng.ms(0..250);
        let leases: Vec<_> = (0..RECORDS).map(|_| lease(rng)).collect();
        let name = |number: usize| format!("leased-{number}");
        let acquires = leases.iter().enumerate().map(|(number, lease)| {
            let mut request = AcquireRequest::new(Key::new(&name(number)).expect("it has a text"));
            request.lease = *lease;
            self.store.acquire(request)
        });
        join_all(acquires).await;
        let wrong_lease = |(number, lease): (usize, &Duration)| {
            let value = self.cluster.value(format!("{NAMESPACE}:{}", name(number)).as_bytes());
            let Some(Value::String(record)) = &value else { return Some(format!("no record: {value:?}")) };
            let lasts = (lease_end(record)? + ROUNDED).saturating_sub(Duration::from_micros(seen(record).fence.0));
            let is_right = (*lease..=*lease + ROUNDED + TOLERANCE).contains(&lasts);
            (!is_right).then(|| format!("a lease of {lasts:?} instead of {lease:?}"))
        };
        leases.iter().enumerate().filter_map(wrong_lease).collect()
    }
}
