//! A store that records its calls.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Key, Settled, Store, StoreError, StoredResult,
};

use crate::clocks::{monotonic_us, unix_us};
use crate::event::{Answer, Call, Event};

/// A [`Store`] that passes its calls on to another store, and appends each call and its answer to a file.
///
/// A call is in the file before it is made. A call whose future is dropped, or whose process is killed, has no answer
/// in the file. Each event is one write, so a process that is killed leaves whole lines.
#[derive(Debug)]
pub struct RecordedStore<S> {
    store: S,
    file: File,
    process: String,
    calls: AtomicU64,
}

impl<S> RecordedStore<S> {
    /// Records the calls of `store` in a new file in this directory.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn new(store: S, directory: &Path) -> io::Result<Self> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let (monotonic_us, unix_us) = (monotonic_us(), unix_us());
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let process = format!("{}-{monotonic_us}-{number}", process::id());
        let file = OpenOptions::new().append(true).create_new(true).open(directory.join(format!("{process}.jsonl")))?;
        write(&file, &Event::Clocks { monotonic_us, unix_us })?;
        Ok(Self { store, file, process, calls: AtomicU64::new(0) })
    }

    /// The process in its [operations](crate::Operation::process): the name of its file.
    #[must_use]
    pub fn process(&self) -> &str {
        &self.process
    }

    async fn record<T>(
        &self,
        call: Call,
        made: impl Future<Output = Result<T, StoreError>>,
        known: impl Fn(&T) -> Answer,
    ) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.write(&Event::Invoked { at_us: monotonic_us(), number, call });
        let reply = made.await;
        let at_us = monotonic_us();
        let answer = reply.as_ref().map_or_else(of_error, known);
        self.write(&Event::Returned { at_us, number, answer });
        reply
    }

    fn write(&self, event: &Event) {
        write(&self.file, event).expect("an incomplete history proves nothing");
    }
}

fn write(mut file: &File, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    file.write_all(&line)
}

fn of_error(error: &StoreError) -> Answer {
    match error {
        StoreError::Unreachable(_) => Answer::NotExecuted,
        StoreError::NotARecord(_) => Answer::NotARecord,
        // A new kind of error may be anything.
        _ => Answer::Unknown,
    }
}

fn of_acquire(acquire: &Acquire) -> Answer {
    match acquire {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
            Answer::Acquired { fence: claim.fence().0, attempt: claim.attempt(), recovery: claim.is_recovery() }
        }
        Acquire::Duplicate { fence, attempts, result } => {
            Answer::Duplicate { fence: fence.0, attempts: *attempts, result: result.as_deref().into() }
        }
        Acquire::Conflict { lease_remains } => {
            let remains_ms = u64::try_from(lease_remains.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            Answer::Conflict { remains_ms }
        }
        Acquire::Mismatch => Answer::Mismatch,
        Acquire::Failed => Answer::Failed,
    }
}

fn of_settlement(settled: Settled) -> Answer {
    match settled {
        Settled::Recorded => Answer::Recorded,
        Settled::Lost(state) => Answer::Lost(state.into()),
    }
}

impl<S: Store> Store for RecordedStore<S> {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let call = Call::Acquire { request: (&request).into() };
        self.record(call, self.store.acquire(request), of_acquire).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let call = Call::Complete { claim: claim.into(), result: result.into() };
        self.record(call, self.store.complete(claim, result), |settled| of_settlement(*settled)).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        let Failure { uncertain, permanent } = failure;
        let call = Call::Fail { claim: claim.into(), uncertain, permanent };
        self.record(call, self.store.fail(claim, failure), |settled| of_settlement(*settled)).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        let call = Call::Release { request: request.into(), claim: claim.map(Into::into) };
        self.record(call, self.store.release(request, claim), |settled| of_settlement(*settled)).await
    }

    fn part(&self, key: &Key) -> usize {
        self.store.part(key)
    }
}
