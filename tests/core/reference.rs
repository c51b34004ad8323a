//! The scripts against the state machine in Rust: random sequences of calls, and every answer and every record
//! compared with what `protocol` says. The store in memory runs that state machine, and is compared too.
//!
//! `REFERENCE_SEED` repeats a run from the seed that a failure printed; `REFERENCE_SEQUENCES` makes
//! it longer. What fails is made as short as it can be before it is shown.

use std::collections::HashMap;
use std::time::Duration;

use idempotent_sqs::idempotency::protocol::{self, Answer, Record, State};
use idempotent_sqs::idempotency::{
    Acquire, Attempt, Claim, Failure, Fence, Fingerprint, Key, MessageTag, Owner, Settled, Store, StoredResult,
};
use idempotent_sqs::stores::MemoryStore;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use redis::Value;
use redis::aio::MultiplexedConnection;

use harness::redis::Redis;
use harness::with;

const ACQUIRE: &str = include_str!("../../lua/acquire.lua");
const COMPLETE: &str = include_str!("../../lua/complete.lua");
const FAIL: &str = include_str!("../../lua/fail.lua");
const RELEASE: &str = include_str!("../../lua/release.lua");

/// Sequences that share a round trip, and a seed.
const BATCH: u64 = 100;

const RETENTION_MS: u64 = 3_600_000;
/// Far in the future, so that the server never takes a record's life to be over.
const START_US: u64 = 4_000_000_000_000_000;

#[derive(Clone, Debug)]
struct Sequence {
    max_attempts: u8,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// The clock goes on by so many µs, or jumps back.
    Pass(i64),
    Evict(u8),
    Acquire(Vec<Ask>),
    Complete(Vec<Settle>),
    Fail(Vec<Settle>),
    /// By the owner's claim where it has one, and by nothing but the attempt where it has none.
    Release(Vec<Settle>),
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    key: u8,
    owner: u8,
    message: u8,
    /// 0 is none.
    fingerprint: u8,
    lease_ms: u64,
    longest_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Settle {
    key: u8,
    owner: u8,
    /// By the first claim that this owner got, and not its latest.
    by_first: bool,
    /// Which result, or which kind of failure.
    how: u8,
}

fn sequences() -> impl Strategy<Value = Sequence> {
    let (key, owner) = (0..3_u8, 0..4_u8);
    // The last is longer than the retention.
    let lease = prop_oneof![Just(0), Just(1), Just(20), Just(1000), Just(900_000), Just(4_000_000)];
    let ask = (key.clone(), owner.clone(), 0..3_u8, 0..3_u8);
    // The longest lease is shorter than some at times, as after a clock that ran ahead.
    let longest = prop_oneof![4 => Just(901_000), 1 => Just(500)];
    // Those that travel together agree on the lease.
    let asks = (vec(ask, 1..4), lease, longest).prop_map(|(asks, lease_ms, longest_ms)| {
        let ask = |(key, owner, message, fingerprint)| Ask { key, owner, message, fingerprint, lease_ms, longest_ms };
        asks.into_iter().map(ask).collect()
    });
    let acquire = asks.prop_map(Step::Acquire);
    let settle = (key.clone(), owner, prop::bool::weighted(0.2), 0..4_u8)
        .prop_map(|(key, owner, by_first, how)| Settle { key, owner, by_first, how });
    let pass = prop_oneof![
        3 => prop_oneof![Just(1), Just(999), Just(1000), Just(1001), Just(19_999), Just(20_000), Just(999_500)],
        3 => 0..2_000_000_i64,
        1 => Just(900_000_000_i64),
        1 => 3_590_000_000..3_610_000_000_i64,
        1 => -3_000_000..0_i64,
    ];
    let step = prop_oneof![
        6 => acquire,
        3 => vec(settle.clone(), 1..4).prop_map(Step::Complete),
        4 => vec(settle.clone(), 1..4).prop_map(Step::Fail),
        3 => vec(settle, 1..4).prop_map(Step::Release),
        5 => pass.prop_map(Step::Pass),
        1 => key.prop_map(Step::Evict),
    ];
    let max_attempts = prop_oneof![4 => 1..4_u8, 1 => Just(255)];
    (max_attempts, vec(step, 1..14)).prop_map(|(max_attempts, steps)| Sequence { max_attempts, steps })
}

// What is expected.

/// What each caller has been told, and each record is.
struct Expectation {
    now_us: u64,
    max_attempts: u8,
    records: HashMap<u8, Record>,
    /// By key and owner, as they were granted.
    claims: HashMap<(u8, u8), Vec<Granted>>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    ask: Ask,
    fence: Fence,
    attempt: u8,
    recovery: bool,
}

/// A claim that was never granted: older than all.
fn unknown_claim(settle: Settle) -> Granted {
    let ask = Ask { key: settle.key, owner: settle.owner, message: 0, fingerprint: 1, lease_ms: 0, longest_ms: 0 };
    Granted { ask, fence: Fence(7), attempt: 1, recovery: false }
}

fn result(how: u8) -> StoredResult<Vec<u8>> {
    let place = StoredResult::Object(b"s3://results/pay_7/7".to_vec());
    [StoredResult::NotKept, StoredResult::Inline(vec![]), place, StoredResult::Inline(vec![0, b' ', 255, b'\n'])]
        [usize::from(how)]
    .clone()
}

fn failure(how: u8) -> Failure {
    Failure { uncertain: how & 1 != 0, permanent: how & 2 != 0 }
}

impl Expectation {
    fn new(sequence: &Sequence) -> Self {
        let (records, claims) = (HashMap::new(), HashMap::new());
        Self { now_us: START_US, max_attempts: sequence.max_attempts, records, claims }
    }

    fn pass(&mut self, us: i64) {
        self.now_us = self.now_us.saturating_add_signed(us);
    }

    /// Keys whose retention is over.
    fn expired(&mut self) -> Vec<u8> {
        let mut over: Vec<u8> =
            self.records.iter().filter(|(_, r)| r.expires_ms <= self.now_us / 1000).map(|(k, _)| *k).collect();
        over.sort_unstable();
        self.records.retain(|key, _| !over.contains(key));
        over
    }

    fn attempt(&self, ask: Ask) -> Attempt {
        with!(
            Attempt::new(Key::new(&ask.key.to_string()).unwrap()),
            owner = Owner::from_bytes([b'o', 0, 255, 1, 2, 3, 4, ask.owner]),
            fingerprint = Fingerprint::from_bytes([ask.fingerprint; 16]),
            message = MessageTag::of(&ask.message.to_string()),
            lease = Duration::from_millis(ask.lease_ms),
            longest_lease = Duration::from_millis(ask.longest_ms),
            retention = Duration::from_millis(RETENTION_MS),
            max_attempts = self.max_attempts,
        )
    }

    fn step<T>(&mut self, key: u8, step: impl FnOnce(Option<&Record>, u64) -> (T, Option<Record>)) -> T {
        let (answer, changed) = step(self.records.get(&key), self.now_us);
        if let Some(record) = changed {
            self.records.insert(key, record);
        }
        answer
    }

    fn acquire(&mut self, ask: Ask) -> Answer {
        let attempt = self.attempt(ask);
        let (answer, is_new) = self.step(ask.key, |record, now| {
            let (answer, changed) = protocol::acquire(record, &attempt, now);
            ((answer, changed.is_some()), changed)
        });
        if let (Answer::Acquired { fence, attempts: attempt, recovery }, true) = (&answer, is_new) {
            let granted = Granted { ask, fence: *fence, attempt: *attempt, recovery: *recovery };
            self.claims.entry((ask.key, ask.owner)).or_default().push(granted);
        }
        answer
    }

    fn granted(&self, ask: Ask) -> usize {
        self.claims.get(&(ask.key, ask.owner)).map_or(0, Vec::len)
    }

    /// Which of the owner's claims it settles by, and that claim.
    fn claim(&self, settle: Settle) -> (Option<usize>, Granted) {
        let Some(granted) = self.claims.get(&(settle.key, settle.owner)) else { return (None, unknown_claim(settle)) };
        let at = if settle.by_first { 0 } else { granted.len() - 1 };
        (Some(at), granted[at])
    }

    fn complete(&mut self, settle: Settle) -> Settled {
        let (_, Granted { ask, fence, attempt: number, .. }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::Claim { attempt: &attempt, fence, number };
        self.step(settle.key, |record, now| protocol::complete(record, claim, result(settle.how), now))
    }

    fn fail(&mut self, settle: Settle) -> Settled {
        let (_, Granted { ask, fence, attempt: number, .. }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::Claim { attempt: &attempt, fence, number };
        self.step(settle.key, |record, now| protocol::fail(record, claim, failure(settle.how), now))
    }

    fn release(&mut self, settle: Settle) -> Settled {
        let (at, Granted { ask, fence, attempt: number, recovery }) = self.claim(settle);
        let attempt = self.attempt(ask);
        let claim = protocol::Claim { attempt: &attempt, fence, number };
        let in_doubt = Some(claim).filter(|_| at.is_some() && recovery);
        self.step(settle.key, |record, now| protocol::release(record, &attempt, in_doubt, now))
    }

    /// The record of a claim as it is to be where it was lost, which release takes.
    fn released(&self, settle: Settle) -> Record {
        let (_, granted) = self.claim(settle);
        let state = State::Failed(Failure { uncertain: granted.recovery, permanent: false });
        Record { attempts: granted.attempt.saturating_sub(1), ..self.settled(settle, state) }
    }

    /// The record of a claim as it is to be, which complete and fail take.
    fn settled(&self, settle: Settle, state: State) -> Record {
        let (_, Granted { ask, fence, attempt: attempts, .. }) = self.claim(settle);
        let Attempt { owner, fingerprint, message, .. } = self.attempt(ask);
        Record { owner, fingerprint, message, fence, attempts, state, expires_ms: 0 }
    }
}

// As Redis has it.

fn asked(attempt: &Attempt) -> Vec<u8> {
    [&attempt.owner.as_bytes()[..], attempt.fingerprint.as_bytes(), attempt.message.as_bytes()].concat()
}

/// The bytes under the key, by the layout in `acquire.lua`.
fn bytes(record: &Record) -> Vec<u8> {
    let (letter, marks) = match &record.state {
        State::Processing { recovery, .. } => (b'P', u8::from(*recovery)),
        State::Completed { result: StoredResult::Inline(_) } => (b'C', 0),
        State::Completed { result: StoredResult::NotKept } => (b'C', 4),
        State::Completed { result: StoredResult::Object(_) } => (b'C', 4 | 8),
        State::Failed(Failure { uncertain, permanent }) => (b'F', u8::from(*uncertain) | u8::from(*permanent) << 1),
    };
    let mut bytes = vec![letter, 1, marks, record.attempts];
    bytes.extend(record.fence.0.to_be_bytes());
    bytes.extend(record.owner.as_bytes());
    bytes.extend(record.fingerprint.as_bytes());
    let lease_end_ms = match &record.state {
        State::Completed { result } => {
            match result {
                StoredResult::Inline(rest) | StoredResult::Object(rest) => bytes.extend(rest),
                StoredResult::NotKept => {}
            }
            return bytes;
        }
        State::Processing { lease_end_ms, .. } => *lease_end_ms,
        State::Failed(_) => 0,
    };
    bytes.extend(record.message.as_bytes());
    bytes.extend(lease_end_ms.to_be_bytes());
    bytes
}

/// What acquire says of a record that is now this one.
fn acquired_words(answer: &Answer, record: Option<&Record>) -> Vec<u8> {
    match answer {
        Answer::Acquired { fence, attempts, recovery } => {
            let word = if *recovery { "ACQUIRED_STALE " } else { "ACQUIRED " };
            [word.as_bytes(), &[b'P', 1, u8::from(*recovery), *attempts], &fence.0.to_be_bytes()].concat()
        }
        Answer::Duplicate { .. } => [b"DUPLICATE ".to_vec(), bytes(record.unwrap())].concat(),
        Answer::Conflict { remains } => format!("CONFLICT {}", remains.as_micros().div_ceil(1000)).into(),
        Answer::Mismatch => "MISMATCH".into(),
        Answer::Failed => "FAILED".into(),
    }
}

fn settled_words(recorded: &'static str, settled: Settled) -> Vec<u8> {
    match settled {
        Settled::Recorded => recorded,
        Settled::Lost(idempotent_sqs::idempotency::State::Processing) => "LOST PROCESSING",
        Settled::Lost(idempotent_sqs::idempotency::State::Completed) => "LOST COMPLETED",
        Settled::Lost(idempotent_sqs::idempotency::State::Failed) => "LOST FAILED",
    }
    .into()
}

/// The scripts on a real server, but for the clock, which the arguments bring.
struct Scripts {
    connection: MultiplexedConnection,
    acquire: String,
    complete: String,
    fail: String,
    release: String,
}

/// A reply that has to come, and for which step of which sequence.
struct Expected {
    sequence: usize,
    step: usize,
    reply: Reply,
}

enum Reply {
    Words(Vec<Vec<u8>>),
    Record(Option<Vec<u8>>),
    /// When the record's retention is over, ms; `None` where the key is absent.
    EndOfLife(Option<u64>),
    Whatever,
}

impl Scripts {
    async fn load(redis: &Redis) -> Self {
        let [acquire, complete, fail, release] = [
            (ACQUIRE, "redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }"),
            (
                COMPLETE,
                "'PX', retention",
                "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention",
            ),
            (FAIL, "'PX', retention", "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention"),
            (RELEASE, "'PX', retention", "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention"),
        ]
        .map(|(script, by_its_own_clock, by_the_arguments)| {
            assert_eq!(script.matches(by_its_own_clock).count(), 1, "a script looks at the clock in one place");
            script.replace(by_its_own_clock, by_the_arguments)
        });
        let mut connection = redis.connection().await;
        let mut load = async |script: &str| -> String {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await.unwrap()
        };
        let (acquire, complete) = (load(&acquire).await, load(&complete).await);
        let (fail, release) = (load(&fail).await, load(&release).await);
        Self { connection, acquire, complete, fail, release }
    }

    /// What differs first in each sequence that differs from the reference.
    async fn differences(&mut self, run: &str, sequences: &[Sequence]) -> Vec<Option<String>> {
        match self.run(run, sequences).await {
            Ok(differences) => return differences,
            Err(error) if error.is_io_error() => panic!("the server gave no answer: {error}"),
            // A script that breaks off spoils the whole round trip, so each goes alone.
            Err(_) => {}
        }
        let mut differences = Vec::new();
        for (number, sequence) in sequences.iter().enumerate() {
            let alone = self.run(&format!("{run}:{number}"), std::slice::from_ref(sequence)).await;
            differences
                .push(alone.map_or_else(|error| Some(error.to_string()), |mut differences| differences.remove(0)));
        }
        differences
    }

    /// All in one round trip, each on keys of its own.
    async fn run(&mut self, run: &str, sequences: &[Sequence]) -> redis::RedisResult<Vec<Option<String>>> {
        let mut pipe = redis::pipe();
        let mut expected = Vec::new();
        for (number, sequence) in sequences.iter().enumerate() {
            let mut reference = Expectation::new(sequence);
            for (step, what) in sequence.steps.iter().enumerate() {
                let mut expect = |reply| expected.push(Expected { sequence: number, step, reply });
                let key = |key: u8| format!("{run}:{number}:{key}");
                for over in reference.expired() {
                    pipe.cmd("DEL").arg(key(over));
                    expect(Reply::Whatever);
                }
                let touched: Vec<u8> = match what {
                    Step::Pass(us) => {
                        reference.pass(*us);
                        continue;
                    }
                    Step::Evict(evicted) => {
                        reference.records.remove(evicted);
                        pipe.cmd("DEL").arg(key(*evicted));
                        expect(Reply::Whatever);
                        continue;
                    }
                    Step::Acquire(asks) => {
                        let [lease_ms, longest_ms] = [asks[0].lease_ms, asks[0].longest_ms.max(asks[0].lease_ms)];
                        let terms = [RETENTION_MS, sequence.max_attempts.into(), lease_ms, longest_ms];
                        let keys = asks.iter().map(|ask| key(ask.key));
                        let records = asks.iter().map(|ask| asked(&reference.attempt(*ask)));
                        call(&mut pipe, &self.acquire, keys, &terms, records, reference.now_us);
                        let answer = |ask: &Ask| {
                            let answer = reference.acquire(*ask);
                            acquired_words(&answer, reference.records.get(&ask.key))
                        };
                        expect(Reply::Words(asks.iter().map(answer).collect()));
                        asks.iter().map(|ask| ask.key).collect()
                    }
                    Step::Release(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let records = settles.iter().map(|settle| bytes(&reference.released(*settle)));
                        call(&mut pipe, &self.release, keys, &[RETENTION_MS], records, reference.now_us);
                        let answers =
                            settles.iter().map(|settle| settled_words("RELEASED", reference.release(*settle)));
                        expect(Reply::Words(answers.collect()));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                    Step::Complete(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let (mut records, mut answers, now_us) = (Vec::new(), Vec::new(), reference.now_us);
                        for settle in settles {
                            let state = State::Completed { result: result(settle.how) };
                            records.push(bytes(&reference.settled(*settle, state)));
                            answers.push(settled_words("COMPLETED", reference.complete(*settle)));
                        }
                        call(&mut pipe, &self.complete, keys, &[RETENTION_MS], records, now_us);
                        expect(Reply::Words(answers));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                    Step::Fail(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let (mut records, mut answers, now_us) = (Vec::new(), Vec::new(), reference.now_us);
                        for settle in settles {
                            let state = State::Failed(failure(settle.how));
                            records.push(bytes(&reference.settled(*settle, state)));
                            answers.push(settled_words("FAILED", reference.fail(*settle)));
                        }
                        call(&mut pipe, &self.fail, keys, &[RETENTION_MS], records, now_us);
                        expect(Reply::Words(answers));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                };
                for touched in touched {
                    let record = reference.records.get(&touched);
                    let ends_ms = record.map(|record| record.expires_ms);
                    pipe.cmd("GET").arg(key(touched));
                    expect(Reply::Record(record.map(bytes)));
                    pipe.cmd("PEXPIRETIME").arg(key(touched));
                    expect(Reply::EndOfLife(ends_ms));
                }
            }
        }
        let replies: Vec<Value> = pipe.query_async(&mut self.connection).await?;
        assert_eq!(replies.len(), expected.len());
        let mut differences = vec![None; sequences.len()];
        for (expected, reply) in expected.iter().zip(&replies) {
            if let Some(difference) = expected.reply.difference(reply) {
                let step = &sequences[expected.sequence].steps[expected.step];
                differences[expected.sequence].get_or_insert_with(|| format!("at {step:?}: {difference}"));
            }
        }
        Ok(differences)
    }
}

/// A run of a script, with the clock as its last arguments.
fn call(
    pipe: &mut redis::Pipeline,
    script: &str,
    keys: impl ExactSizeIterator<Item = String>,
    terms: &[u64],
    records: impl IntoIterator<Item = Vec<u8>>,
    now_us: u64,
) {
    pipe.cmd("EVALSHA").arg(script).arg(keys.len());
    for key in keys {
        pipe.arg(key);
    }
    pipe.arg(terms);
    for record in records {
        pipe.arg(record);
    }
    pipe.arg(now_us / 1_000_000).arg(now_us % 1_000_000);
}

impl Reply {
    fn difference(&self, reply: &Value) -> Option<String> {
        let string = |value: &Value| match value {
            Value::BulkString(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let same = match self {
            Self::Words(words) => match reply {
                Value::Array(answers) => answers.iter().map(string).eq(words.iter().cloned().map(Some)),
                _ => false,
            },
            Self::Record(record) => string(reply) == *record && (record.is_some() || *reply == Value::Nil),
            Self::EndOfLife(ms) => *reply == Value::Int(ms.map_or(-2, |ms| i64::try_from(ms).unwrap())),
            Self::Whatever => true,
        };
        (!same).then(|| format!("the script gave {}, and the protocol {self}", shown(reply)))
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                f.write_str(&words.join(", "))
            }
            Self::Record(Some(record)) => write!(f, "the record {}", record.escape_ascii()),
            Self::Record(None) => f.write_str("no record"),
            Self::EndOfLife(Some(ms)) => write!(f, "a life until {ms} ms"),
            Self::EndOfLife(None) | Self::Whatever => f.write_str("none"),
        }
    }
}

fn shown(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}

// As the store in memory has it.

/// What differs first. That store's clock never jumps back, nothing is evicted from it, and its fences are of
/// another clock: they are compared by the claim that they belong to. So each owner settles by its latest claim.
async fn difference_in_memory(sequence: &Sequence) -> Option<String> {
    let store = MemoryStore::default();
    let mut reference = Expectation::new(sequence);
    let mut claims: HashMap<(u8, u8), Vec<Claim>> = HashMap::new();
    let mut fences: HashMap<(u8, Fence), Fence> = HashMap::new();
    for step in &sequence.steps {
        reference.expired();
        match step {
            Step::Pass(us) => {
                // Leases end on whole milliseconds of either clock, and these two differ by a fraction of one.
                let ms = u64::try_from(us / 1000).unwrap_or(0);
                reference.pass(i64::try_from(ms * 1000).unwrap());
                tokio::time::advance(Duration::from_millis(ms)).await;
            }
            Step::Evict(_) => {}
            Step::Acquire(asks) => {
                for ask in asks {
                    let granted = reference.granted(*ask);
                    let expected = reference.acquire(*ask);
                    let is_new = reference.granted(*ask) > granted;
                    let answer = store.acquire(reference.attempt(*ask)).await.unwrap();
                    let fence = |fence: &Fence| fences.get(&(ask.key, *fence));
                    let same = match (&expected, &answer) {
                        (
                            Answer::Acquired { fence: own, attempts, recovery },
                            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim),
                        ) => {
                            (*attempts, *recovery) == (claim.attempt(), claim.is_recovery())
                                && (is_new || fence(own) == Some(&claim.fence()))
                        }
                        (
                            Answer::Duplicate { fence: own, attempts, result },
                            Acquire::Duplicate { fence: f, attempts: a, result: r },
                        ) => a == attempts && r == result && fence(own).is_none_or(|known| known == f),
                        (Answer::Conflict { remains }, Acquire::Conflict { lease_remains }) => {
                            remains.abs_diff(*lease_remains) <= Duration::from_millis(1)
                        }
                        (Answer::Mismatch, Acquire::Mismatch) | (Answer::Failed, Acquire::Failed) => true,
                        _ => false,
                    };
                    if !same {
                        return Some(format!("at {ask:?}: the store gave {answer:?}, and the protocol {expected:?}"));
                    }
                    if let (Answer::Acquired { fence, .. }, Acquire::Acquired(claim) | Acquire::AcquiredStale(claim)) =
                        (expected, answer)
                        && is_new
                    {
                        fences.insert((ask.key, fence), claim.fence());
                        claims.entry((ask.key, ask.owner)).or_default().push(claim);
                    }
                }
            }
            Step::Release(settles) => {
                for settle in settles.iter().map(|settle| Settle { by_first: false, ..*settle }) {
                    let (at, granted) = reference.claim(settle);
                    let claim = at.map(|at| &claims[&(settle.key, settle.owner)][at]);
                    let attempt = reference.attempt(granted.ask);
                    let expected = reference.release(settle);
                    let answer = store.release(&attempt, claim).await.unwrap();
                    if answer != expected {
                        return Some(format!(
                            "at {settle:?}: the store gave {answer:?}, and the protocol {expected:?}"
                        ));
                    }
                }
            }
            Step::Complete(settles) | Step::Fail(settles) => {
                for settle in settles.iter().map(|settle| Settle { by_first: false, ..*settle }) {
                    let (at, granted) = reference.claim(settle);
                    let claim = match at {
                        Some(at) => &claims[&(settle.key, settle.owner)][at],
                        None => &{
                            let Granted { ask, fence, attempt: number, recovery } = granted;
                            match Acquire::claimed(reference.attempt(ask), fence, number, recovery) {
                                Acquire::Acquired(claim) => claim,
                                other => panic!("{other:?}"),
                            }
                        },
                    };
                    let (expected, answer) = if matches!(step, Step::Complete(_)) {
                        let kept = result(settle.how);
                        (reference.complete(settle), store.complete(claim, kept.as_deref()).await.unwrap())
                    } else {
                        (reference.fail(settle), store.fail(claim, failure(settle.how)).await.unwrap())
                    };
                    if answer != expected {
                        return Some(format!(
                            "at {settle:?}: the store gave {answer:?}, and the protocol {expected:?}"
                        ));
                    }
                }
            }
        }
    }
    None
}

// The runs.

fn number_from_environment(name: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().unwrap_or_else(|error| panic!("{name}: {error}")),
        Err(_) => otherwise(),
    }
}

/// Each batch with the seed that repeats it.
fn batches() -> impl Iterator<Item = (u64, Vec<Box<dyn ValueTree<Value = Sequence>>>)> {
    let first = number_from_environment("REFERENCE_SEED", || getrandom::u32().unwrap().into());
    let count = number_from_environment("REFERENCE_SEQUENCES", || 10_000).div_ceil(BATCH);
    (first..first + count).map(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = sequences().boxed();
        (seed, (0..BATCH).map(|_| strategy.new_tree(&mut runner).unwrap()).collect())
    })
}

/// The shortest that still fails, in so many steps of patience.
async fn shortest(
    mut tree: Box<dyn ValueTree<Value = Sequence>>,
    mut difference: impl AsyncFnMut(&Sequence) -> Option<String>,
) -> (Sequence, String) {
    let mut worst = (tree.current(), difference(&tree.current()).await.expect("it fails again"));
    let mut simpler = tree.simplify();
    for _ in 0..2000 {
        if !simpler {
            break;
        }
        match difference(&tree.current()).await {
            Some(what) => {
                worst = (tree.current(), what);
                simpler = tree.simplify();
            }
            None => simpler = tree.complicate(),
        }
    }
    worst
}

fn report(seed: u64, (sequence, difference): (Sequence, String)) -> ! {
    panic!("{difference}\nafter {sequence:#?}\nREFERENCE_SEED={seed} repeats it");
}

#[tokio::test]
async fn the_scripts_match_the_protocol_in_ten_thousand_random_sequences() {
    let redis = Redis::start().await;
    let mut scripts = Scripts::load(&redis).await;
    for (seed, mut trees) in batches() {
        let sequences: Vec<Sequence> = trees.iter().map(ValueTree::current).collect();
        let differences = scripts.differences(&seed.to_string(), &sequences).await;
        if let Some(at) = differences.iter().position(Option::is_some) {
            let mut tries = 0;
            let shortest = shortest(trees.swap_remove(at), async |sequence| {
                tries += 1;
                scripts.differences(&format!("{seed}:try:{tries}"), std::slice::from_ref(sequence)).await.remove(0)
            });
            report(seed, shortest.await);
        }
        // The next batch has keys of its own; these would only fill the memory.
        let () = redis::cmd("FLUSHDB").query_async(&mut scripts.connection).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_matches_the_protocol_in_ten_thousand_random_sequences() {
    for (seed, trees) in batches() {
        for tree in trees {
            if difference_in_memory(&tree.current()).await.is_some() {
                report(seed, shortest(tree, async |sequence| difference_in_memory(sequence).await).await);
            }
        }
    }
}
