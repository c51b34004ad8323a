//! The expected answers and records, from the pure functions of `protocol`.

use super::scripts::bytes;
use super::*;

/// The expected records, and the claims that were granted.
pub(super) struct Expectation {
    pub(super) now_us: u64,
    pub(super) max_attempts: u8,
    pub(super) failed_retention_ms: u64,
    pub(super) records: HashMap<u8, Record>,
    /// By key and owner, in order.
    pub(super) claims: HashMap<(u8, u8), Vec<Granted>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) ask: Ask,
    pub(super) fence: Fence,
    pub(super) attempt: u8,
    pub(super) recovery: bool,
}

/// What an operator sees of a record: its state, its failure, and its fence.
pub(super) type Seen = (u8, Failure, Fence);

fn seen_of(record: &Record) -> Seen {
    let (letter, failure) = match record.state {
        RecordState::Processing { .. } => (b'P', Failure::default()),
        RecordState::Completed { .. } => (b'C', Failure::default()),
        RecordState::Failed(failure) => (b'F', failure),
    };
    (letter, failure, record.fence)
}

/// A claim that was never granted, with a fence below all others.
pub(super) fn unknown_claim(settle: Settle) -> Granted {
    let ask = Ask { key: settle.key, owner: settle.owner, message: 0, fingerprint: 1, lease_ms: 0, longest_ms: 0 };
    Granted { ask, fence: Fence(7), attempt: 1, recovery: false }
}

pub(super) fn result(how: u8) -> StoredResult<Vec<u8>> {
    let place = StoredResult::Object(b"s3://results/pay_7/7".to_vec());
    [StoredResult::NotKept, StoredResult::Inline(vec![]), place, StoredResult::Inline(vec![0, b' ', 255, b'\n'])]
        [usize::from(how)]
    .clone()
}

pub(super) fn failure(how: u8) -> Failure {
    Failure { uncertain: how & 1 != 0, permanent: how & 2 != 0 }
}

impl Expectation {
    pub(super) fn new(sequence: &Sequence) -> Self {
        let (records, claims) = (HashMap::new(), HashMap::new());
        let Sequence { max_attempts, failed_retention_ms, .. } = *sequence;
        Self { now_us: START_US, max_attempts, failed_retention_ms, records, claims }
    }

    pub(super) fn pass(&mut self, us: i64) {
        self.now_us = self.now_us.saturating_add_signed(us);
    }

    /// Removes and returns the keys whose retention has ended.
    pub(super) fn expired(&mut self) -> Vec<u8> {
        let mut over: Vec<u8> =
            self.records.iter().filter(|(_, r)| r.expires_ms <= self.now_us / 1000).map(|(k, _)| *k).collect();
        over.sort_unstable();
        self.records.retain(|key, _| !over.contains(key));
        over
    }

    pub(super) fn attempt(&self, ask: Ask) -> AcquireRequest {
        with!(
            AcquireRequest::new(Key::new(&ask.key.to_string()).unwrap()),
            owner = Owner::from_bytes([b'o', 0, 255, 1, 2, 3, 4, ask.owner]),
            fingerprint = Fingerprint::from_bytes([ask.fingerprint; 16]),
            message = MessageIdHash::of(&ask.message.to_string()),
            lease = Duration::from_millis(ask.lease_ms),
            longest_lease = Duration::from_millis(ask.longest_ms),
            retention = Duration::from_millis(RETENTION_MS),
            max_attempts = self.max_attempts,
            failed_retention = Duration::from_millis(self.failed_retention_ms),
        )
    }

    pub(super) fn step<T>(&mut self, key: u8, step: impl FnOnce(Option<&Record>, u64) -> (T, Option<Record>)) -> T {
        let (answer, changed) = step(self.records.get(&key), self.now_us);
        if let Some(record) = changed {
            self.records.insert(key, record);
        }
        answer
    }

    pub(super) fn acquire(&mut self, ask: Ask) -> AcquireAnswer {
        let attempt = self.attempt(ask);
        let (answer, is_new) = self.step(ask.key, |record, now| {
            let (answer, changed) = protocol::acquire(record, &attempt, now);
            ((answer, changed.is_some()), changed)
        });
        if let (AcquireAnswer::Acquired { fence, attempts: attempt, recovery }, true) = (&answer, is_new) {
            let granted = Granted { ask, fence: *fence, attempt: *attempt, recovery: *recovery };
            self.claims.entry((ask.key, ask.owner)).or_default().push(granted);
        }
        answer
    }

    pub(super) fn granted(&self, ask: Ask) -> usize {
        self.claims.get(&(ask.key, ask.owner)).map_or(0, Vec::len)
    }

    /// The index of the claim that is settled, and the claim.
    pub(super) fn claim(&self, settle: Settle) -> (Option<usize>, Granted) {
        let Some(granted) = self.claims.get(&(settle.key, settle.owner)) else { return (None, unknown_claim(settle)) };
        let at = if settle.by_first { 0 } else { granted.len() - 1 };
        (Some(at), granted[at])
    }

    pub(super) fn complete(&mut self, settle: Settle) -> Settled {
        let (_, Granted { ask, fence, attempt: number, .. }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::SettleRequest { request: &attempt, fence, number };
        self.step(settle.key, |record, now| protocol::complete(record, claim, result(settle.how), now))
    }

    pub(super) fn fail(&mut self, settle: Settle) -> Settled {
        let (_, Granted { ask, fence, attempt: number, .. }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::SettleRequest { request: &attempt, fence, number };
        self.step(settle.key, |record, now| protocol::fail(record, claim, failure(settle.how), now))
    }

    pub(super) fn release(&mut self, settle: Settle) -> Settled {
        let (at, Granted { ask, fence, attempt: number, recovery }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::SettleRequest { request: &attempt, fence, number };
        let in_doubt = Some(claim).filter(|_| at.is_some() && recovery);
        self.step(settle.key, |record, now| protocol::release(record, &attempt, in_doubt, now))
    }

    /// What the operator has seen.
    pub(super) fn seen(&self, forget: Forget) -> Seen {
        let Some(record) = self.records.get(&forget.key) else { return (b'P', Failure::default(), Fence(7)) };
        let (letter, failure, fence) = seen_of(record);
        match forget.changed {
            None => (letter, failure, fence),
            Some(Changed::State) => (if letter == b'F' { b'C' } else { b'F' }, failure, fence),
            Some(Changed::Marks) => (letter, Failure { uncertain: !failure.uncertain, ..failure }, fence),
            Some(Changed::Fence) => (letter, failure, Fence(fence.0 - 1)),
        }
    }

    /// The reply of the script.
    pub(super) fn forget(&mut self, forget: Forget) -> Vec<u8> {
        let Some(record) = self.records.get(&forget.key) else { return b"ABSENT".to_vec() };
        if seen_of(record) != self.seen(forget) {
            return [b"CHANGED ", &bytes(record)[..12]].concat();
        }
        if let RecordState::Processing { lease_end_ms, .. } = record.state
            && lease_end_ms * 1000 > self.now_us
            && !forget.force
        {
            return format!("HELD {}", (lease_end_ms * 1000 - self.now_us).div_ceil(1000)).into();
        }
        self.records.remove(&forget.key);
        b"FORGOTTEN".to_vec()
    }

    /// The argument of release: the record to restore if it was lost.
    pub(super) fn released(&self, settle: Settle) -> Record {
        let (_, granted) = self.claim(settle);
        let state = RecordState::Failed(Failure { uncertain: granted.recovery, permanent: false });
        Record { attempts: granted.attempt.saturating_sub(1), ..self.settled(settle, state) }
    }

    /// The argument of complete and fail: the settled record.
    pub(super) fn settled(&self, settle: Settle, state: RecordState) -> Record {
        let (_, Granted { ask, fence, attempt: attempts, .. }) = self.claim(settle);
        let AcquireRequest { owner, fingerprint, message, .. } = self.attempt(ask);
        Record { owner, fingerprint, message, fence, attempts, state, expires_ms: 0 }
    }
}
