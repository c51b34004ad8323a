//! The scripts in `lua/`, rule by rule, as functions of one record.

/// What keeps the protocol right. A test takes one away at a time, and has to see what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// complete: only the owner of the record.
    OwnerInComplete,
    /// fail: only the owner of the record.
    OwnerInFail,
    /// acquire: a fence is above the stored one.
    FenceAboveStored,
    /// acquire: a fence is no lower than the clock.
    FenceFromClock,
    /// complete: an absent record is written again.
    HealInComplete,
    /// fail: an absent record is written again.
    HealInFail,
    /// acquire: another payload is a mismatch.
    Fingerprint,
    /// complete: a failure of another payload stays.
    FingerprintInComplete,
    /// release: only the owner of the record.
    OwnerInRelease,
    /// release: what earlier attempts may have done stays in doubt.
    DoubtInRelease,
    /// release: the attempt is not counted.
    UncountedInRelease,
    /// acquire: a live lease is a conflict.
    Lease,
    /// acquire: an ended lease is none.
    LeaseEnds,
    /// acquire: the same owner hears the same again.
    SameOwner,
    /// acquire: an owner that has failed does not come back.
    SettledOwner,
    /// acquire: completed is a duplicate.
    CompletedStays,
    /// acquire: a permanent failure holds for its message.
    Permanent,
    /// acquire: a lease that ended makes its successor a recovery.
    TakeoverIsRecovery,
    /// The core: a recovery that fails is still uncertain, whatever its own run says.
    RecoveryStays,
    /// The core: a settlement that got no answer is not acknowledged.
    UnknownIsNoSuccess,
    /// The core: of lost claims only those are acknowledged whose record is completed.
    LostIsNoSuccess,
    /// The core: what was lost to a completion is acknowledged where its own work is done.
    LostAfterFailure,
    /// The core: a conflict waits for the end of the lease that it met.
    ConflictWaits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Processing,
    Completed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) state: State,
    /// In Processing: the run is a recovery.
    pub(super) uncertain: bool,
    pub(super) permanent: bool,
    pub(super) attempts: u8,
    pub(super) fence: u8,
    pub(super) owner: u8,
    pub(super) payload: u8,
    pub(super) message: u8,
}

/// Who asks: the attempt's number is its owner's token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) owner: u8,
    pub(super) payload: u8,
    pub(super) message: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) fence: u8,
    pub(super) number: u8,
    pub(super) recovery: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Failure {
    pub(super) uncertain: bool,
    pub(super) permanent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Acquired(Claim),
    Duplicate,
    /// With the lease of this fence.
    Conflict(u8),
    Mismatch,
    Failed,
    Recorded,
    /// What the record is now; `None` where there is none, which no script says while it heals.
    Lost(Option<State>),
}

/// The scripts, but for the guard that was taken away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scripts {
    pub(super) without: Option<Guard>,
    pub(super) max_attempts: u8,
}

impl Scripts {
    pub(super) fn has(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// The answer, and the record where it is written.
    pub(super) fn acquire(
        self,
        record: Option<Record>,
        by: Asker,
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

    pub(super) fn complete(self, record: Option<Record>, by: Asker, claim: Claim) -> (Answer, Option<Record>) {
        let completed = settled(State::Completed, CLEAN, by, claim);
        let Some(record) = record else { return self.heal(completed, Guard::HealInComplete) };
        let owns = record.owner == by.owner;
        let same_payload = record.payload == by.payload || !self.has(Guard::FingerprintInComplete);
        match record.state {
            State::Completed if owns => (Answer::Recorded, None),
            State::Processing if owns || !self.has(Guard::OwnerInComplete) => (Answer::Recorded, Some(completed)),
            State::Failed if same_payload => {
                (Answer::Recorded, Some(Record { fence: claim.fence.max(record.fence), ..completed }))
            }
            State::Processing | State::Completed | State::Failed => (Answer::Lost(Some(record.state)), None),
        }
    }

    pub(super) fn fail(
        self,
        record: Option<Record>,
        by: Asker,
        claim: Claim,
        failure: Failure,
    ) -> (Answer, Option<Record>) {
        let failed = settled(State::Failed, failure, by, claim);
        let Some(record) = record else { return self.heal(failed, Guard::HealInFail) };
        let owns = record.owner == by.owner;
        let late_doubt = failure.uncertain && !record.uncertain && record.payload == by.payload;
        match record.state {
            State::Failed if owns => (Answer::Recorded, None),
            State::Processing if owns || !self.has(Guard::OwnerInFail) => (Answer::Recorded, Some(failed)),
            State::Failed if late_doubt => {
                (Answer::Lost(Some(State::Failed)), Some(Record { uncertain: true, ..record }))
            }
            State::Processing | State::Completed | State::Failed => (Answer::Lost(Some(record.state)), None),
        }
    }

    pub(super) fn release(self, record: Option<Record>, by: Asker, claim: Option<Claim>) -> (Answer, Option<Record>) {
        let Some(record) = record else {
            let in_doubt = claim.filter(|claim| claim.recovery);
            let uncertain = Failure { uncertain: true, permanent: false };
            let uncounted = in_doubt.map(|claim| Claim { number: claim.number - 1, ..claim });
            return (Answer::Recorded, uncounted.map(|claim| settled(State::Failed, uncertain, by, claim)));
        };
        let owns = record.owner == by.owner || !self.has(Guard::OwnerInRelease);
        match record.state {
            State::Failed if owns => (Answer::Recorded, None),
            State::Processing if owns => {
                let counted = u8::from(self.has(Guard::UncountedInRelease));
                let released = Record {
                    state: State::Failed,
                    uncertain: record.uncertain && self.has(Guard::DoubtInRelease),
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

    fn heal(self, settled: Record, heal: Guard) -> (Answer, Option<Record>) {
        if self.has(heal) { (Answer::Recorded, Some(settled)) } else { (Answer::Lost(None), None) }
    }
}

const CLEAN: Failure = Failure { uncertain: false, permanent: false };

fn claimed(record: Record) -> Answer {
    let Record { fence, attempts: number, uncertain: recovery, .. } = record;
    Answer::Acquired(Claim { fence, number, recovery })
}

fn settled(state: State, failure: Failure, by: Asker, claim: Claim) -> Record {
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
