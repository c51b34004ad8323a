//! The scripts in `lua/` as functions of one record. Each rule can be disabled.
//!
//! The model of the protocol (`tests/core/model.rs`) checks them in every schedule of its faults, and the history
//! checker (`tests/history`) replays the steps of real processes through them.

#![allow(missing_docs, reason = "used only by the tests of this workspace")]
#![allow(clippy::must_use_candidate, reason = "as above")]

/// The rules of the protocol. Each test disables one, and must find the violation that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// complete: only by the owner of the record.
    OwnerInComplete,
    /// fail: only by the owner of the record.
    OwnerInFail,
    /// acquire: a fence is higher than the stored one.
    FenceAboveStored,
    /// acquire: a fence is at least the clock.
    FenceFromClock,
    /// complete: restores an absent record.
    RestoreInComplete,
    /// fail: restores an absent record.
    RestoreInFail,
    /// acquire: another payload is a mismatch.
    Fingerprint,
    /// complete: does not replace a failure of another payload.
    FingerprintInComplete,
    /// release: only by the owner of the record.
    OwnerInRelease,
    /// release: keeps the uncertainty of earlier attempts.
    UncertaintyInRelease,
    /// release: uncounts the attempt.
    UncountedInRelease,
    /// acquire: a live lease is a conflict.
    Lease,
    /// acquire: an ended lease is no conflict.
    LeaseEnds,
    /// acquire: the same owner gets the same answer.
    SameOwner,
    /// acquire: an owner that failed cannot acquire again.
    SettledOwner,
    /// acquire: completed is a duplicate.
    CompletedStays,
    /// acquire: a permanent failure applies to its message.
    Permanent,
    /// acquire: an attempt after an ended lease is a recovery.
    TakeoverIsRecovery,
    /// The core: a recovery that fails is uncertain.
    RecoveryStays,
    /// The core: a settlement without a reply is not acknowledged.
    UnknownIsNoSuccess,
    /// The core: a claim that was lost is acknowledged only if its own work is done.
    LostAfterFailure,
    /// The core: a conflict waits for the end of the other lease.
    ConflictWaits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Processing,
    Completed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub state: State,
    /// In `Processing`: whether the run is a recovery.
    pub uncertain: bool,
    pub permanent: bool,
    pub attempts: u8,
    pub fence: u8,
    pub owner: u8,
    pub payload: u8,
    pub message: u8,
}

/// The caller of a script. The number of the attempt is its owner token.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub owner: u8,
    pub payload: u8,
    pub message: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub fence: u8,
    pub number: u8,
    pub recovery: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub uncertain: bool,
    pub permanent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Acquired(Claim),
    Duplicate,
    /// With the owner of this fence.
    Conflict(u8),
    Mismatch,
    Failed,
    Recorded,
    /// The state of the record; `None` if there is none, which no script returns unless restoring is disabled.
    Lost(Option<State>),
}

/// The scripts without one rule.
#[derive(Clone, Copy, Debug)]
pub struct Scripts {
    pub without: Option<Guard>,
    pub max_attempts: u8,
}

impl Scripts {
    pub fn has(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// Returns the answer, and the record if it is written.
    pub fn acquire(
        self,
        record: Option<Record>,
        by: Caller,
        now: u8,
        lease_ended: impl Fn(u8) -> bool,
    ) -> (Answer, Option<Record>) {
        let (mut attempts, mut fence, mut recovery) = (0, 0, false);
        if let Some(record) = record {
            let processing = record.state == State::Processing;
            let same_payload = record.payload == by.payload || !self.has(Guard::Fingerprint);
            if record.state == State::Completed && !same_payload {
                return (Answer::Mismatch, None);
            }
            if record.state == State::Completed && self.has(Guard::CompletedStays) {
                return (Answer::Duplicate, None);
            }
            if processing {
                if record.owner == by.owner && self.has(Guard::SameOwner) {
                    return (claimed(record), None);
                }
                let ended = lease_ended(record.fence) && self.has(Guard::LeaseEnds);
                if !ended && self.has(Guard::Lease) {
                    return (Answer::Conflict(record.fence), None);
                }
            }
            if !same_payload && (processing || record.uncertain) {
                return (Answer::Mismatch, None);
            }
            if !processing && record.owner == by.owner && self.has(Guard::SettledOwner) {
                return (Answer::Failed, None);
            }
            let used_up = record.permanent || record.attempts >= self.max_attempts;
            if used_up && record.message == by.message && self.has(Guard::Permanent) {
                return (Answer::Failed, None);
            }
            attempts = if record.attempts < self.max_attempts { record.attempts } else { 0 };
            fence = record.fence;
            recovery = record.uncertain || processing && self.has(Guard::TakeoverIsRecovery);
        }
        let above_stored = if self.has(Guard::FenceAboveStored) { fence + 1 } else { 0 };
        let from_clock = if self.has(Guard::FenceFromClock) { now } else { 0 };
        let record = Record {
            state: State::Processing,
            uncertain: recovery,
            permanent: false,
            attempts: attempts + 1,
            fence: above_stored.max(from_clock),
            owner: by.owner,
            payload: by.payload,
            message: by.message,
        };
        (claimed(record), Some(record))
    }

    pub fn complete(self, record: Option<Record>, by: Caller, claim: Claim) -> (Answer, Option<Record>) {
        let completed = settled(State::Completed, CLEAN, by, claim);
        let Some(record) = record else { return self.restore(completed, Guard::RestoreInComplete) };
        let owns = record.owner == by.owner;
        let same_payload = record.payload == by.payload || !self.has(Guard::FingerprintInComplete);
        let completed = Record { fence: claim.fence.max(record.fence), ..completed };
        match record.state {
            State::Completed if owns => (Answer::Recorded, None),
            State::Processing if owns || !self.has(Guard::OwnerInComplete) => (Answer::Recorded, Some(completed)),
            State::Failed if same_payload => (Answer::Recorded, Some(completed)),
            State::Processing | State::Completed | State::Failed => (Answer::Lost(Some(record.state)), None),
        }
    }

    pub fn fail(self, record: Option<Record>, by: Caller, claim: Claim, failure: Failure) -> (Answer, Option<Record>) {
        let failed = settled(State::Failed, failure, by, claim);
        let Some(record) = record else { return self.restore(failed, Guard::RestoreInFail) };
        let owns = record.owner == by.owner;
        let late_uncertainty = failure.uncertain && !record.uncertain && record.payload == by.payload;
        match record.state {
            State::Failed if owns => (Answer::Recorded, None),
            State::Processing if owns || !self.has(Guard::OwnerInFail) => {
                (Answer::Recorded, Some(Record { fence: claim.fence.max(record.fence), ..failed }))
            }
            State::Failed if late_uncertainty => {
                (Answer::Lost(Some(State::Failed)), Some(Record { uncertain: true, ..record }))
            }
            State::Processing | State::Completed | State::Failed => (Answer::Lost(Some(record.state)), None),
        }
    }

    pub fn release(self, record: Option<Record>, by: Caller, claim: Option<Claim>) -> (Answer, Option<Record>) {
        let Some(record) = record else {
            let recovery = claim.filter(|claim| claim.recovery);
            let uncertain = Failure { uncertain: true, permanent: false };
            let uncounted = recovery.map(|claim| Claim { number: claim.number - 1, ..claim });
            return (Answer::Recorded, uncounted.map(|claim| settled(State::Failed, uncertain, by, claim)));
        };
        let owns = record.owner == by.owner || !self.has(Guard::OwnerInRelease);
        match record.state {
            State::Failed if owns => (Answer::Recorded, None),
            State::Processing if owns => {
                let counted = u8::from(self.has(Guard::UncountedInRelease));
                let released = Record {
                    state: State::Failed,
                    uncertain: record.uncertain && self.has(Guard::UncertaintyInRelease),
                    attempts: record.attempts.saturating_sub(counted),
                    ..record
                };
                (Answer::Recorded, Some(released))
            }
            State::Failed if !record.uncertain && record.payload == by.payload && claim.is_some_and(|c| c.recovery) => {
                (Answer::Lost(Some(State::Failed)), Some(Record { uncertain: true, ..record }))
            }
            State::Processing | State::Completed | State::Failed => (Answer::Lost(Some(record.state)), None),
        }
    }

    fn restore(self, settled: Record, guard: Guard) -> (Answer, Option<Record>) {
        if self.has(guard) { (Answer::Recorded, Some(settled)) } else { (Answer::Lost(None), None) }
    }
}

const CLEAN: Failure = Failure { uncertain: false, permanent: false };

fn claimed(record: Record) -> Answer {
    let Record { fence, attempts: number, uncertain: recovery, .. } = record;
    Answer::Acquired(Claim { fence, number, recovery })
}

fn settled(state: State, failure: Failure, by: Caller, claim: Claim) -> Record {
    Record {
        state,
        uncertain: failure.uncertain,
        permanent: failure.permanent,
        attempts: claim.number,
        fence: claim.fence,
        owner: by.owner,
        payload: by.payload,
        message: by.message,
    }
}
