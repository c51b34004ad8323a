//! A store of the state machine in Rust that violates the contract in one way.

use std::collections::HashMap;
use std::sync::Mutex;

use idempotent_sqs::idempotency::protocol::{self, AcquireAnswer, Record, RecordState, SettleRequest};
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Fence, Settled, State, Store, StoreError, StoredResult,
};
use tokio::task::yield_now;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    Acquire,
    Complete,
    Fail,
    Release,
}

/// A call, with the record that it finds.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) record: Option<Record>,
    pub(super) request: AcquireRequest,
    /// Of the claim.
    pub(super) fence: Fence,
    pub(super) number: u8,
    pub(super) recovery: bool,
    /// Release: whether there is one.
    pub(super) has_claim: bool,
    pub(super) failure: Failure,
    pub(super) result: StoredResult<Vec<u8>>,
    /// In µs since 1970.
    pub(super) now: u64,
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Acquire(AcquireAnswer),
    Settled(Settled),
}

/// The answer to a call, and the record if it changes.
pub(super) type Step = (Answer, Option<Record>);

/// A claim, in the answer and in the record.
pub(super) struct Claimed {
    pub(super) fence: Fence,
    pub(super) number: u8,
    pub(super) recovery: bool,
}

/// What a store does wrong.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// It executes another call.
    As(fn(&mut Call)),
    /// It has another step.
    Step(fn(&Call) -> Step),
    /// It writes another record, or changes one that it should not.
    Write(fn(&Call, &mut Record)),
    /// It grants another claim.
    Claim(fn(&Call, &mut Claimed)),
    /// It keeps the record of a key under this name.
    Name(fn(&str) -> String),
    /// It executes other calls between its read and its write.
    Race,
}

/// A fault of a method, in the calls for which this is true. It gets the answer of a store without a fault.
#[derive(Clone, Copy)]
pub(super) struct Violation {
    pub(super) what: &'static str,
    pub(super) op: Op,
    pub(super) when: fn(&Call, &Answer) -> bool,
    pub(super) fault: Fault,
}

impl Call {
    fn of(op: Op, request: &AcquireRequest, claim: Option<&Claim>) -> Self {
        Self {
            op,
            record: None,
            request: request.clone(),
            fence: claim.map_or(Fence(0), Claim::fence),
            number: claim.map_or(0, Claim::attempt),
            recovery: claim.is_some_and(Claim::is_recovery),
            has_claim: claim.is_some(),
            failure: Failure::default(),
            result: StoredResult::NotKept,
            now: 0,
        }
    }

    /// The step of a store without a fault.
    pub(super) fn step(&self) -> Step {
        let (record, claim) = (self.record.as_ref(), self.claim());
        let (settled, changed) = match self.op {
            Op::Acquire => {
                let (answer, changed) = protocol::acquire(record, &self.request, self.now);
                return (Answer::Acquire(answer), changed);
            }
            Op::Complete => protocol::complete(record, claim, self.result.clone(), self.now),
            Op::Fail => protocol::fail(record, claim, self.failure, self.now),
            Op::Release => protocol::release(record, &self.request, self.recovery.then_some(claim), self.now),
        };
        (Answer::Settled(settled), changed)
    }

    pub(super) fn claim(&self) -> SettleRequest<'_> {
        SettleRequest { request: &self.request, fence: self.fence, number: self.number }
    }

    pub(super) fn state(&self) -> Option<State> {
        self.record.as_ref().map(|record| record.state.name())
    }

    /// Whether the caller owns the record.
    pub(super) fn owns(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.owner == self.request.owner)
    }

    /// When a record of this call expires, ms since 1970.
    pub(super) fn expiry(&self) -> u64 {
        self.now / 1000 + u64::try_from(self.request.retention.as_millis()).unwrap_or(u64::MAX / 2)
    }

    fn step_with(&self, violation: Option<Violation>) -> Step {
        let (mut answer, mut changed) = self.step();
        let Some(Violation { fault, .. }) =
            violation.filter(|violation| violation.op == self.op && (violation.when)(self, &answer))
        else {
            return (answer, changed);
        };
        match fault {
            Fault::As(change) => {
                let mut other = self.clone();
                change(&mut other);
                return other.step();
            }
            Fault::Step(step) => return step(self),
            Fault::Write(change) => {
                changed = changed.or_else(|| self.record.clone());
                if let Some(record) = &mut changed {
                    change(self, record);
                }
            }
            Fault::Claim(change) => {
                changed = changed.or_else(|| self.record.clone());
                grant(self, change, &mut answer, changed.as_mut());
            }
            Fault::Name(_) | Fault::Race => {}
        }
        (answer, changed)
    }
}

fn grant(call: &Call, change: fn(&Call, &mut Claimed), answer: &mut Answer, record: Option<&mut Record>) {
    let (Answer::Acquire(AcquireAnswer::Acquired { fence, attempts, recovery }), Some(record)) = (answer, record)
    else {
        panic!("no claim");
    };
    let mut claimed = Claimed { fence: *fence, number: *attempts, recovery: *recovery };
    change(call, &mut claimed);
    (*fence, *attempts, *recovery) = (claimed.fence, claimed.number, claimed.recovery);
    (record.fence, record.attempts) = (claimed.fence, claimed.number);
    if let RecordState::Processing { recovery, .. } = &mut record.state {
        *recovery = claimed.recovery;
    }
}

/// The store, which uses tokio's clock.
pub(super) struct Faulty {
    violation: Option<Violation>,
    created: Instant,
    records: Mutex<HashMap<String, Record>>,
}

/// The clock of a store when it is created, in µs since 1970.
const CREATED_US: u64 = 1_795_080_483_000_000;

impl Faulty {
    pub(super) fn new(violation: Option<Violation>) -> Self {
        Self { violation, created: Instant::now(), records: Mutex::default() }
    }

    async fn execute(&self, mut call: Call) -> Answer {
        let key = &call.request.key;
        let (is_of_op, fault) =
            (self.violation.map(|violation| violation.op == call.op), self.violation.map(|v| v.fault));
        let name = if let Some(Fault::Name(name)) = fault { name(key.as_str()) } else { key.stored().into_owned() };
        call.now = CREATED_US + u64::try_from(self.created.elapsed().as_micros()).unwrap();
        let record = self.records.lock().unwrap().get(&name).cloned();
        call.record = record.filter(|record| record.expires_ms > call.now / 1000);
        if let (Some(true), Some(Fault::Race)) = (is_of_op, fault) {
            yield_now().await;
        }
        let (answer, changed) = call.step_with(self.violation);
        if let Some(record) = changed {
            self.records.lock().unwrap().insert(name, record);
        }
        answer
    }

    async fn settle(&self, call: Call) -> Result<Settled, StoreError> {
        match self.execute(call).await {
            Answer::Settled(settled) => Ok(settled),
            Answer::Acquire(answer) => panic!("{answer:?}"),
        }
    }
}

impl Store for Faulty {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        let Answer::Acquire(answer) = self.execute(Call::of(Op::Acquire, &request, None)).await else {
            panic!("a settlement");
        };
        Ok(match answer {
            AcquireAnswer::Acquired { fence, attempts, recovery } => {
                Acquire::claimed(request, fence, attempts, recovery)
            }
            AcquireAnswer::Duplicate { fence, attempts, result } => Acquire::Duplicate { fence, attempts, result },
            AcquireAnswer::Conflict { remains } => Acquire::Conflict { lease_remains: remains },
            AcquireAnswer::Mismatch => Acquire::Mismatch,
            AcquireAnswer::Failed => Acquire::Failed,
        })
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        let call = Call::of(Op::Complete, claim.request(), Some(claim));
        self.settle(Call { result: result.into_owned(), ..call }).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.settle(Call { failure, ..Call::of(Op::Fail, claim.request(), Some(claim)) }).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.settle(Call::of(Op::Release, request, claim)).await
    }
}
