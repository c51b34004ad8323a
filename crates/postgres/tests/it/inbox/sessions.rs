//! State that the work leaves in its session.

use super::*;
use std::num::NonZeroUsize;

/// Executes these statements. The result is the first text column of the last one.
pub(super) struct Sql(pub(super) Vec<&'static str>, pub(super) Option<fn() -> WorkError>);

impl TransactionalWork<Message> for Sql {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        let mut result = String::new();
        for statement in &self.0 {
            let row = transaction.query_first(statement, &[]).await?;
            result = row.and_then(|row| row.try_get(0).ok()).unwrap_or_default();
        }
        self.1.map_or(Ok(result.into_bytes()), |fails| Err(fails()))
    }
}

pub(super) fn one_connection(url: &str) -> Database {
    let mut settings = database_settings(url);
    settings.connections = NonZeroUsize::MIN;
    Database::new(&settings)
}

/// The result of the last of these statements, in a new message.
pub(super) async fn ask(database: &Database, statements: Vec<&'static str>) -> String {
    let report = run(&flushed(), &Inbox::new(Sql(statements, None), database.clone(), forgetful())).await;
    String::from_utf8(done(&report).to_vec()).unwrap()
}

/// Settings with a new namespace.
fn forgetful() -> InboxSettings {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    with!(settings(), namespace = COUNT.fetch_add(1, Ordering::SeqCst).to_string())
}

const PID: &str = "SELECT pg_backend_pid()::text";

const SQL_PREPARED: &str = "SELECT count(*)::text FROM pg_prepared_statements WHERE from_sql";

/// A statement that changes the session, and one that reads the change.
const LEFT: [(&str, &str); 15] = [
    ("SET search_path = public, nowhere", "SELECT current_setting('search_path')"),
    ("SELECT set_config('app.tenant', 'first', false)", "SELECT coalesce(current_setting('app.tenant', true), '')"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SELECT current_setting('default_transaction_read_only')"),
    ("SET ROLE pg_monitor", "SELECT current_user::text"),
    ("SET SESSION AUTHORIZATION pg_monitor", "SELECT session_user::text"),
    ("CREATE TEMP TABLE effects (key text)", "SELECT 'effects'::regclass::oid::text"),
    ("LISTEN payments", "SELECT count(*)::text FROM pg_listening_channels()"),
    ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1", "SELECT count(*)::text FROM pg_cursors"),
    ("SELECT pg_advisory_lock(1)", "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'"),
    ("SELECT nextval('numbers')", "SELECT is_set()"),
    ("PREPARE mine AS SELECT 1", SQL_PREPARED),
    ("/* of /* a */ message */ PREPARE mine AS SELECT 1", SQL_PREPARED),
    ("-- a comment\nprepare/**/mine AS SELECT 1", SQL_PREPARED),
    ("-- a comment\rPREPARE mine AS SELECT 1", SQL_PREPARED),
    (" ;; /* a */ ; PREPARE mine AS SELECT 1", SQL_PREPARED),
];

/// Reads whether the session has used a sequence. Every role of these tests may use the inbox.
const IS_SET: &str = "CREATE SEQUENCE numbers; GRANT ALL ON idempotency_inbox TO pg_monitor; CREATE FUNCTION is_set() RETURNS text LANGUAGE plpgsql AS \
                      $$ BEGIN PERFORM lastval(); RETURN 'yes'; EXCEPTION WHEN OTHERS THEN RETURN 'no'; END $$";

#[tokio::test]
async fn the_session_is_reset_after_each_message() {
    let base = base().await;
    base.client.batch_execute(IS_SET).await.unwrap();
    let ends: [Option<fn() -> WorkError>; 2] = [None, Some(|| WorkError::retryable("not now"))];
    for (leaves, sees) in LEFT {
        let untouched = ask(&one_connection(&base.url()), vec![sees]).await;
        for end in ends {
            let database = one_connection(&base.url());
            let before = ask(&database, vec![PID]).await;
            let first = Inbox::new(Sql(vec![leaves], end), database.clone(), forgetful());
            run(&flushed(), &first).await;
            assert_eq!(ask(&database, vec![sees]).await, untouched, "{leaves}");
            // A statement that SQL has prepared ends only with its session.
            let is_kept = ask(&database, vec![PID]).await == before;
            assert_eq!(is_kept, sees != SQL_PREPARED, "{leaves}");
        }
    }
}

#[tokio::test]
async fn a_session_lock_is_released_when_its_message_ends() {
    let base = base().await;
    let database = one_connection(&base.url());
    ask(&database, vec!["SELECT pg_advisory_lock(1)"]).await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(base.count(locks).await, 0);
}

#[tokio::test]
async fn a_session_that_cannot_be_reset_is_closed_and_its_commit_is_kept() {
    let base = base().await;
    let user = format!("unprivileged_{}", base.name);
    let rights = format!(
        "CREATE ROLE {user} LOGIN; GRANT ALL ON idempotency_inbox TO {user}; \
         REVOKE EXECUTE ON FUNCTION pg_advisory_unlock_all() FROM PUBLIC"
    );
    base.client.batch_execute(&rights).await.unwrap();
    let database = one_connection(&base.url().replace("app@", &format!("{user}@")));
    let (first, second) = (ask(&database, vec![PID]).await, ask(&database, vec![PID]).await);
    assert_ne!(first, second);
}

#[tokio::test]
async fn settings_of_the_url_survive_the_reset_of_the_session() {
    let base = base().await;
    base.client.batch_execute("GRANT ALL ON idempotency_inbox TO pg_monitor").await.unwrap();
    let options = "options=-c%20role%3Dpg_monitor%20-c%20app.tenant%3Dours&application_name=payments";
    let database = one_connection(&format!("{}?{options}", base.url()));
    let seen =
        "SELECT concat_ws(' ', current_user, current_setting('app.tenant'), current_setting('application_name'))";
    ask(&database, vec!["SET ROLE app", "SET app.tenant = 'theirs'", "SET application_name = 'another'"]).await;
    assert_eq!(ask(&database, vec![seen]).await, "pg_monitor ours payments");
}

#[tokio::test]
async fn statements_that_a_work_deallocates_before_it_fails_do_not_affect_later_messages() {
    let base = base().await;
    // In a DO statement, it is not seen.
    for deallocates in ["DEALLOCATE ALL", "DO 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'"] {
        let (database, idempotency) = (one_connection(&base.url()), flushed());
        done(&deliver(&idempotency, &inbox(Pay::default(), database.clone()), "first").await);
        let fails = Pay { also: Some(deallocates), fails: Some(|| WorkError::permanent("wrong")), ..Pay::default() };
        let bad = deliver(&idempotency, &inbox(fails, database.clone()), "bad").await;
        assert!(failure(&bad).0.permanent, "{bad:?}");
        let next = deliver(&idempotency, &inbox(Pay::default(), database), "innocent").await;
        assert_eq!((done(&next), next.attempts), (b"receipt of innocent".as_slice(), Some(1)));
        base.client.batch_execute("DELETE FROM idempotency_inbox; DELETE FROM effects").await.unwrap();
    }
}

#[tokio::test]
async fn statements_that_a_work_deallocates_do_not_affect_later_messages() {
    let base = base().await;
    let database = one_connection(&base.url());
    let idempotency = Idempotency::new(MemoryStore::default(), with!(Policy::default(), max_attempts = 2));
    let bad = deliver(&idempotency, &inbox(Sql(vec!["DEALLOCATE ALL"], None), database.clone()), "bad").await;
    assert!(failure(&bad).1.contains("26000"), "{bad:?}");
    let next = deliver(&idempotency, &inbox(Pay::default(), database), "innocent").await;
    assert_eq!((done(&next), next.attempts), (b"receipt of innocent".as_slice(), Some(1)));
}
