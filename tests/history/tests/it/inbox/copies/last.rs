//! Backfills when no owner is at work. After each, Redis has the records that the rows and its losses say.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use harness::postgres::{Base, Client};
use harness::redis::{Redis, connect};
use harness::{soon, with};
use history::Rng;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Fingerprint, Key, StoredResult};
use idempotent_sqs::stores::redis::records::{Inspected, RecordStateView, Records};
use idempotent_sqs::{RedisSettings, RedisStore, Store};
use idempotent_sqs_postgres::backfill::{
    Backfill, BackfillEnd, BackfillError, BackfillProgress, BackfillSettings, BackfillStart,
};
use idempotent_sqs_postgres::database::Row;
use idempotent_sqs_postgres::{Database, DatabaseSettings};
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;

use crate::inbox::kind::PAYMENTS;
use crate::inbox::owner::KEPT_BYTES;

/// A transaction that has inserted a row and is committed after later rows were copied.
pub(crate) struct Late {
    client: Client,
    /// When it began, seconds since 1970 by the server.
    begun: f64,
}

impl Late {
    /// Begins more than a second before the row is copied: the margin of the watermark.
    pub(crate) async fn begin(base: &Base) -> Self {
        let client = harness::postgres::connect(base.port, &base.name).await;
        let insert = format!(
            "BEGIN; INSERT INTO idempotency_inbox VALUES ('{PAYMENTS}', 'late', decode(repeat('00', 16), 'hex'), 1, 1, 'late')"
        );
        client.batch_execute(&insert).await.unwrap();
        let begun = client.query_one("SELECT extract(epoch FROM now())::float8", &[]).await.unwrap().get(0);
        Self { client, begun }
    }
}

/// The user of the backfill. It does not see when transactions of others began.
pub(crate) const COPIER: &str = "copier";

/// The consumer of the backfills of several steps. Its rows have no owner.
const BULK: &str = "bulk";

/// More than two steps.
const BULK_ROWS: u64 = 2100;

struct Copies<'a> {
    base: &'a Base,
    /// Of Redis.
    url: String,
    redis: MultiplexedConnection,
    user: &'static str,
    records: Records,
    faults: Vec<String>,
}

/// What is wrong with the copies of the rows of an owner.
pub(crate) async fn wrong_copies(base: &Base, server: &Redis, late: Late, mut rng: Rng) -> Vec<String> {
    let user = *rng.pick(&["app", COPIER]);
    let mut copies = Copies::of(base, server, PAYMENTS, 0, user).await;
    copies.copy_few_rows(late).await;
    copies.faults.into_iter().map(|fault| format!("backfill: {fault}")).collect()
}

/// What is wrong with the copies of many rows, in another database of Redis.
pub(crate) async fn wrong_copies_in_steps(base: &Base, server: &Redis) -> Vec<String> {
    let mut copies = Copies::of(base, server, BULK, 1, "app").await;
    copies.copy_many_rows().await;
    copies.faults.into_iter().map(|fault| format!("backfill: {fault}")).collect()
}

impl<'a> Copies<'a> {
    async fn of(base: &'a Base, server: &Redis, namespace: &str, number: u8, user: &'static str) -> Self {
        let url = format!("{}/{number}", server.url());
        let records = Records::new(&RedisSettings::new(url.parse().unwrap(), namespace)).unwrap();
        Self { base, redis: connect(url.as_str()).await, url, user, records, faults: Vec::new() }
    }

    fn backfill(&self, settings: BackfillSettings) -> Backfill<RedisStore> {
        let url = self.base.url().replace("app@", &format!("{}@", self.user));
        let database = Database::new(&DatabaseSettings::new(url.parse().unwrap()));
        Backfill::new(self.store(), database, settings)
    }

    fn store(&self) -> RedisStore {
        RedisStore::new(&RedisSettings::new(self.url.parse().unwrap(), self.records.namespace())).unwrap()
    }

    fn settings(&self) -> BackfillSettings {
        super::settings(self.records.namespace())
    }

    async fn command(&self, command: &[&str]) -> redis::Value {
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// Runs a backfill, which must send all rows that there are.
    async fn run(&mut self, what: &str, settings: BackfillSettings, start: BackfillStart) -> BackfillProgress {
        let ended = soon(self.backfill(settings).run(start, None, |_| ())).await;
        match ended {
            Ok((progress, BackfillEnd::Done)) if progress.remaining == Some(0) => progress,
            ended => {
                self.faults.push(format!("{what}: it ended with {ended:?}"));
                BackfillProgress::default()
            }
        }
    }

    /// The rows of a consumer, after losses of each kind.
    async fn copy_few_rows(&mut self, late: Late) {
        let settings = self.settings();
        self.command(&["FLUSHDB"]).await;
        let progress = self.run("all records were lost", settings.clone(), BackfillStart::Watermark).await;
        let rows = self.check("all records were lost", &[]).await;
        let all = copied_keys(&rows);
        self.expect("all records were lost", &progress, [all.len(), 0, 0, 0]);

        // Nothing is sent again, apart from the last second before the open transaction. If its start is hidden, it
        // counts as half an hour old.
        let again = self.run("nothing was lost", settings.clone(), BackfillStart::Watermark).await;
        let old_until = if self.user == COPIER { 0.0 } else { late.begun - 1.5 };
        let is_old = |row: &&Row| row.get::<_, bool>("is_copied") && row.get::<_, f64>("done_at") < old_until;
        let old = rows.iter().filter(is_old).count() as u64;
        if again.copied > 0 || again.already_completed + old > all.len() as u64 {
            self.faults.push(format!("nothing was lost, and {old} rows are old: {again:?}"));
        }
        let oldest = self.run("from the oldest row", settings.clone(), BackfillStart::Oldest).await;
        self.expect("from the oldest row", &oldest, [0, all.len(), 0, 0]);

        // A row was committed after later ones were copied.
        late.client.batch_execute("COMMIT").await.unwrap();
        self.run("a row was committed late", settings.clone(), BackfillStart::Watermark).await;
        self.check("a row was committed late", &[]).await;

        // The last records of a failover, but not the loss probe.
        let (first, last) = (&all[0], &all[all.len() - 1]);
        self.command(&["DEL", &self.redis_key(last)]).await;
        let overlap = with!(settings.clone(), overlap = Duration::from_hours(24));
        self.run("the last record was lost", overlap, BackfillStart::Watermark).await;
        self.check("the last record was lost", &[]).await;

        // One record of the loss probe. Other values stay as they are.
        let (foreign, at_work) = (self.redis_key(first), all[1].clone());
        let probes = format!("{}:loss-probe:*:7", self.records.namespace());
        let redis::Value::Array(probes) = self.command(&["KEYS", &probes]).await else { panic!("no keys") };
        for probe in probes {
            let probe: String = redis::from_redis_value(probe).unwrap();
            self.command(&["DEL", &probe]).await;
        }
        self.command(&["SET", &foreign, "not a record"]).await;
        self.command(&["DEL", &self.redis_key(&at_work)]).await;
        self.command(&["DEL", &self.redis_key(&all[2])]).await;
        let mut request = AcquireRequest::new(Key::from_stored(&at_work).unwrap());
        request.lease = Duration::from_mins(1);
        assert!(matches!(self.store().acquire(request).await, Ok(Acquire::Acquired(_))));
        let progress = self.run("a record of the loss probe was lost", settings, BackfillStart::Watermark).await;
        // The one that was committed late is one more.
        self.expect("a record of the loss probe was lost", &progress, [1, all.len() - 2, 1, 1]);
        self.check("a record of the loss probe was lost", &[first, &at_work]).await;
        if self.command(&["GET", &foreign]).await != redis::Value::BulkString(b"not a record".to_vec()) {
            self.faults.push("a value that is not a record was changed".to_owned());
        }
    }

    /// Rows of several steps, while Redis loses records and another backfill runs.
    async fn copy_many_rows(&mut self) {
        let rows = format!(
            "INSERT INTO idempotency_inbox SELECT '{BULK}', 'b' || n, decode(repeat('00', 16), 'hex'), n, 1, 'bulk', \
             now() - n * interval '1 minute' FROM generate_series(1, {BULK_ROWS}) n"
        );
        self.base.client.batch_execute(&rows).await.unwrap();
        let settings = self.settings();
        let mut steps = 0;
        let flush = || {
            let mut connection = redis::Client::open(self.url.clone()).unwrap().get_connection().unwrap();
            let () = redis::cmd("FLUSHDB").query(&mut connection).unwrap();
        };
        let flush_once = |_: &BackfillProgress| {
            steps += 1;
            if steps == 1 {
                flush();
            }
        };
        let backfill = self.backfill(settings.clone());
        let ended = soon(backfill.run(BackfillStart::Watermark, None, flush_once)).await;
        if !matches!(ended, Ok((_, BackfillEnd::Done))) || !self.has_bulk().await {
            self.faults.push(format!("records were lost during a run: {ended:?}"));
        }
        let ended = soon(backfill.run(BackfillStart::Oldest, None, |_| flush())).await;
        if !matches!(ended, Err(BackfillError::RecordsLost)) {
            self.faults.push(format!("records were lost after each step: {ended:?}"));
        }
        let slow = self.backfill(with!(settings.clone(), rows_per_second = NonZeroU32::new(1000).unwrap()));
        let (quick, has_begun) = (self.backfill(settings), Arc::new(Notify::new()));
        let (slow, quick) = soon(async {
            tokio::join!(slow.run(BackfillStart::Oldest, None, |_| has_begun.notify_one()), async {
                has_begun.notified().await;
                quick.run(BackfillStart::Oldest, None, |_| ()).await
            })
        })
        .await;
        let ends = [slow, quick].map(|ended| ended.map(|(_, end)| end).ok());
        if ends != [Some(BackfillEnd::Superseded), Some(BackfillEnd::Done)] || !self.has_bulk().await {
            self.faults.push(format!("two runs ended with {ends:?}"));
        }
        // The rows differ in age.
        self.check("two runs", &[]).await;
    }

    /// Whether Redis has a record of each of the many rows.
    async fn has_bulk(&self) -> bool {
        let redis::Value::Array(keys) = self.command(&["KEYS", &format!("{BULK}:b*")]).await else { return false };
        keys.len() as u64 == BULK_ROWS
    }

    fn redis_key(&self, key: &str) -> String {
        self.records.redis_key(&Key::from_stored(key).unwrap())
    }

    /// Compares numbers of rows: copied, completed before, skipped, and not records.
    fn expect(&mut self, what: &str, progress: &BackfillProgress, expected: [usize; 4]) {
        let BackfillProgress { copied, already_completed, skipped, not_records, .. } = *progress;
        let counts = [copied, already_completed, skipped, not_records];
        if counts != expected.map(|count| count as u64) {
            self.faults.push(format!(
                "{what}: {counts:?} rows were copied, already completed, skipped or not records, not {expected:?}"
            ));
        }
    }

    /// Compares the records with all rows but these.
    async fn check(&mut self, what: &str, but: &[&str]) -> Vec<Row> {
        let namespace = self.records.namespace().to_owned();
        let rows = self.base.client.query(ROWS, &[&namespace]).await.unwrap();
        for row in &rows {
            let key: String = row.get("key");
            let record = self.records.inspect(&Key::from_stored(&key).unwrap()).await.unwrap();
            if !but.contains(&key.as_str()) && !is_copy(row, &record) {
                self.faults.push(format!("{what}: {key} was not copied as its row says: {record:?}, {row:?}"));
            }
        }
        rows
    }
}

/// The keys of the rows that are copied.
fn copied_keys(rows: &[Row]) -> Vec<String> {
    rows.iter().filter(|row| row.get("is_copied")).map(|row| row.get("key")).collect()
}

/// A record lives for 14 days, rounded up to a minute. Redis rounds down to ms.
fn is_copy(row: &Row, record: &Inspected) -> bool {
    let Inspected::Record { view, result, ttl } = record else {
        return *record == Inspected::Absent && !row.get::<_, bool>("is_copied");
    };
    let expected: &[u8] = row.get::<_, Option<&[u8]>>("result").unwrap_or_default();
    let is_large = expected.len() > KEPT_BYTES;
    let state =
        RecordStateView::Completed { result: if is_large { StoredResult::NotKept } else { StoredResult::Inline(()) } };
    let remains = row.get::<_, f64>("remaining_seconds");
    let lives = ttl.is_some_and(|ttl| (remains - 30.0..=remains + 61.0).contains(&ttl.as_secs_f64()));
    let (fingerprint, copied) = (row.get::<_, &[u8]>("fingerprint"), view.fingerprint);
    // One of another length agrees with no payload.
    let is_fingerprint =
        if fingerprint.len() == 16 { fingerprint == copied.as_bytes() } else { copied != Fingerprint::NONE };
    row.get("is_copied")
        && (view.state, i64::try_from(view.fence.0).ok()) == (state, Some(row.get("fence")))
        && i16::from(view.attempts) == row.get::<_, i16>("attempts")
        && is_fingerprint
        && (is_large || result == expected)
        && lives
}

const ROWS: &str = "SELECT key, fingerprint, fence, attempts, result, \
       done_at > now() - interval '14 days' AND result IS NOT NULL AS is_copied, \
       extract(epoch FROM done_at)::float8 AS done_at, \
       extract(epoch FROM done_at + interval '14 days' - now())::float8 AS remaining_seconds \
     FROM idempotency_inbox WHERE namespace = $1 ORDER BY idempotency_inbox.done_at, key";
