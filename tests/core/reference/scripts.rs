//! The scripts on a real server.

use super::*;

pub(super) fn asked(attempt: &AcquireRequest) -> Vec<u8> {
    [&attempt.owner.as_bytes()[..], attempt.fingerprint.as_bytes(), attempt.message.as_bytes()].concat()
}

/// The stored bytes of a record, as documented in `acquire.lua`.
pub(super) fn bytes(record: &Record) -> Vec<u8> {
    let (letter, marks) = match &record.state {
        RecordState::Processing { recovery, .. } => (b'P', u8::from(*recovery)),
        RecordState::Completed { result: StoredResult::Inline(_) } => (b'C', 0),
        RecordState::Completed { result: StoredResult::NotKept } => (b'C', 4),
        RecordState::Completed { result: StoredResult::Object(_) } => (b'C', 4 | 8),
        RecordState::Failed(Failure { uncertain, permanent }) => {
            (b'F', u8::from(*uncertain) | u8::from(*permanent) << 1)
        }
    };
    let mut bytes = vec![letter, 1, marks, record.attempts];
    bytes.extend(record.fence.0.to_be_bytes());
    bytes.extend(record.owner.as_bytes());
    bytes.extend(record.fingerprint.as_bytes());
    let lease_end_ms = match &record.state {
        RecordState::Completed { result } => {
            match result {
                StoredResult::Inline(rest) | StoredResult::Object(rest) => bytes.extend(rest),
                StoredResult::NotKept => {}
            }
            return bytes;
        }
        RecordState::Processing { lease_end_ms, .. } => *lease_end_ms,
        RecordState::Failed(_) => 0,
    };
    bytes.extend(record.message.as_bytes());
    bytes.extend(lease_end_ms.to_be_bytes());
    bytes
}

/// What an operator has seen of a record, as documented in `forget.lua`.
fn seen((letter, failure, fence): &Seen) -> Vec<u8> {
    let marks = u8::from(failure.uncertain) | u8::from(failure.permanent) << 1;
    [&[*letter, marks], &fence.0.to_be_bytes()[..]].concat()
}

/// The script's reply to an acquire. `record` is the record after it.
pub(super) fn acquire_reply(answer: &AcquireAnswer, record: Option<&Record>) -> Vec<u8> {
    match answer {
        AcquireAnswer::Acquired { fence, attempts, recovery } => {
            let word = if *recovery { "ACQUIRED_STALE " } else { "ACQUIRED " };
            [word.as_bytes(), &[b'P', 1, u8::from(*recovery), *attempts], &fence.0.to_be_bytes()].concat()
        }
        AcquireAnswer::Duplicate { .. } => [b"DUPLICATE ".to_vec(), bytes(record.unwrap())].concat(),
        AcquireAnswer::Conflict { remains } => format!("CONFLICT {}", remains.as_micros().div_ceil(1000)).into(),
        AcquireAnswer::Mismatch => "MISMATCH".into(),
        AcquireAnswer::Failed => "FAILED".into(),
    }
}

pub(super) fn settle_reply(recorded: &'static str, settled: Settled) -> Vec<u8> {
    match settled {
        Settled::Recorded => recorded,
        Settled::Lost(idempotent_sqs::idempotency::State::Processing) => "LOST PROCESSING",
        Settled::Lost(idempotent_sqs::idempotency::State::Completed) => "LOST COMPLETED",
        Settled::Lost(idempotent_sqs::idempotency::State::Failed) => "LOST FAILED",
    }
    .into()
}

/// The scripts on a real server. The clock is an argument instead of the server's.
pub(super) struct Scripts {
    pub(super) connection: MultiplexedConnection,
    pub(super) acquire: String,
    pub(super) complete: String,
    pub(super) fail: String,
    pub(super) release: String,
    pub(super) forget: String,
}

/// An expected reply, and the step of the sequence that it belongs to.
pub(super) struct Expected {
    sequence: usize,
    step: usize,
    reply: Reply,
}

pub(super) enum Reply {
    Answers(Vec<Vec<u8>>),
    Record(Option<Vec<u8>>),
    /// Expiry of the record, ms since 1970; `None` if the key is absent.
    Expiry(Option<u64>),
    Any,
}

impl Scripts {
    pub(super) async fn load(redis: &Redis) -> Self {
        let [acquire, complete, fail, release, forget] = [
            (ACQUIRE, "redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }"),
            (
                COMPLETE,
                "'PX', retention",
                "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention",
            ),
            (FAIL, "'PX', retention", "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention"),
            (RELEASE, "'PX', retention", "'PXAT', ARGV[#ARGV - 1] * 1000 + math.floor(ARGV[#ARGV] / 1000) + retention"),
            (FORGET, "redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }"),
        ]
        .map(|(script, server_clock, argument)| {
            assert_eq!(script.matches(server_clock).count(), 1, "a script reads the clock in one place");
            script.replace(server_clock, argument)
        });
        let mut connection = redis.connection().await;
        let mut load = async |script: &str| -> String {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await.unwrap()
        };
        let (acquire, complete) = (load(&acquire).await, load(&complete).await);
        let (fail, release, forget) = (load(&fail).await, load(&release).await, load(&forget).await);
        Self { connection, acquire, complete, fail, release, forget }
    }

    /// The first difference in each sequence that differs from the reference.
    pub(super) async fn differences(&mut self, run: &str, sequences: &[Sequence]) -> Vec<Option<String>> {
        match self.run(run, sequences).await {
            Ok(differences) => return differences,
            Err(error) if error.is_io_error() => panic!("the server did not answer: {error}"),
            // A script error fails the whole round trip, so each sequence is run alone.
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

    /// Runs all sequences in one round trip, each on its own keys.
    pub(super) async fn run(&mut self, run: &str, sequences: &[Sequence]) -> redis::RedisResult<Vec<Option<String>>> {
        let mut pipe = redis::pipe();
        let mut expected = Vec::new();
        for (number, sequence) in sequences.iter().enumerate() {
            let mut reference = Expectation::new(sequence);
            for (step, what) in sequence.steps.iter().enumerate() {
                let mut expect = |reply| expected.push(Expected { sequence: number, step, reply });
                let key = |key: u8| format!("{run}:{number}:{key}");
                for expired in reference.expired() {
                    pipe.cmd("DEL").arg(key(expired));
                    expect(Reply::Any);
                }
                let touched: Vec<u8> = match what {
                    Step::Pass(us) => {
                        reference.pass(*us);
                        continue;
                    }
                    Step::Evict(evicted) => {
                        reference.records.remove(evicted);
                        pipe.cmd("DEL").arg(key(*evicted));
                        expect(Reply::Any);
                        continue;
                    }
                    Step::Acquire(asks) => {
                        let [lease_ms, longest_ms] = [asks[0].lease_ms, asks[0].longest_ms.max(asks[0].lease_ms)];
                        let attempts = sequence.max_attempts.into();
                        let terms = [RETENTION_MS, attempts, lease_ms, longest_ms, sequence.failed_retention_ms];
                        let keys = asks.iter().map(|ask| key(ask.key));
                        let records = asks.iter().map(|ask| asked(&reference.attempt(*ask)));
                        call(&mut pipe, &self.acquire, keys, &terms, records, reference.now_us);
                        let answer = |ask: &Ask| {
                            let answer = reference.acquire(*ask);
                            acquire_reply(&answer, reference.records.get(&ask.key))
                        };
                        expect(Reply::Answers(asks.iter().map(answer).collect()));
                        asks.iter().map(|ask| ask.key).collect()
                    }
                    Step::Release(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let records = settles.iter().map(|settle| bytes(&reference.released(*settle)));
                        call(&mut pipe, &self.release, keys, &[RETENTION_MS], records, reference.now_us);
                        let answers = settles.iter().map(|settle| settle_reply("RELEASED", reference.release(*settle)));
                        expect(Reply::Answers(answers.collect()));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                    Step::Forget(forget) => {
                        let (keys, seen) = ([key(forget.key)].into_iter(), seen(&reference.seen(*forget)));
                        call(&mut pipe, &self.forget, keys, &[forget.force.into()], [seen], reference.now_us);
                        expect(Reply::Answers(vec![reference.forget(*forget)]));
                        vec![forget.key]
                    }
                    Step::Complete(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let (mut records, mut answers, now_us) = (Vec::new(), Vec::new(), reference.now_us);
                        for settle in settles {
                            let state = RecordState::Completed { result: result(settle.how) };
                            records.push(bytes(&reference.settled(*settle, state)));
                            answers.push(settle_reply("COMPLETED", reference.complete(*settle)));
                        }
                        call(&mut pipe, &self.complete, keys, &[RETENTION_MS], records, now_us);
                        expect(Reply::Answers(answers));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                    Step::Fail(settles) => {
                        let keys = settles.iter().map(|settle| key(settle.key));
                        let (mut records, mut answers, now_us) = (Vec::new(), Vec::new(), reference.now_us);
                        for settle in settles {
                            let state = RecordState::Failed(failure(settle.how));
                            records.push(bytes(&reference.settled(*settle, state)));
                            answers.push(settle_reply("FAILED", reference.fail(*settle)));
                        }
                        call(&mut pipe, &self.fail, keys, &[RETENTION_MS], records, now_us);
                        expect(Reply::Answers(answers));
                        settles.iter().map(|settle| settle.key).collect()
                    }
                };
                for touched in touched {
                    let record = reference.records.get(&touched);
                    let ends_ms = record.map(|record| record.expires_ms);
                    pipe.cmd("GET").arg(key(touched));
                    expect(Reply::Record(record.map(bytes)));
                    pipe.cmd("PEXPIRETIME").arg(key(touched));
                    expect(Reply::Expiry(ends_ms));
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

/// Adds a call of a script, with the clock as its last arguments.
pub(super) fn call(
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
    pub(super) fn difference(&self, reply: &Value) -> Option<String> {
        let string = |value: &Value| match value {
            Value::BulkString(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let same = match self {
            Self::Answers(answers) => match reply {
                Value::Array(replies) => replies.iter().map(string).eq(answers.iter().cloned().map(Some)),
                _ => false,
            },
            Self::Record(record) => string(reply) == *record && (record.is_some() || *reply == Value::Nil),
            Self::Expiry(ms) => *reply == Value::Int(ms.map_or(-2, |ms| i64::try_from(ms).unwrap())),
            Self::Any => true,
        };
        (!same).then(|| format!("the script returned {}, the protocol {self}", shown(reply)))
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answers(answers) => {
                let answers: Vec<_> = answers.iter().map(|answer| answer.escape_ascii().to_string()).collect();
                f.write_str(&answers.join(", "))
            }
            Self::Record(Some(record)) => write!(f, "the record {}", record.escape_ascii()),
            Self::Record(None) => f.write_str("no record"),
            Self::Expiry(Some(ms)) => write!(f, "an expiry at {ms} ms"),
            Self::Expiry(None) | Self::Any => f.write_str("none"),
        }
    }
}

pub(super) fn shown(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}
