//! The servers, and the tables of a run.

use std::sync::Arc;
use std::time::Duration;

use harness::postgres::{Base, Postgres, migration};
use harness::redis::Redis;
use harness::torture::tally::lock;
use history::monotonic_us;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use super::copies::COPIER;
use super::kind::{BRIEF, INVOICES, PAYMENTS, User};
use super::session::{IS_SET, STATE};
use super::tally::Span;
use super::world::World;

/// The servers of all seeds.
pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
}

/// A transaction has a time at which it was committed. All but one user need no password.
const SETTINGS: [&str; 3] = ["track_commit_timestamp=on", "deadlock_timeout=50ms", "max_connections=200"];

impl Servers {
    pub(crate) async fn start() -> Self {
        // Each write is in the file before its reply is sent, so a process that is killed loses none.
        let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "no"]).await;
        let mut postgres = block_in_place(|| Postgres::start_with(&SETTINGS));
        let users = "host all payer 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        postgres.put("pg_hba.conf", users.as_bytes());
        block_in_place(|| postgres.restart_with(&SETTINGS));
        Self { redis, postgres }
    }

    /// The database of a seed. Every other one has an encoding without most characters.
    pub(crate) async fn database(&self, seed: u64, passwords: &str) -> Base {
        let base = if has_all_characters(seed) {
            Base::on(&self.postgres).await
        } else {
            Base::in_latin1_on(&self.postgres).await
        };
        let others = others();
        let users = users(&base.name, passwords);
        for statements in [&migration(), TABLES, IS_SET, TRIGGERS, &others, &users] {
            base.client.batch_execute(statements).await.unwrap();
        }
        base
    }
}

/// Whether the encoding of the database of this seed has every character.
pub(crate) fn has_all_characters(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}

/// What works do, and rows that they lock and read.
const TABLES: &str = "
    CREATE TABLE effects (
        run bigint NOT NULL, at_commit text, transaction xid8 NOT NULL DEFAULT pg_current_xact_id());
    CREATE TABLE failures (
        run bigint NOT NULL, why text NOT NULL, transaction xid8 NOT NULL DEFAULT pg_current_xact_id());
    CREATE TABLE locks (id int PRIMARY KEY, changes int NOT NULL DEFAULT 0);
    INSERT INTO locks SELECT generate_series(0, 2);
    CREATE TYPE citext AS ENUM ('red');
    CREATE TABLE painted (color text);
    CREATE TABLE slow_deletes (seconds float8 NOT NULL);";

/// Effects that fail their commit, and rows that are not updated if the work has it so. A log of all changes of the inbox, which has those of committed transactions. An
/// expired row that is replaced is one that is deleted, and one that is inserted.
const TRIGGERS: &str = "
    CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.at_commit = 'sleep' THEN PERFORM pg_sleep(0.25);
        ELSE RAISE EXCEPTION USING ERRCODE = NEW.at_commit, MESSAGE =
            CASE WHEN NEW.at_commit ~ '^(22|P0)' THEN 'secret-4711' ELSE 'planned' END;
        END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.at_commit IS NOT NULL) EXECUTE FUNCTION at_commit();
    CREATE TABLE changes (
        at timestamptz NOT NULL DEFAULT clock_timestamp(), change text NOT NULL, changed idempotency_inbox NOT NULL,
        transaction xid8 NOT NULL DEFAULT pg_current_xact_id(), begun_at timestamptz NOT NULL DEFAULT now(),
        by text NOT NULL DEFAULT current_setting('application_name'));
    CREATE FUNCTION keep_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RETURN CASE WHEN current_setting('app.keeps_row', true) = 'yes' THEN NULL ELSE NEW END;
    END $$;
    CREATE TRIGGER keep_row BEFORE UPDATE ON idempotency_inbox FOR EACH ROW EXECUTE FUNCTION keep_row();
    CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        PERFORM pg_sleep(seconds) FROM public.slow_deletes
            WHERE TG_OP = 'DELETE' AND current_setting('application_name') LIKE 'owner-%';
        IF TG_OP = 'UPDATE' AND NEW.fence <> OLD.fence THEN
            INSERT INTO public.changes (change, changed) VALUES ('DELETE', OLD);
            INSERT INTO public.changes (change, changed) VALUES ('INSERT', NEW);
        ELSE
            INSERT INTO public.changes (change, changed) SELECT TG_OP, CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON idempotency_inbox
        FOR EACH ROW EXECUTE FUNCTION log_change();";

/// Number of expired rows of each consumer.
pub(crate) const EXPIRED: i64 = 40;

/// The key of a finished row whose fingerprint has another length.
pub(crate) const ODD: &str = "odd";

/// The consumer that has no owner here.
pub(crate) const ARCHIVE: &str = "archive";

/// Rows that are there before: expired ones, those that will not be for a day, unfinished ones, and rows of another
/// consumer, some under keys of messages.
fn others() -> String {
    let consumers = [PAYMENTS, INVOICES, BRIEF].map(|namespace| {
        format!(
            "INSERT INTO idempotency_inbox SELECT '{namespace}', 'expired-' || n, '', n, 1, '', \
               now() - interval '29 days' - n * interval '1 second' FROM generate_series(1, {EXPIRED}) n; \
             INSERT INTO idempotency_inbox SELECT '{namespace}', 'unfinished-' || n, '', n, 1, NULL, \
               now() - interval '29 days' FROM generate_series(1, 20) n;"
        )
    });
    let kept = [PAYMENTS, INVOICES].map(|namespace| {
        format!(
            "INSERT INTO idempotency_inbox SELECT '{namespace}', 'kept-' || n, '', n, 1, '', \
               now() - interval '27 days' FROM generate_series(1, 20) n; \
             INSERT INTO idempotency_inbox VALUES ('{namespace}', '{ODD}', '\\x00', 1, 1, '', now());"
        )
    });
    let archive = format!(
        "INSERT INTO idempotency_inbox SELECT '{ARCHIVE}', 'expired-' || n, '', n, 1, '', \
           now() - interval '99 days' FROM generate_series(1, 100) n; \
         INSERT INTO idempotency_inbox SELECT '{ARCHIVE}', 'k' || p || '-' || n, '\\x00', 1, 1, 'done', now() \
           FROM generate_series(0, 19) p, generate_series(0, 3) n; \
         CREATE TABLE others AS TABLE idempotency_inbox; TRUNCATE changes;"
    );
    consumers.concat() + &kept.concat() + &archive
}

/// Users other than the first one. By default their transactions have another isolation level.
fn users(database: &str, password: &str) -> String {
    let payer = User::Payer.name();
    let crowded = User::Crowded.name();
    format!(
        "DO $$ BEGIN CREATE ROLE {payer} LOGIN; CREATE ROLE {crowded} LOGIN CONNECTION LIMIT 1; CREATE ROLE clerk; \
           CREATE ROLE {COPIER} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; \
         GRANT SELECT ON idempotency_inbox TO {COPIER}; \
         GRANT SELECT, INSERT, UPDATE ON idempotency_backfill TO {COPIER}; \
         ALTER ROLE {payer} PASSWORD '{password}'; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {payer}, {crowded}, clerk; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {payer}, {crowded}, clerk; \
         ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'"
    )
}

/// The state of a session that no work has used.
pub(crate) async fn state(base: &Base) -> Vec<String> {
    base.client.query_one(&format!("SELECT {STATE}"), &[]).await.unwrap().get(0)
}

/// Adds columns to a table now and then, and holds the lock of a row, until the returned tasks are dropped.
pub(crate) fn grow(world: &Arc<World>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let shared = Arc::clone(world);
    tasks.spawn(async move {
        // The driver accepts a text for a type with the first name.
        for of in ["citext", "text"].into_iter().cycle() {
            sleep(Duration::from_millis(120)).await;
            let from_us = monotonic_us();
            let alter = format!(
                "SET lock_timeout = 40; ALTER TABLE painted ALTER COLUMN color TYPE {of} USING color::text::{of}"
            );
            if shared.operator.execute(&alter).await {
                lock(&shared.tally.altered).push(Span::since(from_us));
            }
        }
    });
    let shared = Arc::clone(world);
    tasks.spawn(async move {
        loop {
            let session = shared.operator.session().await;
            let hold = "BEGIN; SELECT FROM locks WHERE id = 0 FOR UPDATE";
            let from_us = monotonic_us();
            if session.batch_execute(hold).await.is_ok() {
                let mut until_us = from_us;
                while session.batch_execute("SELECT").await.is_ok() {
                    until_us = monotonic_us();
                    sleep(Duration::from_millis(30)).await;
                }
                lock(&shared.tally.locked).push(Span { from_us, until_us });
            }
        }
    });
    tasks
}
