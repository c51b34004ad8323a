//! Statements that a migration, a pooler or the work itself made invalid.

use std::error::Error;

use idempotent_sqs_postgres::DatabaseError;
use idempotent_sqs_postgres::database::types::private::BytesMut;
use idempotent_sqs_postgres::database::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

use super::sessions::{Sql, one_connection};
use super::tenants::with_tenants;
use super::*;

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

pub(super) const STATEMENTS: [&str; 2] =
    ["INSERT INTO things VALUES ($1)", "UPDATE things SET color = $1 WHERE color = $1"];

/// Executes a statement with this value.
struct Paint(&'static str, &'static (dyn ToSql + Sync));

impl TransactionalWork<Message> for Paint {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[self.1]).await?;
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
        let paint = inbox(Paint(statement, &"red"), one_connection(&base.url()));
        done(&deliver(&flushed(), &paint, "before").await);
        base.client.batch_execute(migration).await.unwrap();
        deliver_until_prepared(&paint, "after").await;
    }
}

/// It is prepared at each use then.
#[tokio::test]
async fn after_a_second_migration_of_its_parameter_a_statement_succeeds_at_once() {
    let base = with_things().await;
    let paint = inbox(Paint(STATEMENTS[1], &"red"), one_connection(&base.url()));
    done(&deliver(&flushed(), &paint, "before").await);
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    deliver_until_prepared(&paint, "after the first").await;
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    done(&deliver(&flushed(), &paint, "after the second").await);
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

/// The driver keeps the values of each type.
#[tokio::test]
async fn a_statement_succeeds_once_its_type_has_the_value_that_it_writes() {
    let base = base().await;
    base.client.batch_execute("CREATE TYPE color AS ENUM ('blue'); CREATE TABLE things (color color)").await.unwrap();
    let (paint, idempotency) = (inbox(Paint(STATEMENTS[0], &Red), one_connection(&base.url())), flushed());
    assert!(!failure(&deliver(&idempotency, &paint, "red").await).0.permanent);
    base.client.batch_execute("ALTER TYPE color ADD VALUE 'red'").await.unwrap();
    done(&deliver(&idempotency, &paint, "red").await);
}

/// The first delivery may find an outdated statement. It does not count, and the next one succeeds.
pub(super) async fn deliver_until_prepared<W: TransactionalWork<Message>>(inbox: &Inbox<W>, key: &str) {
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

/// The message may succeed with another version of the program, or of the tables.
#[tokio::test]
async fn a_statement_that_does_not_match_its_values_is_counted_and_not_permanent() {
    let base = base().await;
    for (statement, reason) in
        [("SELECT $1::int", "the Postgres type `int4`"), ("SELECT $1::text || $2", "expected 2 parameters but got 1")]
    {
        let (wrong, idempotency) = (inbox(Paint(statement, &"red"), one_connection(&base.url())), flushed());
        for attempts in [1, 2] {
            let report = deliver(&idempotency, &wrong, statement).await;
            let (failed, error) = failure(&report);
            assert!(!failed.permanent && error.contains(reason), "{report:?}");
            assert_eq!(report.attempts, Some(attempts));
        }
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
