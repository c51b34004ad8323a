//! `forget`: removes a record that has not changed since it was inspected.

use idempotent_sqs::idempotency::{Failure, Key};
use idempotent_sqs::stores::redis::records::{ExpectedRecord, ExpectedState, Force, Forgotten, Records, RecordsError};
use serde_json::json;

use super::inspect::{absent, not_a_record};
use crate::format;
use crate::output::{self, CommandOutput};

/// The values of `--state`. Failures are named as `failed` shows them.
pub(crate) const STATES: [(&str, ExpectedState); 6] = [
    ("processing", ExpectedState::Processing),
    ("completed", ExpectedState::Completed),
    ("failed-clean", ExpectedState::Failed(Failure { uncertain: false, permanent: false })),
    ("failed-uncertain", ExpectedState::Failed(Failure { uncertain: true, permanent: false })),
    ("failed-permanent", ExpectedState::Failed(Failure { uncertain: false, permanent: true })),
    ("failed-uncertain-permanent", ExpectedState::Failed(Failure { uncertain: true, permanent: true })),
];

pub(crate) async fn run(
    records: &Records,
    key: &Key,
    seen: ExpectedRecord,
    force: Force,
) -> Result<CommandOutput, RecordsError> {
    let (redis_key, shown) = (records.redis_key(key), format::text(key.as_str()));
    let mut json = json!({ "key": key.as_str(), "redis_key": redis_key });
    let (outcome, text) = match records.forget(key, seen, force).await? {
        Forgotten::Removed => {
            let line = format!("removed: the next delivery of {shown} runs the work, unless an inbox has its row\n");
            ("FORGOTTEN", line)
        }
        Forgotten::Absent => ("ABSENT", absent(records, key)),
        Forgotten::Changed { now } => {
            output::extend(&mut json, output::seen_json(now));
            let text = format!(
                "not removed: the record of {shown} is now {}, not {}; `inspect` shows it\n",
                state_and_fence(now),
                state_and_fence(seen),
            );
            ("CHANGED", text)
        }
        Forgotten::Held { lease_remains } => {
            json["lease_remains_ms"] = format::ms(lease_remains).into();
            let text = format!(
                "not removed: the owner of {shown} holds its lease for another {}; wait until the lease ends, or \
                 use --force if the owner no longer runs\n",
                format::duration(lease_remains)
            );
            ("HELD", text)
        }
        Forgotten::NotARecord => ("NOT_A_RECORD", not_a_record(&redis_key)),
        other => ("UNKNOWN", format!("unknown outcome: {other:?}\n")),
    };
    json["outcome"] = outcome.into();
    Ok(CommandOutput::new(outcome == "FORGOTTEN", text, json))
}

/// The state, named as `--state` takes it, and the fence.
fn state_and_fence(seen: ExpectedRecord) -> String {
    let name = STATES.iter().find(|(_, state)| *state == seen.state).map_or("unknown", |(name, _)| name);
    format!("{name} with fence {}", seen.fence)
}
