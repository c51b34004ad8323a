//! The rows, and the records that Redis has under some of their keys before.

use std::sync::Arc;
use std::time::Duration;

use history::{Rng, Value};
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Store, StoredResult};
use idempotent_sqs::{Fingerprint, Key};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::{CONSUMER, MAX_BYTES, OTHER, RETENTION, World};
use crate::lock;
use crate::postgres::session;

/// The host of the one who writes rows and records.
pub(super) const WRITER: &str = "writer";

/// Transactions that are written while rows are copied.
const TRANSACTIONS: usize = 14;

/// A row that a transaction has inserted.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) consumer: &'static str,
    /// Stored form of its key.
    pub(super) key: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) fence: i64,
    pub(super) attempts: i16,
    pub(super) result: Option<Vec<u8>>,
    /// How long before its transaction began it was done. `None` for an infinite time.
    pub(super) age: Option<Duration>,
    /// When its transaction began.
    pub(super) begun: Instant,
}

/// A record that Redis has before the rows are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Completed,
    Processing,
    /// Failed for the payload of the row.
    Failed,
    FailedForAnother,
    NoRecord,
}

const SPECIALS: [(&str, Special); 5] = [
    ("completed", Special::Completed),
    ("processing", Special::Processing),
    ("failed", Special::Failed),
    ("failed for another", Special::FailedForAnother),
    ("no record", Special::NoRecord),
];

impl Row {
    /// The row of this number. One that was done before its transaction began is written before the first run.
    fn draw(rng: &mut Rng, number: usize, is_first: bool) -> Self {
        let key =
            if rng.happens(100) { format!("row-{number}-{}", "long".repeat(60)) } else { format!("row-{number}") };
        let bytes = usize::try_from(*rng.pick(&[0, 1, 20, 20, 21, 40])).unwrap_or(MAX_BYTES);
        let minutes = |rng: &mut Rng, range| Duration::from_secs(60 * rng.draw(range) + rng.draw(1..60));
        let age = match rng.draw(0..20) {
            9..13 if is_first => Some(rng.ms(1..8000)),
            13..16 if is_first => Some(minutes(rng, 0..5)),
            16..18 => Some(RETENTION + minutes(rng, 0..2)),
            18 => None,
            _ => Some(Duration::ZERO),
        };
        Self {
            consumer: if rng.happens(100) { OTHER } else { CONSUMER },
            key: stored(&key),
            fingerprint: (0..if rng.happens(80) { 3 } else { 16 }).map(|_| rng.byte()).collect(),
            fence: if rng.happens(80) { -1 } else { i64::try_from(rng.draw(0..1_000_000)).unwrap_or_default() },
            attempts: if rng.happens(80) { 300 } else { i16::try_from(rng.draw(1..200)).unwrap_or_default() },
            result: (!rng.happens(100)).then(|| (0..bytes).map(|_| rng.byte()).collect()),
            age,
            begun: Instant::now(),
        }
    }

    fn plain(key: &str) -> Self {
        Self {
            consumer: CONSUMER,
            key: stored(key),
            fingerprint: fingerprint(key).as_bytes().to_vec(),
            fence: 7,
            attempts: 2,
            result: Some(key.as_bytes().to_vec()),
            age: Some(Duration::ZERO),
            begun: Instant::now(),
        }
    }

    /// Inserts it in the transaction that has begun.
    async fn insert(&self, session: &Client) -> Result<(), tokio_postgres::Error> {
        let done_at = if self.age.is_some() { "now() - make_interval(secs => $7)" } else { "'infinity'" };
        let insert = format!(
            "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts, result, done_at) \
             VALUES ($1, $2, $3, $4, $5, $6, {done_at})"
        );
        let age = self.age.map(|age| age.as_secs_f64());
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&self.consumer, &self.key, &self.fingerprint, &self.fence, &self.attempts, &self.result];
        parameters.extend(age.iter().map(|age| age as &(dyn ToSql + Sync)));
        session.execute(&insert, &parameters).await.map(drop)
    }
}

/// Stored form of a key.
fn stored(key: &str) -> String {
    Key::new(key).expect("it has a text").stored().into_owned()
}

fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::of(text.as_bytes())
}

/// Inserts rows in one transaction, which takes so long and then commits, or not. The session may end meanwhile.
async fn insert_together(world: &World, mut rows: Vec<Row>, lasts: Duration, commits: bool) {
    let Some(session) = session(WRITER).await else { return };
    let inserted = async {
        session.batch_execute("BEGIN").await?;
        for row in &mut rows {
            row.begun = Instant::now();
            row.insert(&session).await?;
        }
        sleep(lasts).await;
        session.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await
    };
    // Which of them are committed is seen later.
    let _inserted: Result<(), tokio_postgres::Error> = inserted.await;
    lock(&world.rows).extend(rows);
}

/// Writes rows while others are copied.
pub(super) async fn write(world: Arc<World>, mut rng: Rng) {
    let mut transactions = JoinSet::new();
    for number in 0..TRANSACTIONS {
        sleep(rng.ms(1..1500)).await;
        let rows = (0..rng.pick(&[1, 1, 2, 3]).to_owned())
            .map(|row: usize| Row::draw(&mut rng, 1000 + 10 * number + row, false))
            .collect();
        let (lasts, commits) = (if rng.happens(500) { rng.ms(1..4000) } else { Duration::ZERO }, rng.happens(850));
        let world = Arc::clone(&world);
        transactions.spawn(async move { insert_together(&world, rows, lasts, commits).await });
    }
    transactions.join_all().await;
}

/// A row of an open transaction.
pub(super) struct HeldRow {
    session: Client,
}

impl HeldRow {
    pub(super) async fn commit(self) {
        self.session.batch_execute("COMMIT").await.expect("nothing fails");
    }
}

impl World {
    /// Inserts so many rows, each in a transaction of its own.
    pub(super) async fn insert(&self, rng: &mut Rng, rows: usize) {
        let (first, is_first) = (lock(&self.rows).len() + 2000, lock(&self.runs).is_empty());
        for number in first..first + rows {
            insert_together(self, vec![Row::draw(rng, number, is_first)], Duration::ZERO, true).await;
        }
    }

    /// Inserts a row, and does not commit it yet.
    pub(super) async fn hold_row(&self, key: &str) -> HeldRow {
        let session = session(WRITER).await.expect("nothing fails");
        session.batch_execute("BEGIN").await.expect("nothing fails");
        let row = Row::plain(key);
        row.insert(&session).await.expect("nothing fails");
        lock(&self.rows).push(row);
        HeldRow { session }
    }
}

/// Writes the records that Redis has before, and the rows of their keys. Returns them with their values.
pub(super) async fn write_specials(world: &World) -> Vec<(String, Special, Value)> {
    let mut specials = Vec::new();
    for (key, special) in SPECIALS {
        insert_together(world, vec![Row::plain(key)], Duration::ZERO, true).await;
        let record = format!("{CONSUMER}:{key}").into_bytes();
        if special == Special::NoRecord {
            world.redis.set_value(&record, Value::String(b"not a record".to_vec()));
        } else {
            write_record(world, key, special).await;
        }
        specials.push((key.to_owned(), special, world.redis.value(&record).expect("it was written")));
    }
    specials
}

async fn write_record(world: &World, key: &str, special: Special) {
    let mut request = AcquireRequest::new(Key::new(key).expect("it has a text"));
    request.fingerprint = fingerprint(if special == Special::FailedForAnother { "another" } else { key });
    (request.lease, request.longest_lease) = (RETENTION, RETENTION);
    let acquired = world.store.acquire(request).await;
    let Ok(Acquire::Acquired(claim)) = acquired else { panic!("{acquired:?}") };
    let settled = match special {
        Special::Completed => world.store.complete(&claim, StoredResult::Inline(b"first")).await,
        Special::Failed | Special::FailedForAnother => {
            world.store.fail(&claim, Failure { uncertain: false, permanent: true }).await
        }
        Special::Processing | Special::NoRecord => return,
    };
    settled.expect("nothing fails");
}
