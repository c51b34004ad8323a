//! Records as bytes: the fixed part, then a completed record's result.

use idempotent_sqs::idempotency::protocol::{Record, RecordState};
use idempotent_sqs::idempotency::{Failure, Fence, Fingerprint, MessageIdHash, Owner, StoredResult};

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let (state, mark, lease_end_ms, result): (u8, u8, u64, &[u8]) = match &record.state {
        RecordState::Processing { recovery, lease_end_ms } => (b'P', (*recovery).into(), *lease_end_ms, &[]),
        RecordState::Completed { result: StoredResult::Inline(result) } => (b'I', 0, 0, result),
        RecordState::Completed { result: StoredResult::Object(location) } => (b'O', 0, 0, location),
        RecordState::Completed { result: StoredResult::NotKept } => (b'N', 0, 0, &[]),
        RecordState::Failed(Failure { uncertain, permanent }) => {
            (b'F', u8::from(*uncertain) | u8::from(*permanent) << 1, 0, &[])
        }
    };
    let head = [state, mark, record.attempts];
    let times = [record.fence.0, record.expires_ms, lease_end_ms].map(u64::to_be_bytes);
    let ids: [&[u8]; 3] = [record.owner.as_bytes(), record.fingerprint.as_bytes(), record.message.as_bytes()];
    [&head, times.as_flattened(), &ids.concat(), result].concat()
}

/// `None` if these bytes are not a record.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Record> {
    let [state, mark, attempts] = take(&mut bytes)?;
    let mut time = || take(&mut bytes).map(u64::from_be_bytes);
    let (fence, expires_ms, lease_end_ms) = (Fence(time()?), time()?, time()?);
    let owner = Owner::from_bytes(take(&mut bytes)?);
    let fingerprint = Fingerprint::from_bytes(take(&mut bytes)?);
    let message = MessageIdHash::from_bytes(take(&mut bytes)?);
    let state = match state {
        b'P' => RecordState::Processing { recovery: mark == 1, lease_end_ms },
        b'I' => RecordState::Completed { result: StoredResult::Inline(bytes.to_vec()) },
        b'O' => RecordState::Completed { result: StoredResult::Object(bytes.to_vec()) },
        b'N' => RecordState::Completed { result: StoredResult::NotKept },
        b'F' => RecordState::Failed(Failure { uncertain: mark & 1 != 0, permanent: mark & 2 != 0 }),
        _ => return None,
    };
    Some(Record { owner, fingerprint, message, fence, attempts, state, expires_ms })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
