//! The rows: their columns, their removal, keys of every kind, and the migration.

use super::sessions::one_connection;
use super::*;
use harness::postgres::program;
use std::process::Command;

#[tokio::test]
async fn the_migration_can_be_run_repeatedly_with_psql() {
    let base = Base::empty().await;
    for _ in 0..2 {
        let psql = Command::new(program("psql"))
            .args([
                &base.url(),
                "--single-transaction",
                "--set",
                "ON_ERROR_STOP=1",
                "--quiet",
                "--file",
                "sql/inbox.sql",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    }
    inbox(Pay::default(), database(&base.url())).check().await.unwrap();
}

#[tokio::test]
async fn the_migration_waits_for_no_open_transaction_if_there_is_nothing_to_do() {
    let base = base().await;
    let open = "BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'pay_1', '', 1, 1, ''); \
                INSERT INTO idempotency_backfill VALUES ('payments', '', now(), '')";
    base.client.batch_execute(open).await.unwrap();
    let operator = connect(base.port, &base.name).await;
    // Any wait for a lock fails.
    operator.batch_execute(&format!("SET lock_timeout = 1; BEGIN; {}; COMMIT", migration())).await.unwrap();
}

#[tokio::test]
async fn the_migration_creates_a_missing_index_whatever_another_schema_has() {
    let base = base().await;
    let index = "SELECT count(*) FROM pg_indexes WHERE indexname = 'idempotency_inbox_done_at'";
    base.client.batch_execute("CREATE SCHEMA other; SET search_path = other, public").await.unwrap();
    for indexes in [2, 2] {
        base.client.batch_execute(&migration()).await.unwrap();
        assert_eq!(base.count(index).await, indexes);
        base.client.batch_execute("DROP INDEX other.idempotency_inbox_done_at").await.unwrap();
    }
}

/// The order of another collation may change with the operating system. Then an index no longer finds each row.
#[tokio::test]
async fn keys_are_compared_by_their_bytes_whatever_the_collation_of_the_database() {
    let base = base().await;
    let columns = "SELECT count(*) FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation \
                   WHERE attrelid = ANY ('{idempotency_inbox,idempotency_backfill}'::regclass[]) AND attnum > 0 \
                     AND atttypid = 'text'::regtype AND attname <> 'loss_probe' AND";
    assert_eq!(base.count(&format!("{columns} collname = 'C'")).await, 5);
    assert_eq!(base.count(&format!("{columns} collname <> 'C'")).await, 0);
}

#[tokio::test]
async fn a_missing_or_outdated_table_is_an_error_that_names_the_file_to_run() {
    let base = Base::empty().await;
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    let inbox = inbox(Pay::default(), database(&base.url()));
    let idempotency = flushed();
    let older =
        "CREATE TABLE idempotency_inbox (namespace text, key text, fingerprint bytea, PRIMARY KEY (namespace, key))";
    for before in ["SELECT 1", older] {
        base.client.batch_execute(before).await.unwrap();
        let error = inbox.check().await.unwrap_err().to_string();
        assert!(error.contains("sql/inbox.sql"), "{error}");
        // The deliveries are not at error, and are not counted.
        for _ in 0..7 {
            let error = try_run(&idempotency, &inbox).await.unwrap_err();
            let reason = std::error::Error::source(&error).unwrap().to_string();
            assert!(error.is_unavailable() && reason.contains("sql/inbox.sql"), "{reason}");
        }
    }
    base.client.batch_execute("DROP TABLE idempotency_inbox").await.unwrap();
    base.client.batch_execute(&migration()).await.unwrap();
    inbox.check().await.unwrap();
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!(report.attempts, Some(1));
}

/// Also on a connection that was open before.
#[tokio::test]
async fn a_column_of_another_type_is_an_error_before_the_work_runs() {
    let text = "result TYPE text USING encode(result, 'hex')";
    for column in [text, "result TYPE boolean USING true", "key TYPE bytea USING convert_to(key, 'UTF8')"] {
        let base = base().await;
        let inbox = inbox(Pay::default(), one_connection(&base.url()));
        let idempotency = flushed();
        done(&deliver(&idempotency, &inbox, "before").await);
        base.client.batch_execute(&format!("ALTER TABLE idempotency_inbox ALTER COLUMN {column}")).await.unwrap();
        // The statements may be outdated.
        _ = try_run(&idempotency, &inbox).await;
        let error = inbox.check().await.unwrap_err().to_string();
        assert!(error.contains("sql/inbox.sql"), "{column}: {error}");
        let error = try_run(&idempotency, &inbox).await.unwrap_err();
        assert!(error.is_unavailable(), "{column}: {error}");
        assert_eq!(base.count(EFFECTS).await, 1, "{column}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_an_error_of_the_invocation_and_not_of_its_message() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    done(&run(&flushed(), &inbox).await);
    base.client.batch_execute("ALTER TABLE idempotency_inbox ALTER COLUMN fence TYPE numeric").await.unwrap();
    let reader = super::inbox(Pay::default(), database(&base.url()));
    let idempotency = flushed();
    for _ in 0..3 {
        let error = try_run(&idempotency, &reader).await.unwrap_err();
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.is_unavailable() && reason.contains("sql/inbox.sql"), "{reason}");
    }
    let error = reader.check().await.unwrap_err().to_string();
    assert!(error.contains("sql/inbox.sql"), "{error}");
    base.client.batch_execute("ALTER TABLE idempotency_inbox ALTER COLUMN fence TYPE bigint").await.unwrap();
    let report = run(&idempotency, &inbox).await;
    assert_eq!((duplicate(&report), report.attempts), (b"receipt of pay_1" as &[u8], Some(1)));
}

#[tokio::test]
async fn the_result_may_be_in_a_column_of_a_domain() {
    let base = base().await;
    let domain = "CREATE DOMAIN small AS bytea; ALTER TABLE idempotency_inbox ALTER COLUMN result TYPE small";
    base.client.batch_execute(domain).await.unwrap();
    let inbox = inbox(Pay::default(), database(&base.url()));
    done(&run(&flushed(), &inbox).await);
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"receipt of pay_1");
}

#[tokio::test]
async fn a_user_without_permission_is_an_error_that_names_the_permissions() {
    let base = base().await;
    let user = format!("nobody_{}", base.name);
    base.client.batch_execute(&format!("CREATE ROLE {user} LOGIN")).await.unwrap();
    let inbox = inbox(Pay::default(), database(&base.url().replace("app@", &format!("{user}@"))));
    let error = inbox.check().await.unwrap_err().to_string();
    assert!(error.contains("may not use the table") && error.contains("sql/inbox.sql"), "{error}");
    let right = format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_inbox TO {user}; GRANT INSERT ON effects TO {user}"
    );
    base.client.batch_execute(&right).await.unwrap();
    inbox.check().await.unwrap();
    done(&run(&flushed(), &inbox).await);
    inbox.delete_expired().await.unwrap();
    for missing in ["SELECT", "INSERT", "UPDATE"] {
        base.client.batch_execute(&format!("REVOKE {missing} ON idempotency_inbox FROM {user}")).await.unwrap();
        let error = inbox.check().await.unwrap_err().to_string();
        assert!(error.contains("may not use the table"), "{missing}: {error}");
        base.client.batch_execute(&format!("GRANT {missing} ON idempotency_inbox TO {user}")).await.unwrap();
    }
    inbox.check().await.unwrap();
    assert_eq!(base.count(ROWS).await, 1, "a check changes nothing");
}

#[tokio::test]
async fn an_effect_whose_row_cannot_be_updated_is_rolled_back_and_a_check_says_why() {
    let base = base().await;
    let user = format!("limited_{}", base.name);
    let policies = format!(
        "CREATE ROLE {user} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_inbox, effects TO {user}; \
         ALTER TABLE idempotency_inbox ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY reads ON idempotency_inbox FOR SELECT USING (true); \
         CREATE POLICY inserts ON idempotency_inbox FOR INSERT WITH CHECK (true)"
    );
    base.client.batch_execute(&policies).await.unwrap();
    let inbox = inbox(Pay::default(), database(&base.url().replace("app@", &format!("{user}@"))));
    let skips = "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
                 CREATE TRIGGER skip BEFORE UPDATE ON idempotency_inbox FOR EACH ROW EXECUTE FUNCTION skip()";
    for (key, allows, then) in [
        ("pay_1", "CREATE POLICY updates ON idempotency_inbox FOR UPDATE USING (true)", skips),
        ("pay_2", "DROP TRIGGER skip ON idempotency_inbox", "SELECT 1"),
    ] {
        let error = inbox.check().await.unwrap_err().to_string();
        assert!(error.contains("policies") && error.contains("triggers"), "{error}");
        let before = (base.count(ROWS).await, base.count(EFFECTS).await);
        let (kind, reason) = failure(&deliver(&flushed(), &inbox, key).await);
        assert_eq!((kind, reason), (CLEAN, error));
        assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), before);
        base.client.batch_execute(allows).await.unwrap();
        inbox.check().await.unwrap();
        done(&deliver(&flushed(), &inbox, key).await);
        base.client.batch_execute(then).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_without_a_fingerprint_agrees_with_each_payload_until_it_expires() {
    let base = base().await;
    let inbox = inbox(Pay::default(), database(&base.url()));
    let not_compared = delivery("pay_1").fingerprint(Fingerprint::NONE);
    done(&flushed().run(&not_compared, &inbox, &Message::default()).await.unwrap());
    // From here on payloads are compared.
    assert_eq!(duplicate(&run(&flushed(), &inbox).await), b"receipt of pay_1");
    base.client.batch_execute("UPDATE idempotency_inbox SET done_at = now() - interval '29 days'").await.unwrap();
    done(&run(&flushed(), &inbox).await);
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report = flushed().run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch), "{report:?}");
}

#[tokio::test]
async fn a_row_has_the_key_the_fingerprint_the_fence_the_attempts_and_the_result() {
    let base = base().await;
    let report = run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await;
    let row = base.client.query_one("SELECT * FROM idempotency_inbox", &[]).await.unwrap();
    assert_eq!((row.get("namespace"), row.get("key")), ("payments", "pay_1"));
    assert_eq!(row.get::<_, &[u8]>("fingerprint"), Fingerprint::of(b"12.50 EUR").as_bytes());
    assert_eq!(row.get::<_, i64>("fence"), i64::try_from(report.fence.unwrap().0).unwrap());
    assert_eq!((row.get::<_, i16>("attempts"), row.get::<_, &[u8]>("result")), (1, &b"receipt of pay_1"[..]));
}

#[tokio::test]
async fn consumers_with_different_namespaces_do_not_share_rows() {
    let base = base().await;
    let report = async |namespace: &str| {
        let settings = with!(settings(), namespace = namespace.into());
        let inbox = Inbox::new(Pay::default(), database(&base.url()), settings);
        let payload = delivery("pay_1").fingerprint(Fingerprint::of(namespace.as_bytes()));
        flushed().run(&payload, &inbox, &Message::default()).await.unwrap()
    };
    for namespace in ["payments", "invoices"] {
        done(&report(namespace).await);
    }
    // Each reads its own row, which has its own payload.
    for namespace in ["payments", "invoices"] {
        assert_eq!(duplicate(&report(namespace).await), b"receipt of pay_1");
    }
    assert_eq!(base.count(EFFECTS).await, 2);
}

#[tokio::test]
async fn keys_of_every_kind_are_distinct() {
    let base = base().await;
    let inbox = inbox(Keys, database(&base.url()));
    let long = "k".repeat(100_000);
    let keys = [" ", "größe", "a'b\"c\\", "a\0b", "a\0c", "a", &long, &format!("{long}k"), "pay_1", "PAY_1"];
    for _ in 0..2 {
        for key in keys {
            deliver(&flushed(), &inbox, key).await;
        }
    }
    assert_eq!(base.count(ROWS).await, i64::try_from(keys.len()).unwrap());
}

/// Has no effect.
struct Keys;

impl TransactionalWork<Message> for Keys {
    async fn run(&self, _: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_large_result_is_kept_whole_in_the_inbox() {
    let base = base().await;
    let inbox = inbox(Large, database(&base.url()));
    run(&flushed(), &inbox).await;
    assert_eq!(duplicate(&run(&flushed(), &inbox).await).len(), 1_000_000);
}

struct Large;

impl TransactionalWork<Message> for Large {
    async fn run(&self, _: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        Ok(vec![b'x'; 1_000_000])
    }
}

/// Inserts rows that were done this many days ago.
async fn aged(base: &Base, rows: i32, days: i32) {
    base.client
        .execute(
            "INSERT INTO idempotency_inbox SELECT 'payments', $2::int || '_' || n, '\\x00', 1, 1, '', \
             now() - make_interval(days => $2) FROM generate_series(1, $1) n",
            &[&rows, &days],
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn expired_rows_are_deleted_in_steps_and_others_are_kept() {
    let base = base().await;
    aged(&base, 250, 29).await;
    aged(&base, 10, 27).await;
    base.client.batch_execute("INSERT INTO idempotency_inbox SELECT 'invoices', key, '', 1, 1, '', done_at FROM idempotency_inbox WHERE key LIKE '29_1'").await.unwrap();
    let settings = with!(settings(), cleanup_one_in = NonZeroU32::new(50).unwrap());
    let inbox = Inbox::new(Pay::default(), database(&base.url()), settings);
    let mut steps = Vec::new();
    for _ in 0..4 {
        steps.push(inbox.delete_expired().await.unwrap());
    }
    assert_eq!(steps, [100, 100, 50, 0]);
    assert_eq!(base.count("SELECT count(*) FROM idempotency_inbox WHERE namespace = 'payments'").await, 10);
    assert_eq!(base.count("SELECT count(*) FROM idempotency_inbox WHERE namespace = 'invoices'").await, 1);
}

#[tokio::test]
async fn concurrent_cleanups_do_not_wait_for_each_other() {
    let base = base().await;
    aged(&base, 20, 29).await;
    base.client.batch_execute("BEGIN; SELECT FROM idempotency_inbox WHERE key LIKE '29_1%' FOR UPDATE").await.unwrap();
    let settings = with!(settings(), cleanup_one_in = NonZeroU32::new(50).unwrap());
    let inbox = Inbox::new(Pay::default(), database(&base.url()), settings);
    // Rows 1 and 10 to 19 are locked.
    assert_eq!(inbox.delete_expired().await.unwrap(), 9);
}

/// Executes these statements before each row of the inbox is deleted.
async fn before_delete(base: &Base, statements: &str) {
    let trigger = format!(
        "CREATE FUNCTION before_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statements}; END $$; \
         CREATE TRIGGER before_delete BEFORE DELETE ON idempotency_inbox FOR EACH ROW EXECUTE FUNCTION before_delete()"
    );
    base.client.batch_execute(&trigger).await.unwrap();
}

/// An inbox each of whose attempts deletes expired rows.
fn cleaning(base: &Base) -> Inbox<Pay> {
    let settings = with!(settings(), cleanup_one_in = NonZeroU32::MIN);
    Inbox::new(Pay::default(), database(&base.url()), settings)
}

#[tokio::test]
async fn an_attempt_deletes_expired_rows() {
    let base = base().await;
    aged(&base, 5, 29).await;
    done(&run(&flushed(), &cleaning(&base)).await);
    assert_eq!(base.count(ROWS).await, 4);
}

#[tokio::test]
async fn a_cleanup_that_takes_too_long_is_cancelled_and_the_work_is_done_in_time() {
    let base = base().await;
    aged(&base, 5, 29).await;
    before_delete(&base, "PERFORM pg_sleep(600); RETURN OLD").await;
    let short = delivery("pay_1").deadline(Deadline::within(4 * SECOND));
    let report = soon(flushed().run(&short, &cleaning(&base), &Message::default())).await.unwrap();
    assert_eq!(done(&report), b"receipt of pay_1");
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (6, 1));
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    until_count(&base, asleep, 0).await;
}

/// Returns the time that is left when it begins, in milliseconds.
struct TimeLeft;

impl TransactionalWork<Message> for TimeLeft {
    async fn run(&self, _: &Transaction, claim: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let left = claim.ends().saturating_duration_since(Instant::now());
        Ok(left.as_millis().to_string().into_bytes())
    }
}

#[tokio::test]
async fn a_cleanup_takes_a_tenth_of_the_time_of_its_attempt_at_most() {
    let base = base().await;
    aged(&base, 5, 29).await;
    before_delete(&base, "PERFORM pg_sleep(600); RETURN OLD").await;
    let cleaning = with!(settings(), cleanup_one_in = NonZeroU32::MIN);
    let inbox = Inbox::new(TimeLeft, database(&base.url()), cleaning);
    let deadline = with!(Deadline::within(60 * SECOND), work = Instant::now() + 3 * SECOND);
    let report = soon(flushed().run(&delivery("pay_1").deadline(deadline), &inbox, &Message::default())).await.unwrap();
    let left: u64 = str::from_utf8(done(&report)).unwrap().parse().unwrap();
    // With a whole second for the cleanup, about two would be left.
    assert!((2400..2900).contains(&left), "{left} ms");
}

#[tokio::test]
async fn an_attempt_with_little_time_for_a_cleanup_leaves_it_out_and_keeps_its_connection() {
    let base = base().await;
    aged(&base, 5, 29).await;
    before_delete(&base, "PERFORM pg_sleep(0.2); RETURN OLD").await;
    let database = database(&base.url());
    done(&run(&flushed(), &inbox(Pay::default(), database.clone())).await);
    let pid = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
               AND application_name = 'idempotent-sqs'";
    let opened: i32 = base.client.query_one(pid, &[]).await.unwrap().get(0);
    let cleaning = Inbox::new(Pay::default(), database, with!(settings(), cleanup_one_in = NonZeroU32::MIN));
    // A tenth of it is for the cleanup.
    let deadline = with!(Deadline::within(60 * SECOND), work = tokio::time::Instant::now() + SECOND * 9 / 10);
    let short = delivery("pay_2").deadline(deadline);
    done(&soon(flushed().run(&short, &cleaning, &Message::default())).await.unwrap());
    assert_eq!(base.client.query_one(pid, &[]).await.unwrap().get::<_, i32>(0), opened);
}

#[tokio::test]
async fn a_cleanup_that_fails_does_not_fail_the_work() {
    let base = base().await;
    aged(&base, 5, 29).await;
    before_delete(&base, "RAISE 'as told'").await;
    done(&run(&flushed(), &cleaning(&base)).await);
    assert_eq!((base.count(ROWS).await, base.count(EFFECTS).await), (6, 1));
}

#[tokio::test]
async fn a_key_whose_row_has_expired_is_new() {
    let base = base().await;
    let settings = with!(settings(), retention = Duration::ZERO);
    let inbox = Inbox::new(Pay::default(), database(&base.url()), settings);
    let mut last = 0.0;
    // The row of the first delivery is deleted before the second one, and that of the second one is replaced.
    for (amount, is_deleted) in [("12.50 EUR", true), ("12.50 EUR", false), ("99.00 EUR", false)] {
        let delivery = delivery("pay_1").fingerprint(Fingerprint::of(amount.as_bytes()));
        let report = flushed().run(&delivery, &inbox, &Message::default()).await.unwrap();
        let fence = i64::try_from(report.fence.unwrap().0).unwrap();
        done(&report);
        let columns = "SELECT fence, result, extract(epoch FROM done_at)::float8 FROM idempotency_inbox";
        let row = base.client.query_one(columns, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &[u8]>(1)), (fence, b"receipt of pay_1".as_slice()));
        // Its retention begins anew.
        let done_at: f64 = row.get(2);
        assert!(done_at > last, "{done_at} {last}");
        last = done_at;
        if is_deleted {
            assert_eq!(inbox.delete_expired().await.unwrap(), 1);
        }
    }
    assert_eq!(base.count(EFFECTS).await, 3);
}

#[tokio::test]
async fn the_result_of_an_expired_row_is_not_returned() {
    let base = base().await;
    done(&run(&flushed(), &inbox(Pay::default(), database(&base.url()))).await);
    let settings = with!(settings(), retention = Duration::ZERO);
    let expired = Inbox::new(Pay::default(), database(&base.url()), settings);
    let request = AcquireRequest::new(idempotent_sqs::idempotency::Key::new("pay_1").unwrap());
    let recorded = OwnRecord::<Message>::recorded(&expired, &request, tokio::time::Instant::now() + 5 * SECOND).await;
    assert_eq!(recorded.unwrap(), None);
}

#[tokio::test]
async fn the_cleanup_of_a_table_with_partitions_deletes_no_row_of_another_consumer() {
    let base = base().await;
    base.client
        .batch_execute(
            "ALTER TABLE idempotency_inbox RENAME TO plain; \
             CREATE TABLE idempotency_inbox (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (namespace, key)) \
               PARTITION BY LIST (namespace); \
             CREATE TABLE inbox_of_payments PARTITION OF idempotency_inbox FOR VALUES IN ('payments'); \
             CREATE TABLE inbox_of_invoices PARTITION OF idempotency_inbox FOR VALUES IN ('invoices')",
        )
        .await
        .unwrap();
    let of_invoices = with!(settings(), namespace = "invoices".to_owned());
    let invoices = Inbox::new(Pay::default(), database(&base.url()), of_invoices);
    invoices.check().await.unwrap();
    done(&run(&flushed(), &invoices).await);
    aged(&base, 2, 29).await;
    assert_eq!(cleaning(&base).delete_expired().await.unwrap(), 2);
    duplicate(&run(&flushed(), &invoices).await);
}

#[tokio::test]
async fn rows_can_be_kept_for_ever() {
    let base = base().await;
    aged(&base, 5, 29).await;
    let settings = with!(settings(), retention = Duration::MAX);
    let inbox = Inbox::new(Pay::default(), database(&base.url()), settings);
    assert_eq!(inbox.delete_expired().await.unwrap(), 0);
    assert_eq!(base.count(ROWS).await, 5);
}

/// A table with partitions by the hash of its key, in which rows of different partitions have the same `ctid`.
async fn partitioned_by_hash(base: &Base) {
    let partition = |n| {
        format!("CREATE TABLE inbox_{n} PARTITION OF idempotency_inbox FOR VALUES WITH (MODULUS 8, REMAINDER {n});")
    };
    let partitions = (0..8).map(partition).collect::<Vec<_>>().concat();
    base.client
        .batch_execute(&format!(
            "ALTER TABLE idempotency_inbox RENAME TO plain; \
             CREATE TABLE idempotency_inbox (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (namespace, key)) \
               PARTITION BY HASH (namespace, key); \
             CREATE INDEX ON idempotency_inbox (namespace, done_at); {partitions}"
        ))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_cleanup_of_a_table_with_partitions_deletes_no_more_rows_than_its_limit() {
    let base = base().await;
    partitioned_by_hash(&base).await;
    aged(&base, 200, 29).await;
    let one_in_five = with!(settings(), cleanup_one_in = NonZeroU32::new(5).unwrap());
    let deleted = Inbox::new(Pay::default(), database(&base.url()), one_in_five).delete_expired().await.unwrap();
    assert_eq!(deleted, 10);
}

#[tokio::test]
async fn a_cleanup_of_a_table_with_partitions_skips_rows_that_another_cleanup_has_locked() {
    let base = base().await;
    partitioned_by_hash(&base).await;
    aged(&base, 40, 29).await;
    // Another cleanup has locked the rows of one partition, all of them expired.
    base.client.batch_execute("BEGIN; SELECT FROM inbox_0 FOR UPDATE").await.unwrap();
    let deleted = soon(cleaning(&base).delete_expired()).await;
    base.client.batch_execute("ROLLBACK").await.unwrap();
    assert!(deleted.is_ok(), "{deleted:?}");
}
