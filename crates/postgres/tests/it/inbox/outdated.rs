//! Statements that a migration, a pooler or the work itself made invalid.

use super::sessions::{Sql, ask, one_connection};
use super::*;

/// Migrations that change the type of the parameter of [`STATEMENTS`].
const MIGRATIONS: [&str; 3] = [
    // Removes a value of the type.
    "ALTER TYPE citext RENAME TO old; CREATE TYPE citext AS ENUM ('red'); \
     ALTER TABLE things ALTER COLUMN color TYPE citext USING color::text::citext; DROP TYPE old",
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
async fn a_statement_whose_parameter_has_another_type_is_prepared_again_and_the_attempt_is_not_counted() {
    for (migration, statement) in MIGRATIONS.iter().flat_map(|migration| STATEMENTS.map(|of| (migration, of))) {
        let base = with_things().await;
        let paint = inbox(Paint(statement), one_connection(&base.url()));
        done(&deliver(&flushed(), &paint, "before").await);
        base.client.batch_execute(migration).await.unwrap();
        deliver_until_prepared(&paint, "after").await;
    }
}

/// The second error counts, because another cause could have the same error in each delivery.
#[tokio::test]
async fn a_statement_is_prepared_again_also_after_a_second_migration() {
    let base = with_things().await;
    let (paint, idempotency) = (inbox(Paint(STATEMENTS[1]), one_connection(&base.url())), flushed());
    done(&deliver(&flushed(), &paint, "before").await);
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    deliver_until_prepared(&paint, "after the first").await;
    base.client.batch_execute(MIGRATIONS[0]).await.unwrap();
    assert!(failure(&deliver(&idempotency, &paint, "after the second").await).1.contains("XX000"));
    done(&deliver(&idempotency, &paint, "after the second").await);
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

/// A pooler answers the text of a statement that it has prepared before, also if that one is outdated.
#[tokio::test]
async fn an_outdated_statement_is_prepared_with_another_text() {
    let base = base().await;
    let database = one_connection(&base.url());
    let all = inbox(Sql(vec!["SELECT * FROM effects"], None), database.clone());
    done(&deliver(&flushed(), &all, "before").await);
    let texts =
        "SELECT string_agg(statement, '; ') FROM pg_prepared_statements WHERE statement LIKE 'SELECT * FROM effects%'";
    assert_eq!(ask(&database, vec![texts]).await, "SELECT * FROM effects");
    base.client.batch_execute("ALTER TABLE effects ADD note text").await.unwrap();
    unavailable(&deliver(&flushed(), &all, "outdated").await);
    done(&deliver(&flushed(), &all, "after").await);
    let text = ask(&database, vec![texts]).await;
    // The number of the connection is random: no other process has prepared this text.
    let (number, count) = text.strip_prefix("SELECT * FROM effects\n/* ").unwrap().split_once(' ').unwrap();
    assert!(u32::from_str_radix(number, 16).is_ok() && count == "1 */", "{text}");
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
        let mut counted = 0;
        for _ in 0..6 {
            match &deliver(&idempotency, &work, &name).await.outcome {
                Outcome::Failed { .. } => counted += 1,
                Outcome::Unavailable { error } => assert!(error.to_string().contains("prepared again"), "{error}"),
                other => panic!("{other:?}"),
            }
        }
        // It may seem outdated once.
        assert!(counted >= 5, "{name}: {counted}");
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
    assert!(counted >= 5, "{counted}");
}

/// The COMMIT is no prepared statement, and a function has its own.
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
    let types = "CREATE TYPE color AS ENUM ('red'); CREATE TYPE size AS ENUM ('big'); CREATE TABLE things (color color, size size)";
    base.client.batch_execute(types).await.unwrap();
    let (database, idempotency) = (one_connection(&base.url()), flushed());
    let select = |column| inbox(Sql(vec![column], None), database.clone());
    done(&deliver(&idempotency, &select("SELECT color FROM things"), "first").await);
    // In a DO statement, it is not seen that statements are deallocated.
    for (key, deallocates) in [("seen", "DEALLOCATE ALL"), ("unseen", "DO 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'")] {
        let bad = Sql(vec![deallocates], Some(|| WorkError::permanent("wrong")));
        assert!(failure(&deliver(&idempotency, &inbox(bad, database.clone()), key).await).0.permanent);
        deliver_until_prepared(&select("SELECT size FROM things"), &format!("after {key}")).await;
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
