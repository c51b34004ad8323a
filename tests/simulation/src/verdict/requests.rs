//! Whether the function passes its settings and the result of its work on to the store.

use std::time::Duration;

use history::{Call, Operation};

use crate::world::Run;

impl Run {
    /// Requests and results that are not those of the plan and of the work. Records of dead letters have other
    /// settings.
    pub(super) fn wrong_requests(&self) -> Vec<String> {
        let plan = &self.plan;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let leases_ms = ms(plan.grace())..=ms(plan.longest_lease);
        let is_right = |call: &Operation| {
            let request = call.call.request();
            let has_result = match &call.call {
                Call::Complete { claim, result } => self.is_expected_result(claim, &result.to_stored()),
                Call::Acquire { .. } | Call::Fail { .. } | Call::Release { .. } => true,
            };
            has_result
                && request.max_attempts == plan.max_attempts
                && request.failed_retention_ms == ms(plan.failed_retention)
                && request.longest_lease_ms == ms(plan.longest_lease)
                && request.retention_ms == ms(plan.retention)
                && leases_ms.contains(&request.lease_ms)
        };
        let calls = self.history.keys.values().flatten().filter(|call| !call.is_of_dead_letter());
        let wrong = calls.filter(|call| !is_right(call));
        wrong.map(|call| format!("{}: not as the settings or the work say: {call:?}", call.call.key())).collect()
    }
}
