//! What a record is, by its bytes: `lua/acquire.lua` defines the layout.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use history::Value;
use idempotent_sqs::idempotency::{Failure, Fence, StoredResult};
use idempotent_sqs::stores::redis::records::{ExpectedRecord, ExpectedState, Lease, RecordStateView, RecordView};

/// The bytes of a record, if the value is one.
pub fn record_in(value: Option<&Value>) -> Option<&[u8]> {
    let Some(Value::String(bytes)) = value else { return None };
    let is_record = match bytes.get(..2)? {
        b"P\x01" | b"F\x01" => bytes.len() == 52,
        b"C\x01" => bytes.len() >= 36,
        _ => false,
    };
    is_record.then_some(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("it has 8 bytes"))
}

/// What identifies this record for its removal.
pub fn seen(record: &[u8]) -> ExpectedRecord {
    let state = match record[0] {
        b'P' => ExpectedState::Processing,
        b'C' => ExpectedState::Completed,
        _ => ExpectedState::Failed(failure(record)),
    };
    ExpectedRecord { state, fence: Fence(number(&record[4..12])) }
}

fn failure(record: &[u8]) -> Failure {
    Failure { uncertain: record[2] & 1 != 0, permanent: record[2] & 2 != 0 }
}

/// When the lease of a record in PROCESSING ends, since 1970.
pub fn lease_end(record: &[u8]) -> Option<Duration> {
    (record[0] == b'P').then(|| Duration::from_millis(number(&record[44..])))
}

/// The time since 1970.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970")
}

/// Whether the view is that of this record, at a moment between `from` and now.
pub fn is_view_of(view: &RecordView, record: &[u8], from: Duration) -> bool {
    let until = now();
    let is_state = match view.state {
        RecordStateView::Processing { recovery, lease } => {
            let is_lease = lease_end(record).is_some_and(|end| match lease {
                Lease::Remains(time) => !time.is_zero() && (from..=until).contains(&end.saturating_sub(time)),
                Lease::Ended(time) => (from..=until).contains(&(end + time)),
            });
            record[0] == b'P' && recovery == (record[2] == 1) && is_lease
        }
        RecordStateView::Completed { result } => {
            record[0] == b'C'
                && record[2]
                    == [0, 4, 12][match result {
                        StoredResult::Inline(()) => 0,
                        StoredResult::NotKept => 1,
                        StoredResult::Object(()) => 2,
                    }]
        }
        RecordStateView::Failed(failed) => record[0] == b'F' && failed == failure(record),
    };
    let claimed = Duration::from_micros(number(&record[4..12]));
    is_state
        && view.attempts == record[3]
        && view.fence == seen(record).fence
        && view.owner.as_bytes()[..] == record[12..20]
        && view.fingerprint.as_bytes()[..] == record[20..36]
        && (from..=until).contains(&(claimed + view.age))
}
