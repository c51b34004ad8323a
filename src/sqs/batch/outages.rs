//! Which parts of the store were found unavailable.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::idempotency::StoreError;

/// The first error of each part of the store that is unavailable, by the part. `None` is a resource that all messages
/// need.
#[derive(Default)]
pub(super) struct Outages(Mutex<BTreeMap<Option<usize>, StoreError>>);

impl Outages {
    /// Records that this part is unavailable.
    pub(super) fn record(&self, part: Option<usize>, error: &StoreError) {
        self.lock().entry(part).or_insert_with(|| error.clone());
    }

    /// Whether messages whose keys are in this part are affected. For a message whose key is not known, the part is
    /// `None`, and any outage affects it: its payload might be fetched in vain.
    pub(super) fn affect(&self, part: Option<usize>) -> bool {
        let outages = self.lock();
        outages.contains_key(&None) || part.map_or(!outages.is_empty(), |part| outages.contains_key(&Some(part)))
    }

    /// The error of the first part.
    pub(super) fn into_error(self) -> Option<StoreError> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().next()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<usize>, StoreError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
