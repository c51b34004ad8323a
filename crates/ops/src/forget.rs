//! `forget`: remove the record, if it is still as it was seen.

use idempotent_sqs::idempotency::{Failure, Key};
use idempotent_sqs::stores::redis::records::{EvenInWork, Forgotten, Records, RecordsError, Seen, SeenState};
use serde_json::json;

use super::inspect::{absent, foreign};
use super::report::{self, Report};
use super::show;

/// The values of `--state`. A failure is named as `failed` shows it.
pub(crate) const STATES: [(&str, SeenState); 6] = [
    ("processing", SeenState::Processing),
    ("completed", SeenState::Completed),
    ("failed-clean", SeenState::Failed(Failure { uncertain: false, permanent: false })),
    ("failed-uncertain", SeenState::Failed(Failure { uncertain: true, permanent: false })),
    ("failed-permanent", SeenState::Failed(Failure { uncertain: false, permanent: true })),
    ("failed-uncertain-permanent", SeenState::Failed(Failure { uncertain: true, permanent: true })),
];

pub(crate) async fn run(records: &Records, key: &Key, seen: Seen, even: bool) -> Result<Report, RecordsError> {
    let even = if even { EvenInWork::Yes } else { EvenInWork::No };
    let (redis_key, shown) = (records.redis_key(key), show::text(key.as_str()));
    let mut json = json!({ "key": key.as_str(), "redis_key": redis_key });
    let (outcome, text) = match records.forget(key, seen, even).await? {
        Forgotten::Removed => ("FORGOTTEN", format!("forgotten: the next delivery of {shown} runs its work\n")),
        Forgotten::Absent => ("ABSENT", absent(records, key)),
        Forgotten::Changed { now } => {
            report::join(&mut json, report::seen_json(now));
            let text = format!(
                "left alone: the record of {shown} is {} by now, and not {}; `inspect` shows it\n",
                described(now),
                described(seen),
            );
            ("CHANGED", text)
        }
        Forgotten::Held { lease_remains } => {
            json["lease_remains_ms"] = show::ms(lease_remains).into();
            let text = format!(
                "left alone: the owner of {shown} is at work, and holds the lease for {} more; wait, or say \
                 --even-in-work if you know that the owner is gone\n",
                show::span(lease_remains)
            );
            ("HELD", text)
        }
        Forgotten::NotARecord => ("NOT_A_RECORD", foreign(&redis_key)),
    };
    json["outcome"] = outcome.into();
    Ok(Report { done: outcome == "FORGOTTEN", text, json })
}

/// The state and the fence, by the names that `forget` takes.
fn described(seen: Seen) -> String {
    let name = STATES.iter().find(|(_, state)| *state == seen.state).map_or("unknown", |(name, _)| name);
    format!("{name} with fence {}", seen.fence)
}
