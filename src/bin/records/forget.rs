//! `forget`: remove the record that was seen.

use idempotent_sqs::record::{Fence, Key};
use idempotent_sqs::stores::records::{EvenInWork, Forgotten, Records, RecordsError};
use serde_json::json;

use super::inspect::{absent, foreign};
use super::report::Report;
use super::show;

pub(crate) async fn run(records: &Records, key: &Key, seen: Fence, even: bool) -> Result<Report, RecordsError> {
    let even = if even { EvenInWork::Yes } else { EvenInWork::No };
    let (redis_key, shown) = (records.redis_key(key), show::text(key.as_str()));
    let mut json = json!({ "key": key.as_str(), "redis_key": redis_key });
    let (outcome, text) = match records.forget(key, seen, even).await? {
        Forgotten::Removed => ("FORGOTTEN", format!("forgotten: the next delivery of {shown} runs its work\n")),
        Forgotten::Absent => ("ABSENT", absent(records, key)),
        Forgotten::Changed { fence } => {
            json["fence"] = fence.0.into();
            let text = format!(
                "left alone: the record of {shown} has fence {fence} by now, and not {seen}; `inspect` shows it\n"
            );
            ("CHANGED", text)
        }
        Forgotten::Held { lease_remains } => {
            json["lease_remains_ms"] = show::ms(lease_remains).into();
            let text = format!(
                "left alone: the owner of {shown} is at work, and holds the lease for {} more; wait, or say \
                 --even-in-work if it is sure that nobody is\n",
                show::span(lease_remains)
            );
            ("HELD", text)
        }
        Forgotten::Foreign => ("FOREIGN", foreign(&redis_key)),
    };
    json["outcome"] = outcome.into();
    Ok(Report { done: outcome == "FORGOTTEN", text, json })
}
