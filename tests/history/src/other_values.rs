//! Values of other programs under the keys of records, and records in a later format. Each call says that the value is
//! not a record, and no call changes it.

use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Failure, Fingerprint, Key, Store, StoreError, StoredResult,
};

/// A value under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A list.
    List,
}

/// Replaces the record of a claim by each of these values, and calls the store. Returns what is wrong. `get` and `put`
/// read and replace the value of a key.
///
/// # Panics
/// If a key without a value cannot be acquired.
pub async fn call_with_other_values(
    store: &impl Store,
    get: impl AsyncFn(&Key) -> Option<Value>,
    put: impl AsyncFn(&Key, &Value),
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, (what, value_of)) in NOT_RECORDS.iter().enumerate() {
        let key = Key::new(&format!("other-value-{number}")).expect("this text is a key");
        let (request, other) = (request(&key), request(&key));
        let claim = match store.acquire(request.clone()).await {
            Ok(Acquire::Acquired(claim)) => claim,
            other => panic!("{key:?} was not acquired: {other:?}"),
        };
        let Some(Value::String(record)) = get(&key).await else { panic!("{key:?} has no record") };
        let value = value_of(&record);
        put(&key, &value).await;
        let calls = [
            ("acquire by another owner", store.acquire(other.clone()).await.map(drop)),
            ("acquire by the owner", store.acquire(request.clone()).await.map(drop)),
            ("complete", store.complete(&claim, StoredResult::Inline(b"done")).await.map(drop)),
            ("fail", store.fail(&claim, Failure { uncertain: true, permanent: true }).await.map(drop)),
            ("release", store.release(&request, Some(&claim)).await.map(drop)),
            ("release without a claim", store.release(&other, None).await.map(drop)),
        ];
        for (call, answer) in calls {
            if !matches!(answer, Err(StoreError::NotARecord(_))) {
                wrong.push(format!("{what}: {call}: {answer:?}"));
            }
        }
        let after = get(&key).await;
        if after.as_ref() != Some(&value) {
            wrong.push(format!("{what}: the value was changed: {value:?} to {after:?}"));
        }
    }
    wrong
}

fn request(key: &Key) -> AcquireRequest {
    let mut request = AcquireRequest::new(key.clone());
    request.fingerprint = Fingerprint::of(b"payload");
    request.lease = Duration::from_secs(60);
    request
}

type FromRecord = fn(&[u8]) -> Value;

/// Values that are not records, made from the record of a claim: `lua/acquire.lua` has its layout.
const NOT_RECORDS: [(&str, FromRecord); 12] = [
    ("a text", |_| Value::String(b"in use".to_vec())),
    ("an empty text", |_| Value::String(Vec::new())),
    ("a list", |_| Value::List),
    ("a claim in a later format", |record| changed(record, *b"P\x02")),
    ("a completed record in a later format", |record| changed(record, *b"C\x02")),
    ("a failed record in a later format", |record| changed(record, *b"F\x02")),
    ("another state", |record| changed(record, *b"X\x01")),
    ("a shorter claim", |record| changed(&record[..51], *b"P\x01")),
    ("a longer claim", |record| changed(&[record, b"x"].concat(), *b"P\x01")),
    ("a shorter failed record", |record| changed(&record[..51], *b"F\x01")),
    ("a longer failed record", |record| changed(&[record, b"x"].concat(), *b"F\x01")),
    ("a completed record without its whole fingerprint", |record| changed(&record[..35], *b"C\x01")),
];

/// A record with another state and format.
fn changed(record: &[u8], head: [u8; 2]) -> Value {
    Value::String([&head, &record[2..]].concat())
}
