//! Payments, while processes are killed and Redis and PostgreSQL fail. Counts what happened to them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use harness::TIMEOUT;
use harness::front::Front;
use harness::postgres::{Base, Postgres, connect, migration};
use harness::torture::faults::{Pair, Rng};
use harness::torture::fixture::Fixture;
use harness::torture::tally::{Sum, Tally};
use harness::torture::{FAULTS_PER_SEED, Length, perform, queue};
use idempotent_sqs::config::Environment;
use idempotent_sqs::idempotency::{Key, StoredResult};
use idempotent_sqs::stores::redis::records::{Inspected, RecordStateView, Records};
use idempotent_sqs::{RedisSettings, RedisStore};
use idempotent_sqs_postgres::BackfillConfig;
use idempotent_sqs_postgres::backfill::{Backfill, BackfillEnd, BackfillStart};
use idempotent_sqs_postgres::database::Row;
use idempotent_sqs_testing::SendRequest;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

/// Enough that most payments do not wait for a lock, and few enough that many arrive late.
const ACCOUNTS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_all_faults_every_payment_is_booked_once_and_the_balances_are_exact() {
    let Length { seeds, messages, first } = Length::from_env();
    let mut sum = Books::default();
    for seed in first..first + seeds {
        sum.add(torture(seed, messages).await);
    }
    print!("{}", sum.table(seeds));
    assert!(sum.lost.is_empty(), "lost: {:#?}", sum.lost);
    assert!(sum.repeated.is_empty(), "booked again: {:#?}", sum.repeated);
    assert!(sum.wrong.is_empty(), "not as the audit says: {:#?}", sum.wrong);
    // On a slow machine, more payments arrive after later ones.
    assert!(sum.applied * 4 > sum.ignored, "{} applied, {} ignored", sum.applied, sum.ignored);
    assert!(
        sum.sum.faults.values().flatten().count() > FAULTS_PER_SEED * usize::try_from(seeds).unwrap(),
        "too few faults"
    );
}

async fn torture(seed: u64, messages: u64) -> Books {
    let mut servers = Servers::start(seed, messages).await;
    let queue = queue(seed);
    let settings = vec![
        ("DATABASE_URL", servers.base.url_by(servers.front.port)),
        ("DATABASE_TIMEOUT_MS", "500".to_owned()),
        // Every other seed proceeds without Redis.
        ("INBOX_WITHOUT_REDIS", if seed.is_multiple_of(2) { "refuse" } else { "proceed" }.to_owned()),
    ];
    let redis = (servers.redis_url(), false);
    let settings = Box::new(move |_| settings.clone());
    let fixture = Arc::new(Fixture::new(env!("CARGO_BIN_EXE_ledger"), redis, &queue, settings).await);
    let events: Vec<String> = (0..messages).map(|n| format!("e-{seed}-{n}")).collect();
    let requests = events.iter().zip(0..).map(|(event, n)| SendRequest::new(payment(event, n)));
    let tally = Arc::clone(&fixture.tally);
    perform(seed, &queue, fixture, requests.collect(), async |rng| servers.inject_fault(rng, &tally).await).await;
    Books { sum: tally.sum(&queue), ..servers.books(&events).await }
}

fn payment(event: &str, n: u64) -> String {
    let kind = if n.is_multiple_of(3) { "DEBIT" } else { "CREDIT" };
    json!({
        "eventId": event, "accountId": format!("a{}", n % ACCOUNTS), "amount": 1 + n * 7919 % 100_000,
        "sequenceId": 1 + n / ACCOUNTS, "type": kind,
    })
    .to_string()
}

/// The servers, which are made to fail.
struct Servers {
    redis: Pair,
    postgres: Postgres,
    front: Front,
    base: Base,
}

/// Bookings and their commits are slow, so that faults occur during them.
const SLOWLY: &str = "
    CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(TG_ARGV[0]::float * random()); RETURN NEW; END $$;
    CREATE TRIGGER in_the_work BEFORE INSERT ON ledger_audit FOR EACH ROW EXECUTE FUNCTION slowly('0.06');
    CREATE CONSTRAINT TRIGGER in_the_commit AFTER INSERT ON ledger_audit DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slowly('0.04')";

/// Rows that the function must keep, and the backfill must not copy: a row past the retention of its record, unfinished
/// rows, one of them past the retention of the inbox, and rows of another consumer, one of them past that retention
/// too, the others under the keys of the payments.
fn others(seed: u64, messages: u64) -> String {
    format!(
        "INSERT INTO idempotency_inbox VALUES \
           ('payments', 'old', '', 1, 1, '', now() - interval '20 days'), \
           ('payments', 'unfinished', '', 1, 1, NULL, now()), \
           ('payments', 'old and unfinished', '', 1, 1, NULL, now() - interval '29 days'), \
           ('invoices', 'old', '', 1, 1, '', now() - interval '29 days'); \
         INSERT INTO idempotency_inbox SELECT 'invoices', 'e-{seed}-' || n, '', 1, 1, '' \
           FROM generate_series(0, {messages} - 1) n; \
         CREATE TABLE others AS TABLE idempotency_inbox"
    )
}

impl Servers {
    async fn start(seed: u64, messages: u64) -> Self {
        let (redis, postgres) = (Pair::start().await, block_in_place(Postgres::start));
        let base = Base::on(&postgres).await;
        let accounts = format!(
            "INSERT INTO ledger_account (account_id, lowest_balance) \
             SELECT 'a' || n, -1000000000000 FROM generate_series(0, {ACCOUNTS} - 1) n"
        );
        let others = others(seed, messages);
        for statements in [&migration(), include_str!("../../sql/ledger.sql"), SLOWLY, &accounts, &others] {
            base.client.batch_execute(statements).await.unwrap();
        }
        let front = Front::to(postgres.port).await;
        Self { redis, postgres, front, base }
    }

    fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.redis.front.port)
    }

    async fn inject_fault(&mut self, rng: &mut Rng, tally: &Tally) {
        let from = Instant::now();
        let kind = match rng.draw(0..7) {
            0 => return self.redis.inject_fault(rng, tally).await,
            1 => {
                self.redis.empty().await;
                "Redis: flushed"
            }
            2 => {
                self.redis.empty().await;
                self.run_backfill(rng).await;
                "Redis: flushed, and filled by the backfill"
            }
            3 => {
                self.front.cut();
                "PostgreSQL: connections cut"
            }
            4 => {
                self.front.drop_replies(true);
                sleep(rng.millis(50..300)).await;
                self.front.cut();
                self.front.drop_replies(false);
                "PostgreSQL: replies lost"
            }
            5 => {
                self.front.drop_requests(true);
                sleep(rng.millis(50..300)).await;
                self.front.cut();
                self.front.drop_requests(false);
                "PostgreSQL: requests lost"
            }
            _ => {
                block_in_place(|| self.postgres.kill());
                sleep(rng.millis(50..300)).await;
                block_in_place(|| self.postgres.restart());
                "PostgreSQL: restarted"
            }
        };
        tally.fault(kind, None, from);
    }

    /// A backfill that relies on the loss probe and the watermark alone.
    fn backfill(&self) -> Backfill<RedisStore> {
        let (redis, database) = (self.redis_url(), self.base.url_by(self.front.port));
        let mut environment = Environment::new(move |name| match name {
            "REDIS_URL" => Some(redis.clone()),
            "DATABASE_URL" => Some(database.clone()),
            "IDEMPOTENCY_NAMESPACE" => Some("payments".to_owned()),
            _ => None,
        });
        let config = BackfillConfig::read(&mut environment);
        let mut config = environment.finish(config).unwrap();
        config.backfill.overlap = Duration::ZERO;
        config.backfill().unwrap()
    }

    /// Runs the backfill alongside the functions. Every third run is aborted. An outage may end a run with an error.
    async fn run_backfill(&self, rng: &mut Rng) {
        let backfill = self.backfill();
        let run = tokio::spawn(async move { backfill.run(BackfillStart::Watermark, None, |_| ()).await });
        if rng.draw(0..3) == 0 {
            sleep(rng.millis(1..50)).await;
            run.abort();
        } else {
            let _ended = timeout(TIMEOUT, run).await.expect("the backfill ends within the timeout").unwrap();
        }
    }

    /// Reads the outcome of these events from the database.
    async fn books(&self, events: &[String]) -> Books {
        let client = connect(self.postgres.port, &self.base.name).await;
        let column = async |query: &str| -> Vec<String> {
            client.query(query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
        };
        let booked = column("SELECT event_id FROM ledger_audit WHERE outcome <> 'REFUSED'").await;
        let lost = events.iter().filter(|event| !booked.contains(event)).cloned().collect();
        let repeated = column(REPEATED).await;
        let mut wrong = Vec::new();
        for query in [WRONG_BALANCE, OUT_OF_TURN, REFUSED, NOT_IN_THE_INBOX, WITHOUT_A_BOOKING, CHANGED] {
            wrong.extend(column(query).await);
        }
        wrong.extend(self.not_copied(client.query(ROWS, &[]).await.unwrap()).await);
        let applied = column("SELECT event_id FROM ledger_audit WHERE outcome = 'APPLIED'").await.len();
        let ignored = column("SELECT event_id FROM ledger_audit WHERE outcome = 'IGNORED'").await.len();
        Books { sum: Sum::default(), lost, repeated, wrong, applied, ignored }
    }

    /// Empties Redis between two runs of the backfill, the second of which has to start at the oldest row. Then
    /// compares the records with the rows.
    async fn not_copied(&self, rows: Vec<Row>) -> Vec<String> {
        for is_emptied in [false, true] {
            if is_emptied {
                self.redis.empty().await;
            }
            let (_, end) = self.backfill().run(BackfillStart::Watermark, None, |_| ()).await.unwrap();
            assert_eq!(end, BackfillEnd::Done);
        }
        let records = Records::new(&RedisSettings::new(self.redis_url().parse().unwrap(), "payments")).unwrap();
        let mut wrong = Vec::new();
        for row in rows {
            let (key, is_to_be_copied): (String, bool) = (row.get("key"), row.get("is_to_be_copied"));
            let record = records.inspect(&Key::new(&key).unwrap()).await.unwrap();
            let is_right = match &record {
                Inspected::Record { view, result, .. } => {
                    is_to_be_copied
                        && view.state == RecordStateView::Completed { result: StoredResult::Inline(()) }
                        && view.fingerprint.as_bytes() == row.get::<_, &[u8]>("fingerprint")
                        && row.get::<_, Option<&[u8]>>("result") == Some(result)
                }
                Inspected::Absent => !is_to_be_copied,
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{key} was not copied as its row says: {record:?}"));
            }
        }
        wrong
    }
}

const REPEATED: &str = "SELECT event_id || ' ' || count(*) FROM ledger_audit GROUP BY event_id HAVING count(*) > 1";

const WRONG_BALANCE: &str = "SELECT account_id || ' holds ' || balance || ' at ' || last_sequence_id \
     FROM ledger_account LEFT JOIN ( \
       SELECT account_id, sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) AS sum, max(sequence_id) AS last \
       FROM ledger_audit WHERE outcome = 'APPLIED' GROUP BY account_id) applied USING (account_id) \
     WHERE (balance, last_sequence_id) IS DISTINCT FROM (coalesce(sum, 0)::bigint, coalesce(last, 0))";

/// The bookings of each account, in order: sequence ids increase, and each balance follows from the previous one.
const OUT_OF_TURN: &str = "SELECT event_id || ' was booked out of turn' FROM ( \
       SELECT event_id, sequence_id, balance, CASE type WHEN 'CREDIT' THEN amount ELSE -amount END AS change, \
         lag(sequence_id) OVER turn AS last, lag(balance, 1, 0::bigint) OVER turn AS before \
       FROM ledger_audit WHERE outcome = 'APPLIED' WINDOW turn AS (PARTITION BY account_id ORDER BY id)) booked \
     WHERE sequence_id <= last OR balance <> before + change";

const REFUSED: &str = "SELECT event_id || ' was refused: ' || reason FROM ledger_audit WHERE outcome = 'REFUSED'";

const NOT_IN_THE_INBOX: &str = "SELECT event_id || ' is not in the inbox' FROM ledger_audit \
     WHERE event_id NOT IN (SELECT key FROM idempotency_inbox WHERE namespace = 'payments')";

/// A row commits with its result and with the booking of the same claim.
const WITHOUT_A_BOOKING: &str = "SELECT key || ' has no booking, or no result' \
     FROM (TABLE idempotency_inbox EXCEPT TABLE others) done \
     WHERE result IS NULL OR (key, fence) NOT IN (SELECT event_id, fence FROM ledger_audit)";

/// A record lives for 14 days.
const ROWS: &str = "SELECT key, fingerprint, result, \
       done_at > now() - interval '14 days' AND result IS NOT NULL AS is_to_be_copied \
     FROM idempotency_inbox WHERE namespace = 'payments'";

const CHANGED: &str = "SELECT namespace || ' ' || key || ' was changed or deleted' \
     FROM (TABLE others EXCEPT TABLE idempotency_inbox) changed";

/// The outcome of a run.
#[derive(Default)]
struct Books {
    sum: Sum,
    lost: Vec<String>,
    /// No fault is a reason for a repetition here.
    repeated: Vec<String>,
    wrong: Vec<String>,
    applied: usize,
    ignored: usize,
}

impl Books {
    fn add(&mut self, other: Self) {
        self.sum.add(other.sum);
        self.lost.extend(other.lost);
        self.repeated.extend(other.repeated);
        self.wrong.extend(other.wrong);
        self.applied += other.applied;
        self.ignored += other.ignored;
    }

    fn table(&self, seeds: u64) -> String {
        let mut table = self.sum.table(seeds);
        let counts = [
            ("payments lost", self.lost.len()),
            ("payments repeated", self.repeated.len()),
            ("payments applied", self.applied),
            ("payments ignored, as they came too late", self.ignored),
            ("balances and bookings that are wrong", self.wrong.len()),
        ];
        for (what, count) in counts {
            writeln!(table, "  {what:<44}{count:>6}").unwrap();
        }
        table
    }
}
