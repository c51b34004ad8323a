//! Statements that a migration, a pooler or the work itself made invalid.

use std::collections::HashSet;
use std::error::Error;

use idempotent_sqs_postgres::DatabaseError;
use idempotent_sqs_postgres::database::types::private::BytesMut;
use idempotent_sqs_postgres::database::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

use super::sessions::{Sql, ask, one_connection, pooler_of_a_latin1_session};
use super::*;

/// A database whose new sessions log what they prepare.
async fn with_log() -> Base {
    let base = base().await;
    let log = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_min_duration_statement = 0', current_database()); END $$";
    base.client.batch_execute(log).await.unwrap();
    base
}

/// The endings of the texts under which this statement was prepared, by the log of the server.
async fn prepared(base: &Base, statement: &str) -> Vec<String> {
    let log = "SELECT pg_read_file(current_setting('data_directory') || '/../log')";
    let log: String = base.client.query_one(log, &[]).await.unwrap().get(0);
    // The name of the statement is s0, s1 and so on.
    let texts = log.split("  parse s").filter_map(|text| text.split_once(": ")?.1.strip_prefix(statement));
    texts.map(|ending| ending.split("*/").next().unwrap_or_default().to_owned()).collect()
}

/// Migrations that change the type of the parameter of [`STATEMENTS`].
const MIGRATIONS: [&str; 4] = [
    // Removes a value of the type.
    "ALTER TYPE citext RENAME TO old; CREATE TYPE citext AS ENUM ('red'); \
     ALTER TABLE things ALTER COLUMN color TYPE citext USING color::text::citext; DROP TYPE old",
    "ALTER TYPE citext RENAME TO old; CREATE TYPE citext AS ENUM ('red'); \
     ALTER TABLE things ALTER COLUMN color TYPE citext USING color::text::citext",
    "ALTER TABLE things ALTER COLUMN color TYPE text USING color::text; DROP TYPE citext",
    "ALTER TABLE things ALTER COLUMN color TYPE text USING color::text",
];

const STATEMENTS: [&str; 2] = ["INSERT INTO things VALUES ($1)", "UPDATE things SET color = $1 WHERE color = $1"];

/// Executes a statement with a color.
struct Paint(&'static str);

impl TransactionalWork<Message> for Paint {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[&"red"]).await?;
        Ok(Vec::new())
    }
}

/// A table with a column of a type of its own. The driver accepts a text for a type with this name.
async fn with_things() -> Base {
    let base = base().await;
    let things = "CREATE TYPE citext AS ENUM ('red', 'blue'); CREATE TABLE things (color citext)";
    base.client.batch_execute(things).await.unwrap();
    base
}

#[tokio::test]
async fn after_a_migration_of_its_parameter_a_statement_succeeds_and_no_attempt_is_counted() {
    for (migration, statement) in MIGRATIONS.iter().flat_map(|migration| STATEMENTS.map(|of| (migration, of))) {
        let base = with_things().await;
        let paint = inbox(Paint(statement), one_connection(&base.url()));
        done(&deliver(&flushed(), &paint, "before").await);
        base.client.batch_execute(migration).await.unwrap();
        deliver_until_prepared(&paint, "after").await;
    }
}

/// It is prepared at each use then.
#[tokio::test]
async fn after_a_second_migration_of_its_parameter_a_statement_succeeds_at_once() {
    let base = with_things().await;
    let paint = inbox(Paint(STATEMENTS[1]), one_connection(&base.url()));
    done(&deliver(&flushed(), &paint, "before").await);
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    deliver_until_prepared(&paint, "after the first").await;
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    done(&deliver(&flushed(), &paint, "after the second").await);
}

/// A pooler answers a text that any client has prepared before with the old statement.
#[tokio::test]
async fn a_statement_is_prepared_once_for_each_connection_with_a_text_that_no_other_one_sends() {
    let base = with_log().await;
    for database in [one_connection(&base.url()), one_connection(&base.url())] {
        for _ in 0..2 {
            ask(&database, vec!["SELECT 'the same' -- twice"]).await;
        }
    }
    let texts = prepared(&base, "SELECT 'the same' -- twice").await;
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_ne!(texts[0], texts[1]);
}

/// Executes a statement with a parameter, and reads the row of another one.
struct ExecutesAndReads(&'static str, &'static str);

impl TransactionalWork<Message> for ExecutesAndReads {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[&true]).await?;
        transaction.query(self.1, &[]).await?;
        Ok(Vec::new())
    }
}

/// In another session, parameters and columns may have other types. So the types of parameters are read, and are part of
/// what is prepared. A statement with another name shows the pooler.
#[tokio::test]
async fn behind_a_pooler_a_statement_is_prepared_with_its_types_and_at_each_use_if_its_rows_are_read() {
    let base = with_log().await;
    let port = pooler_of_a_latin1_session(&base, "PREPARE PGBOUNCER_1 AS SELECT 1").await;
    let pooled = one_connection(&base.url_by(port));
    for (database, executed, read, times) in [
        (pooled, "SELECT $1::bool, 'behind a pooler'", "SELECT 'read behind a pooler'", (2, 3)),
        (one_connection(&base.url()), "SELECT $1::bool, 'directly'", "SELECT 'read directly'", (1, 1)),
    ] {
        let work = inbox(ExecutesAndReads(executed, read), database);
        for key in ["a", "b", "c"] {
            done(&deliver(&flushed(), &work, &format!("{key} {read}")).await);
        }
        assert_eq!((prepared(&base, executed).await.len(), prepared(&base, read).await.len()), times, "{read}");
    }
}

/// The look for a pooler fails the first transaction, which begins again.
#[tokio::test]
async fn a_user_who_may_not_list_prepared_statements_is_served() {
    let base = base().await;
    let user = format!("unlisted_{}", base.name);
    let rights = format!(
        "CREATE ROLE {user} LOGIN; GRANT ALL ON idempotency_inbox, effects TO {user}; \
         REVOKE SELECT ON pg_prepared_statements FROM PUBLIC"
    );
    base.client.batch_execute(&rights).await.unwrap();
    let inbox = inbox(Pay::default(), one_connection(&base.url().replace("app@", &format!("{user}@"))));
    let report = deliver(&flushed(), &inbox, "pay_1").await;
    assert_eq!((done(&report), report.attempts), (b"receipt of pay_1".as_slice(), Some(1)));
}

/// The driver does not send the last statement, so the COMMIT takes effect.
#[tokio::test]
async fn a_commit_without_its_last_statement_is_uncertain() {
    let base = base().await;
    let domain = "CREATE DOMAIN small AS bytea; ALTER TABLE idempotency_inbox ALTER COLUMN result TYPE small";
    base.client.batch_execute(domain).await.unwrap();
    let inbox = inbox(Pay::default(), one_connection(&base.url()));
    for key in ["first", "second", "third"] {
        let report = deliver(&flushed(), &inbox, key).await;
        assert!(matches!(report.outcome, Outcome::Failed { uncertain: true, .. }), "{report:?}");
    }
}

#[tokio::test]
async fn an_outdated_statement_is_prepared_at_each_use_with_another_text() {
    let base = with_log().await;
    let all = inbox(Sql(vec!["SELECT * FROM effects"], None), one_connection(&base.url()));
    for (key, column) in [("before", "one"), ("after", "two"), ("later", "three")] {
        deliver_until_prepared(&all, key).await;
        base.client.batch_execute(&format!("ALTER TABLE effects ADD {column} text")).await.unwrap();
    }
    let texts = prepared(&base, "SELECT * FROM effects").await;
    assert_eq!((texts.len(), texts.iter().collect::<HashSet<_>>().len()), (3, 3), "{texts:?}");
}

/// A migration of a table that many statements use.
#[tokio::test]
async fn a_migration_makes_one_statement_of_a_connection_outdated_and_the_others_are_prepared_again() {
    let base = base().await;
    let statements = ["SELECT * FROM effects", "SELECT * FROM effects LIMIT 1", "SELECT * FROM effects LIMIT 2"];
    let all = inbox(Sql(statements.to_vec(), None), one_connection(&base.url()));
    done(&deliver(&flushed(), &all, "before").await);
    base.client.batch_execute("ALTER TABLE effects ADD note text").await.unwrap();
    deliver_until_prepared(&all, "after").await;
}

/// Writes a value of an enum that has it, as an enum in Rust does.
#[derive(Debug)]
struct Red;

impl ToSql for Red {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(b"red");
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Enum(values) if values.iter().any(|value| value == "red"))
    }

    to_sql_checked!();
}

struct PaintRed;

impl TransactionalWork<Message> for PaintRed {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(STATEMENTS[0], &[&Red]).await?;
        Ok(Vec::new())
    }
}

/// The driver keeps the values of each type.
#[tokio::test]
async fn a_statement_succeeds_once_its_type_has_the_value_that_it_writes() {
    let base = base().await;
    base.client.batch_execute("CREATE TYPE color AS ENUM ('blue'); CREATE TABLE things (color color)").await.unwrap();
    let (paint, idempotency) = (inbox(PaintRed, one_connection(&base.url())), flushed());
    assert!(!failure(&deliver(&idempotency, &paint, "red").await).0.permanent);
    base.client.batch_execute("ALTER TYPE color ADD VALUE 'red'").await.unwrap();
    done(&deliver(&idempotency, &paint, "red").await);
}

/// The first delivery may find an outdated statement. It does not count, and the next one succeeds.
async fn deliver_until_prepared<W: TransactionalWork<Message>>(inbox: &Inbox<W>, key: &str) {
    let idempotency = flushed();
    let mut report = deliver(&idempotency, inbox, key).await;
    if let Outcome::Unavailable { error } = &report.outcome {
        assert!(error.to_string().contains("prepared again"), "{key}: {error}");
        report = deliver(&idempotency, inbox, key).await;
    }
    done(&report);
    assert_eq!(report.attempts, Some(1), "{key}");
}

/// A statement that has never been valid is an error of the work.
#[tokio::test]
async fn a_new_statement_with_a_wrong_type_is_counted() {
    let base = with_things().await;
    let (wrong, idempotency) = (Sql(vec!["UPDATE things SET color = 1"], None), flushed());
    let wrong = inbox(wrong, one_connection(&base.url()));
    for attempts in [1, 2] {
        let report = deliver(&idempotency, &wrong, "wrong").await;
        assert!(failure(&report).1.contains("42804"), "{report:?}");
        assert_eq!(report.attempts, Some(attempts));
    }
}

/// Tenants whose tables have a column of different types.
async fn with_columns(types: [&str; 2]) -> Base {
    let base = base().await;
    let [a, b] = types;
    let tables = format!(
        "CREATE TYPE citext AS ENUM ('red', 'blue'); CREATE SCHEMA a; CREATE SCHEMA b; \
         CREATE TABLE a.things (color {a}); CREATE TABLE b.things (color {b}); \
         INSERT INTO a.things VALUES (NULL); INSERT INTO b.things VALUES (NULL)"
    );
    base.client.batch_execute(&tables).await.unwrap();
    base
}

/// Executes a statement for a tenant.
struct ForTenant(&'static str, &'static str);

impl TransactionalWork<Message> for ForTenant {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[]).await?;
        let colors: &[&(dyn ToSql + Sync)] = if self.1.contains("$1") { &[&"red"] } else { &[] };
        transaction.query(self.1, colors).await?;
        transaction.execute("SET LOCAL search_path = public", &[]).await?;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn tenants_whose_tables_have_other_types_use_up_no_attempts() {
    for (types, statement) in [(["int", "bigint"], "SELECT color FROM things"), (["text", "citext"], STATEMENTS[0])] {
        let base = with_columns(types).await;
        let database = one_connection(&base.url());
        let of = |path| inbox(ForTenant(path, statement), database.clone());
        let (a, b) = (of("SET LOCAL search_path = a, public"), of("SET LOCAL search_path = b, public"));
        for number in 0..5 {
            done(&deliver(&flushed(), &a, &format!("a {number}")).await);
            deliver_until_prepared(&b, &format!("b {number}")).await;
        }
    }
}

/// The message may succeed with another version of the program, or of the tables.
#[tokio::test]
async fn a_statement_that_does_not_match_its_values_is_counted_and_not_permanent() {
    let base = base().await;
    for (statement, reason) in
        [("SELECT $1::int", "the Postgres type `int4`"), ("SELECT $1::text || $2", "expected 2 parameters but got 1")]
    {
        let (wrong, idempotency) = (inbox(Paint(statement), one_connection(&base.url())), flushed());
        for attempts in [1, 2] {
            let report = deliver(&idempotency, &wrong, statement).await;
            let (failed, error) = failure(&report);
            assert!(!failed.permanent && error.contains(reason), "{report:?}");
            assert_eq!(report.attempts, Some(attempts));
        }
    }
}

/// The type of the values of a tenant is that of its table.
struct OfType(&'static str, bool);

impl TransactionalWork<Message> for OfType {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[]).await?;
        let value: &(dyn ToSql + Sync) = if self.1 { &1_i64 } else { &1_i32 };
        transaction.execute("INSERT INTO things VALUES ($1)", &[value]).await?;
        transaction.execute("SET LOCAL search_path = public", &[]).await?;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn tenants_whose_values_have_other_types_use_up_no_attempts() {
    let base = with_columns(["int", "bigint"]).await;
    let database = one_connection(&base.url());
    let a = inbox(OfType("SET LOCAL search_path = a, public", false), database.clone());
    let b = inbox(OfType("SET LOCAL search_path = b, public", true), database);
    for number in 0..3 {
        done(&deliver(&flushed(), &a, &format!("a {number}")).await);
        deliver_until_prepared(&b, &format!("b {number}")).await;
    }
}

/// Reads a NULL as a number.
struct Reads;

impl TransactionalWork<Message> for Reads {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let row = transaction.query_first("SELECT NULL::bigint", &[]).await?.unwrap();
        row.try_get::<_, i64>(0).map_err(DatabaseError::from)?;
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_null_that_is_read_as_a_value_is_counted_and_not_permanent() {
    let base = base().await;
    let report = deliver(&flushed(), &inbox(Reads, database(&base.url())), "null").await;
    let (failed, error) = failure(&report);
    assert!(!failed.permanent && error.contains("NULL"), "{report:?}");
}

#[tokio::test]
async fn a_statement_that_does_not_return_rows_but_copies_them_is_counted_and_not_permanent() {
    let base = base().await;
    let copies = Sql(vec!["COPY effects TO STDOUT"], None);
    let (copies, idempotency) = (inbox(copies, one_connection(&base.url())), flushed());
    for attempts in [1, 2] {
        let report = deliver(&idempotency, &copies, "copies").await;
        assert!(!failure(&report).0.permanent, "{report:?}");
        assert_eq!(report.attempts, Some(attempts));
    }
}

/// Two tenants with a schema each, of which one lacks the function.
async fn with_tenants() -> Base {
    let base = base().await;
    let tenants = "CREATE SCHEMA good; CREATE SCHEMA bad; \
                   CREATE FUNCTION good.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'";
    base.client.batch_execute(tenants).await.unwrap();
    base
}

/// Statements that the server analyzes only when they are executed, and tenants with a path of their own.
#[tokio::test]
async fn a_statement_that_cannot_succeed_is_counted_although_its_error_is_that_of_an_outdated_one() {
    let base = with_tenants().await;
    let database = one_connection(&base.url());
    for statements in [
        vec!["CREATE TEMP VIEW v AS SELECT nofunc(1)"],
        vec!["CREATE TEMP TABLE staging (id int CHECK (id))"],
        vec![
            "SET LOCAL search_path = good, public",
            "SELECT f(1)",
            "SET LOCAL search_path = bad, public",
            "SELECT f(1)",
        ],
    ] {
        let name = statements.join("; ");
        let (idempotency, work) = (flushed(), inbox(Sql(statements, None), database.clone()));
        for attempts in [1, 2] {
            let report = deliver(&idempotency, &work, &name).await;
            failure(&report);
            assert_eq!(report.attempts, Some(attempts), "{name}");
        }
    }
}

/// A message of a tenant that lacks a function, among those of others.
#[tokio::test]
async fn a_statement_that_fails_for_one_tenant_is_counted() {
    let base = with_tenants().await;
    let (database, idempotency) = (one_connection(&base.url()), flushed());
    let of = |path| inbox(Sql(vec![path, "SELECT f(1)", "SET LOCAL search_path = public"], None), database.clone());
    let (good, bad) = (of("SET LOCAL search_path = good, public"), of("SET LOCAL search_path = bad, public"));
    let mut counted = 0;
    for number in 0..6 {
        done(&deliver(&idempotency, &good, &format!("good {number}")).await);
        counted += u32::from(matches!(deliver(&idempotency, &bad, "bad").await.outcome, Outcome::Failed { .. }));
    }
    assert_eq!(counted, 6);
}

/// A function has prepared statements of its own.
#[tokio::test]
async fn a_missing_statement_in_a_function_or_a_deferred_trigger_is_counted() {
    let base = base().await;
    let raises = "CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS \
                  $$ BEGIN RAISE 'as told' USING ERRCODE = '26000'; END $$; CREATE TABLE late (id int); \
                  CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED \
                  FOR EACH ROW EXECUTE FUNCTION raises()";
    base.client.batch_execute(raises).await.unwrap();
    let database = one_connection(&base.url());
    for statement in ["DO $$ BEGIN EXECUTE 'EXECUTE missing'; END $$", "INSERT INTO late VALUES (1)"] {
        let (work, idempotency) = (inbox(Sql(vec![statement], None), database.clone()), flushed());
        for attempts in [1, 2, 3] {
            let report = deliver(&idempotency, &work, statement).await;
            assert!(failure(&report).1.contains("26000"), "{report:?}");
            assert_eq!(report.attempts, Some(attempts), "{statement}");
        }
    }
}

/// The driver keeps statements of its own, which read types.
#[tokio::test]
async fn after_work_that_deallocates_and_fails_statements_with_other_types_succeed() {
    let base = base().await;
    let types = "CREATE TYPE color AS ENUM ('red'); CREATE TYPE size AS ENUM ('big'); CREATE TYPE shape AS ENUM ('round'); \
                 CREATE TABLE things (color color, size size, shape shape)";
    base.client.batch_execute(types).await.unwrap();
    let (database, idempotency) = (one_connection(&base.url()), flushed());
    let select = |column| inbox(Sql(vec![column], None), database.clone());
    done(&deliver(&idempotency, &select("SELECT color FROM things"), "first").await);
    // In a DO statement, it is not seen that statements are deallocated.
    for (deallocates, next) in [
        ("DEALLOCATE ALL", "SELECT size FROM things"),
        ("DO 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'", "SELECT shape FROM things"),
    ] {
        let bad = Sql(vec![deallocates], Some(|| WorkError::permanent("wrong")));
        assert!(failure(&deliver(&idempotency, &inbox(bad, database.clone()), deallocates).await).0.permanent);
        deliver_until_prepared(&select(next), next).await;
    }
}

#[tokio::test]
async fn a_missing_statement_of_the_work_itself_is_counted() {
    let base = base().await;
    let database = one_connection(&base.url());
    for statement in ["EXECUTE missing", "/* of the work */ deallocate missing", "DEALLOCATE ALL"] {
        let (work, idempotency) = (inbox(Sql(vec![statement], None), database.clone()), flushed());
        for attempts in [1, 2, 3] {
            let report = deliver(&idempotency, &work, statement).await;
            assert!(failure(&report).1.contains("26000"), "{report:?}");
            assert_eq!(report.attempts, Some(attempts), "{statement}");
        }
    }
}
