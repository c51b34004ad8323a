//! What sessions do, for a comparison.
//!
//! Each step has the name of its session: with `~` if it waits, with `<` to read the reply later, and with `!` if its
//! stream ends. A statement with
//! ` @` is prepared, and has the parameters that follow.

type Script = (&'static str, &'static [(&'static str, &'static str)]);

/// The statements of the inbox.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 2000; \
     SET LOCAL statement_timeout = 5000; SET LOCAL idle_in_transaction_session_timeout = 5000; \
     SET LOCAL client_connection_check_interval = 2000; SET LOCAL idempotent_sqs.begun = 'yes'";
const END: &str = "COMMIT; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; SET client_encoding = 'UTF8'; \
     CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()";
const ROLL_BACK: &str = "ROLLBACK; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; SET client_encoding = 'UTF8'; \
     CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()";
macro_rules! insert {
    ($parameters:literal) => {
        concat!(
            "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts) \
             SELECT $1::text, $2::text, $3::bytea, $4::bigint, \
               CASE WHEN current_setting('idempotent_sqs.begun', true) = 'yes' THEN $5::smallint END \
             WHERE NOT EXISTS (SELECT FROM idempotency_inbox WHERE namespace = $1 AND key = $2 \
               AND (done_at >= now() - make_interval(secs => $6) OR result IS NULL OR fence = $4)) \
             ON CONFLICT (namespace, key) DO UPDATE \
             SET fingerprint = excluded.fingerprint, fence = excluded.fence, attempts = excluded.attempts, \
               result = NULL, done_at = excluded.done_at \
             WHERE idempotency_inbox.done_at < now() - make_interval(secs => $6) \
               AND idempotency_inbox.result IS NOT NULL AND idempotency_inbox.fence <> excluded.fence @ ",
            $parameters
        )
    };
}
macro_rules! set_result {
    ($parameters:literal) => {
        concat!(
            "WITH updated AS ( \
               UPDATE idempotency_inbox SET result = $3 \
               WHERE namespace = $1 AND key = $2 AND xmin = pg_current_xact_id()::xid RETURNING 1 \
             ) \
             SELECT 1 / count(*) FROM updated \
             HAVING count(*) = 1 OR current_setting('idempotent_sqs.begun', true) = 'yes' @ ",
            $parameters
        )
    };
}
macro_rules! delete_expired {
    ($parameters:literal) => {
        concat!(
            "WITH expired AS ( \
               SELECT tableoid, ctid FROM idempotency_inbox \
               WHERE namespace = $1 AND done_at < now() - make_interval(secs => $2) AND result IS NOT NULL \
               ORDER BY done_at LIMIT $3 FOR UPDATE SKIP LOCKED \
             ) \
             DELETE FROM idempotency_inbox \
             WHERE ctid = ANY (ARRAY(SELECT ctid FROM expired)) \
               AND (tableoid, ctid) IN (SELECT tableoid, ctid FROM expired) @ ",
            $parameters
        )
    };
}
const READ: &str = "SELECT fingerprint, fence, result FROM idempotency_inbox WHERE namespace = $1 AND key = $2 @ n, k";
const ALL: &str = "SELECT namespace, key, fence, attempts, result, done_at = 'infinity' FROM idempotency_inbox \
     ORDER BY namespace, key";
/// Rows that are expired, young, unfinished, and kept for ever.
const ROWS: &str = "INSERT INTO idempotency_inbox VALUES \
       ('n', 'old', '\\x00', 1, 1, '\\x01', now() - interval '40 days'), \
       ('n', 'older', '\\x00', 2, 1, '\\x02', now() - interval '50 days'), \
       ('n', 'young', '\\x00', 3, 1, '\\x03', now()), \
       ('n', 'open', '\\x00', 4, 1, NULL, now() - interval '40 days'), \
       ('n', 'kept', '\\x00', 5, 1, '\\x05', 'infinity')";

pub(super) const SCRIPTS: &[Script] = &[
    (
        "a work is done once",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("A", "INSERT INTO effects (consumer, key, fence, payload) VALUES ($1, $2, $3, $4) @ n, k, 7, p"),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("A", "SELECT current_setting('idempotent_sqs.begun', true), current_setting('lock_timeout')"),
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 8, 1, 100")),
            ("A", READ),
            ("A", ROLL_BACK),
            ("B", ALL),
            ("B", "SELECT * FROM effects"),
        ],
    ),
    (
        "a statement without its BEGIN violates a constraint",
        &[("A", insert!("n, k, \\x00, 7, 1, 100")), ("A", set_result!("n, k, \\x01")), ("A", ALL)],
    ),
    (
        "a row that a trigger keeps is not updated, and is locked",
        &[
            ("A", ROWS),
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("A", "SET LOCAL app.keeps_row = 'yes'"),
            ("A", "UPDATE idempotency_inbox SET attempts = 2 WHERE key = 'old' RETURNING key"),
            ("A", insert!("n, older, \\x00, 8, 1, 100")),
            ("B", "BEGIN; SET LOCAL lock_timeout = 500"),
            ("B", "DELETE FROM idempotency_inbox WHERE key = 'old'"),
            ("B", ROLL_BACK),
            ("B", delete_expired!("n, 100, 9")),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("B", ALL),
        ],
    ),
    (
        "the second of two transactions waits and finds the row",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("B", BEGIN),
            ("B~", insert!("n, k, \\x00, 8, 1, 100")),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("B<", ""),
            ("B", READ),
            ("B", ROLL_BACK),
            ("B", ALL),
        ],
    ),
    (
        "the second of two transactions inserts after a rollback of the first",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("B", BEGIN),
            ("B~", insert!("n, k, \\x00, 8, 1, 100")),
            ("A", ROLL_BACK),
            ("B<", ""),
            ("B", set_result!("n, k, \\x02")),
            ("B", END),
            ("A", ALL),
        ],
    ),
    (
        "a wait for a row ends after the lock timeout",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("B", "BEGIN; SET LOCAL lock_timeout = 500; SET LOCAL idempotent_sqs.begun = 'yes'"),
            ("B", insert!("n, k, \\x00, 8, 1, 100")),
            ("B", READ),
            ("B", ROLL_BACK),
            ("B", "BEGIN; SET LOCAL statement_timeout = 500; SET LOCAL idempotent_sqs.begun = 'yes'"),
            ("B", insert!("n, k, \\x00, 8, 1, 100")),
            ("B", "COMMIT"),
            ("A", "ROLLBACK"),
        ],
    ),
    (
        "an expired row is replaced, and others are not",
        &[
            ("A", ROWS),
            ("A", BEGIN),
            ("A", insert!("n, old, \\x00, 7, 1, 2419200")),
            ("A", insert!("n, older, \\x00, 2, 1, 2419200")),
            ("A", insert!("n, young, \\x00, 7, 1, 2419200")),
            ("A", insert!("n, open, \\x00, 7, 1, 2419200")),
            ("A", insert!("n, kept, \\x00, 7, 1, 2419200")),
            ("A", set_result!("n, old, \\x09")),
            ("A", END),
            ("A", ALL),
        ],
    ),
    (
        "two transactions replace an expired row",
        &[
            ("A", ROWS),
            ("A", BEGIN),
            ("B", BEGIN),
            ("A", insert!("n, old, \\x00, 7, 1, 2419200")),
            ("B~", insert!("n, old, \\x00, 8, 1, 2419200")),
            ("A", set_result!("n, old, \\x09")),
            ("A", END),
            ("B<", ""),
            ("B", READ),
            ("B", ROLL_BACK),
            ("B", ALL),
        ],
    ),
    (
        "expired rows are deleted, except those that are locked",
        &[
            ("A", ROWS),
            ("A", BEGIN),
            ("A", insert!("n, older, \\x00, 7, 1, 2419200")),
            ("B", BEGIN),
            ("B", delete_expired!("n, 2419200, 1")),
            ("B", delete_expired!("n, 2419200, 1")),
            ("B", END),
            ("A", "ROLLBACK"),
            ("B", delete_expired!("n, 2419200, 200")),
            ("B", ALL),
        ],
    ),
    (
        "a work that rolls back or commits loses its row",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("A", "ROLLBACK"),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("A", "COMMIT"),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("A", ALL),
        ],
    ),
    (
        "a row that is gone when the result is set fails the transaction",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("A", "DELETE FROM idempotency_inbox"),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("A", ALL),
        ],
    ),
    (
        "an error aborts the transaction until its end",
        &[
            ("A", "BEGIN"),
            ("A", "INSERT INTO effects (key) VALUES ('a')"),
            ("A", "SELECT 1 / 0"),
            ("A", "SELECT 1"),
            ("A", "SELECT $1::text @ a"),
            ("A", "SAVEPOINT a"),
            ("A", "COMMIT"),
            ("A", "SELECT count(*) FROM effects"),
            ("A", "BEGIN; SELECT nothing; COMMIT"),
            ("A", "ROLLBACK; SELECT 1"),
        ],
    ),
    (
        "a query of several statements is one transaction",
        &[
            ("A", "INSERT INTO effects (key) VALUES ('a'); SELECT 1 / 0; INSERT INTO effects (key) VALUES ('b')"),
            ("A", "SELECT key FROM effects"),
            ("A", "INSERT INTO effects (key) VALUES ('a'); COMMIT; SELECT 1 / 0"),
            ("A", "SELECT key FROM effects"),
            ("A", "INSERT INTO effects (key) VALUES ('b'); BEGIN; INSERT INTO effects (key) VALUES ('c')"),
            ("A", "ROLLBACK"),
            ("A", "SELECT key FROM effects"),
            ("A", "SELECT 1; SELEC; SELECT 2"),
            ("A", ""),
            ("A", ";;"),
            ("A", "COMMIT"),
            ("A", "ROLLBACK"),
            ("A", "BEGIN; BEGIN; COMMIT"),
            ("A", "SAVEPOINT a"),
            ("A", "SET LOCAL lock_timeout = 5"),
        ],
    ),
    (
        "savepoints undo a part",
        &[
            ("A", "BEGIN; INSERT INTO effects (key) VALUES ('a'); SAVEPOINT one"),
            ("A", "INSERT INTO effects (key) VALUES ('b'); SAVEPOINT two"),
            ("A", "INSERT INTO effects (key) VALUES ('c'); SELECT 1 / 0"),
            ("A", "ROLLBACK TO two"),
            ("A", "SELECT key FROM effects ORDER BY id"),
            ("A", "ROLLBACK TO SAVEPOINT one"),
            ("A", "RELEASE one"),
            ("A", "ROLLBACK TO one"),
            ("A", "COMMIT"),
            ("A", "SELECT key FROM effects"),
            ("A", "BEGIN; INSERT INTO effects (key) VALUES ('a'); SAVEPOINT one"),
            ("A", "INSERT INTO effects (key) VALUES ('b')"),
            ("A", "SELECT key, xmin = pg_current_xact_id()::xid FROM effects ORDER BY key"),
        ],
    ),
    (
        "a row in a savepoint has another xmin",
        &[
            (
                "A",
                "BEGIN; INSERT INTO effects (key) VALUES ('a'); SAVEPOINT one; INSERT INTO effects (key) VALUES ('b')",
            ),
            ("A", "SELECT key, xmin = pg_current_xact_id()::xid FROM effects ORDER BY key"),
            ("A", "RELEASE one; INSERT INTO effects (key) VALUES ('c')"),
            ("A", "SELECT key, xmin = pg_current_xact_id()::xid FROM effects ORDER BY key"),
        ],
    ),
    (
        "settings of a transaction end with it",
        &[
            ("A", "SELECT current_setting('a.b', true), current_setting('lock_timeout')"),
            ("A", "BEGIN; SET LOCAL a.b = 'x'; SET LOCAL lock_timeout = '2min'; SET statement_timeout = 1500"),
            (
                "A",
                "SELECT current_setting('a.b', true), current_setting('lock_timeout'), current_setting('statement_timeout')",
            ),
            ("A", "SAVEPOINT one; SET LOCAL lock_timeout = 7; ROLLBACK TO one; SHOW lock_timeout"),
            ("A", "ROLLBACK"),
            (
                "A",
                "SELECT current_setting('a.b', true), current_setting('lock_timeout'), current_setting('statement_timeout')",
            ),
            ("A", "SET a.c = 'y'; RESET ALL; SELECT current_setting('a.c', true), current_setting('a.b', true)"),
            ("A", "BEGIN; SET lock_timeout = '3s'; COMMIT; SHOW lock_timeout"),
            ("A", "SELECT current_setting('no.such')"),
            ("A", "SET nothing = 1"),
            ("A", "SET lock_timeout = 'long'"),
            ("A", "SHOW transaction_read_only"),
            ("A", "BEGIN; SET LOCAL lock_timeout = 9; SELECT 1 / 0"),
            ("A", "ROLLBACK; SHOW lock_timeout"),
            ("A", "RESET lock_timeout; SHOW lock_timeout"),
        ],
    ),
    (
        "a read-only transaction writes nothing",
        &[
            ("A", "BEGIN READ ONLY"),
            ("A", "INSERT INTO effects (key) VALUES ('a')"),
            ("A", "ROLLBACK"),
            ("A", "BEGIN; INSERT INTO effects (key) VALUES ('a'); SET TRANSACTION READ ONLY"),
            ("A", set_result!("n, k, \\x01")),
            ("A", "COMMIT"),
            ("A", "SET default_transaction_read_only = on"),
            ("A", "UPDATE effects SET key = 'b'"),
            ("A", "DELETE FROM effects"),
            ("A", "SELECT FROM effects FOR UPDATE"),
            ("A", "BEGIN READ WRITE; INSERT INTO effects (key) VALUES ('c'); COMMIT"),
            ("A", "SHOW transaction_read_only"),
            ("A", "SELECT key FROM effects"),
        ],
    ),
    (
        "an update waits and looks at the newest version",
        &[
            ("A", "INSERT INTO effects (key, fence) VALUES ('a', 1), ('b', 1)"),
            ("A", "BEGIN; UPDATE effects SET fence = 2 WHERE key = 'a'"),
            ("B~", "UPDATE effects SET payload = 'seen' WHERE fence = 1 RETURNING key, fence"),
            ("A", "COMMIT"),
            ("B<", ""),
            ("A", "BEGIN; UPDATE effects SET fence = fence + 1 WHERE key = 'a'"),
            ("B~", "UPDATE effects SET fence = fence + 10 WHERE key = 'a' RETURNING fence"),
            ("A", "COMMIT"),
            ("B<", ""),
            ("A", "BEGIN; DELETE FROM effects WHERE key = 'a'"),
            ("B~", "DELETE FROM effects RETURNING key"),
            ("A", "ROLLBACK"),
            ("B<", ""),
        ],
    ),
    (
        "a row that is locked is waited for, skipped or refused",
        &[
            ("A", "INSERT INTO effects (key, fence) VALUES ('a', 1), ('b', 2)"),
            ("A", "BEGIN; SELECT key FROM effects ORDER BY fence LIMIT 1 FOR UPDATE"),
            ("B", "SELECT key FROM effects ORDER BY fence LIMIT 1 FOR UPDATE SKIP LOCKED"),
            ("B", "SELECT key FROM effects FOR UPDATE NOWAIT"),
            ("B", "SELECT key FROM effects"),
            ("B~", "DELETE FROM effects WHERE key = 'a'"),
            ("A", "UPDATE effects SET key = 'c' WHERE key = 'a'; COMMIT"),
            ("B<", ""),
            ("B", "SELECT key FROM effects ORDER BY key DESC"),
        ],
    ),
    (
        "a deadlock ends one of two transactions",
        &[
            ("A", "INSERT INTO effects (key) VALUES ('a'), ('b')"),
            ("A", "BEGIN; UPDATE effects SET fence = 1 WHERE key = 'a'"),
            ("B", "BEGIN; UPDATE effects SET fence = 2 WHERE key = 'b'"),
            ("A~", "UPDATE effects SET fence = 1 WHERE key = 'b'"),
            ("B", "SET deadlock_timeout = '10s'; UPDATE effects SET fence = 2 WHERE key = 'a'"),
            ("A<", ""),
            ("B", "COMMIT"),
            ("A", "ROLLBACK"),
            ("A", "SELECT key, fence FROM effects ORDER BY key"),
        ],
    ),
    (
        "a transaction that is idle for too long ends its session",
        &[
            ("A", "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 300; INSERT INTO effects (key) VALUES ('a')"),
            ("A<", ""),
            ("B", "SELECT key FROM effects"),
            ("B", "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 100; SELECT 1 / 0"),
            ("B~", "SELECT 1"),
        ],
    ),
    (
        "a row that was waited for is locked, and one that is visible is not",
        &[
            ("A", BEGIN),
            ("A", insert!("n, k, \\x00, 7, 1, 100")),
            ("B", BEGIN),
            ("B~", insert!("n, k, \\x00, 8, 1, 100")),
            ("A", set_result!("n, k, \\x01")),
            ("A", END),
            ("B<", ""),
            ("C", BEGIN),
            ("C", insert!("n, k, \\x00, 9, 1, 100")),
            ("C~", "UPDATE idempotency_inbox SET fence = 10"),
            ("B", END),
            ("C<", ""),
            ("C", READ),
            ("C", END),
        ],
    ),
    (
        "a row that is only locked is not waited for until it is replaced",
        &[
            ("A", ROWS),
            ("A", "BEGIN; SELECT key FROM idempotency_inbox WHERE key = 'old' FOR UPDATE"),
            ("B", "INSERT INTO idempotency_inbox VALUES ('n', 'old', '', 9, 1) ON CONFLICT DO NOTHING"),
            ("B", BEGIN),
            ("B", insert!("n, old, \\x00, 1, 1, 2419200")),
            ("B~", insert!("n, old, \\x00, 8, 1, 2419200")),
            ("A", "UPDATE idempotency_inbox SET fence = 8 WHERE key = 'old'; COMMIT"),
            ("B<", ""),
            ("B", "COMMIT"),
            ("A", ALL),
        ],
    ),
    (
        "an error or a savepoint gives locks back",
        &[
            ("A", "BEGIN; INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 1, 1)"),
            ("B~", "INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 2, 1)"),
            ("A", "SELECT 1 / 0"),
            ("B<", ""),
            ("A", "ROLLBACK"),
            ("A", "BEGIN; SAVEPOINT one; UPDATE idempotency_inbox SET fence = 3"),
            ("B~", "UPDATE idempotency_inbox SET attempts = 5"),
            ("A", "ROLLBACK TO one"),
            ("B<", ""),
            ("A", "SAVEPOINT two; UPDATE idempotency_inbox SET fence = fence + 10; RELEASE two"),
            ("B~", "UPDATE idempotency_inbox SET fence = fence + 100 RETURNING fence"),
            ("A", "COMMIT"),
            ("B<", ""),
            ("A", ALL),
        ],
    ),
    (
        "timeouts end statements",
        &[
            ("A", "SET statement_timeout = 3000; SELECT pg_sleep(2); SELECT pg_sleep(2)"),
            ("A", "SELECT pg_sleep(30)"),
            ("A", "RESET ALL; INSERT INTO effects (key) VALUES ('a')"),
            ("A", "BEGIN; UPDATE effects SET fence = 1"),
            ("B", "BEGIN; SET LOCAL lock_timeout = 200; UPDATE effects SET fence = 2"),
            ("B", "ROLLBACK"),
            ("B", "SET lock_timeout = 200"),
            ("B", "SELECT key FROM effects FOR UPDATE"),
            ("B", "DELETE FROM effects"),
            ("B", "SET statement_timeout = 100"),
            ("B", "UPDATE effects SET fence = 2"),
        ],
    ),
    (
        "a session that ends gives its locks back",
        &[
            ("A", "BEGIN; INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 1, 1)"),
            ("B~", "INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 2, 1)"),
            ("A!", ""),
            ("B<", ""),
            ("B", ALL),
        ],
    ),
    (
        "the end of a client is noticed during a statement if that is set",
        &[
            ("A", "INSERT INTO effects (key) VALUES ('a')"),
            ("A", "BEGIN; UPDATE effects SET fence = 1"),
            ("B", "SET client_connection_check_interval = 200"),
            ("B~", "UPDATE effects SET fence = 2"),
            ("C~", "UPDATE effects SET fence = 3"),
            ("B!", ""),
            ("C!", ""),
            ("D", "SELECT pg_sleep(3)"),
            (
                "D",
                "SELECT query FROM pg_stat_activity \
                 WHERE datname = current_database() AND state = 'active' AND query LIKE 'UPDATE%'",
            ),
            ("A", "COMMIT"),
            ("D", "SELECT pg_sleep(2); SELECT fence FROM effects"),
        ],
    ),
    (
        "a statement does not see its own rows, and later ones do",
        &[
            ("A", "BEGIN; INSERT INTO effects (key) SELECT 'a' WHERE NOT EXISTS (SELECT FROM effects)"),
            ("A", "INSERT INTO effects (key) SELECT key || 'b' FROM effects"),
            ("A", "INSERT INTO effects (key) SELECT key || 'c' FROM effects RETURNING key"),
            ("B", "SELECT count(*) FROM effects"),
            (
                "A",
                "WITH gone AS (DELETE FROM effects WHERE key = 'a' RETURNING key) SELECT key, (SELECT count(*) FROM effects) FROM gone",
            ),
            ("A", "UPDATE effects SET key = key || 'd' RETURNING key"),
            ("A", "COMMIT"),
            ("B", "SELECT count(*) FROM effects"),
        ],
    ),
    (
        "a key is unique",
        &[
            ("A", "INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 1, 1)"),
            ("A", "INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 1, 1)"),
            ("A", "INSERT INTO idempotency_inbox VALUES ('n', 'k', '', 1, 1) ON CONFLICT DO NOTHING"),
            ("A", "BEGIN; INSERT INTO idempotency_inbox VALUES ('n', 'l', '', 1, 1)"),
            ("B~", "INSERT INTO idempotency_inbox VALUES ('n', 'l', '', 2, 1)"),
            ("A", "COMMIT"),
            ("B<", ""),
            ("A", "BEGIN; DELETE FROM idempotency_inbox WHERE key = 'l'"),
            ("B~", "INSERT INTO idempotency_inbox VALUES ('n', 'l', '', 3, 1) ON CONFLICT DO NOTHING"),
            ("A", "COMMIT"),
            ("B<", ""),
            (
                "B",
                "INSERT INTO idempotency_inbox VALUES ('n', 'x', '', 3, 1), ('n', 'x', '', 3, 1) \
                 ON CONFLICT (namespace, key) DO UPDATE SET fence = 9",
            ),
            ("B", "INSERT INTO idempotency_inbox VALUES ('n', 'x', '', 3, 70000)"),
            ("B", "INSERT INTO idempotency_inbox (namespace, key) VALUES ('n', 'x')"),
            ("B", "INSERT INTO idempotency_inbox (key) VALUES ('n', 'x')"),
            ("B", "INSERT INTO idempotency_inbox (nothing) VALUES ('n')"),
            ("B", "INSERT INTO effects (key) VALUES ('n') ON CONFLICT (key) DO NOTHING"),
            ("B", ALL),
        ],
    ),
    (
        "expressions",
        &[
            ("A", "SELECT NULL = 1, NULL IS NULL, NOT (NULL AND false), (1, 2) < (1, 3), (1, NULL) = (2, NULL)"),
            ("A", "SELECT 1 IN (2, NULL), 1 IN (1, NULL), 3 NOT IN (1, 2), 'a' || 'b', 7 / 2, -7 / 2, 7 % 4"),
            ("A", "SELECT least(1, NULL, 3), greatest(1, 3), coalesce(NULL, 2), nullif(1, 1), octet_length('ä')"),
            (
                "A",
                "SELECT make_interval(secs => 90.5), interval '1 day 2 hours', now() - now(), make_interval(days => 1)",
            ),
            ("A", "SELECT now() = now(), clock_timestamp() >= now(), timestamptz 'infinity' > now()"),
            ("A", "SELECT timestamptz '2024-01-31 10:00:00+00' + interval '1 month', '\\x00ff'::bytea, true"),
            ("A", "SELECT extract(epoch FROM timestamptz '2024-01-31 10:00:00+00')::float8, 2147483648, 1::text"),
            ("A", "SELECT extract(epoch FROM timestamptz 'infinity' - now())"),
            (
                "A",
                "SELECT CASE WHEN NULL THEN 1 ELSE 2 END, CASE WHEN false THEN 1 END, 'abc' LIKE 'a%', 1 BETWEEN 0 AND 2",
            ),
            ("A", "SELECT count(*), count(key), min(key), max(fence) FROM effects"),
            ("A", "SELECT count(*) FROM effects HAVING count(*) = 1"),
            ("A", "SELECT key FROM effects GROUP BY key HAVING count(*) > 1"),
            ("A", "SELECT key, count(*) FROM effects"),
            ("A", "SELECT 9223372036854775807 + 1"),
            ("A", "SELECT 'a' = 1"),
            ("A", "SELECT 1 + true"),
            ("A", "SELECT 'a'::text = 1"),
            ("A", "SELECT nothing FROM effects"),
            ("A", "SELECT effects.nothing FROM effects"),
            ("A", "SELECT other.key FROM effects"),
            ("A", "SELECT 1 FROM nothing"),
            ("A", "SELECT 1 FROM effects WHERE xmin = pg_current_xact_id()"),
            ("A", "SELECT $1, $2::bytea, $3::timestamptz @ a, \\x00, 2024-01-31 10:00:00+00"),
            ("A", "SELECT $1 + 1, $2 = true, $3::float8 @ 1, t, 1.5"),
            ("A", "SELECT $1::int4 @ x"),
            ("A", "SELECT FROM effects @"),
            ("A", "SELECT 1 LIMIT $1 @ 0"),
            ("A", "SELECT EXISTS (SELECT 1), (SELECT 1 WHERE false), ARRAY(SELECT 1) = ARRAY(SELECT 1)"),
            ("A", "VALUES (1, 'a')"),
            ("A", "SELECT pg_sleep(0), pg_backend_pid() > 0, current_database() = current_database()"),
        ],
    ),
    (
        "the progress of the backfill",
        &[
            (
                "A",
                "INSERT INTO idempotency_backfill (namespace, loss_probe, done_at, key, reached_done_at, reached_key) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (namespace) DO UPDATE \
                 SET loss_probe = excluded.loss_probe, done_at = excluded.done_at, key = excluded.key, \
                   reached_done_at = excluded.reached_done_at, reached_key = excluded.reached_key, moved_at = now() \
                 WHERE idempotency_backfill.loss_probe = $7 @ n, p, 2024-01-31 10:00:00+00, k, NULL, NULL, x",
            ),
            (
                "A",
                "INSERT INTO idempotency_backfill (namespace, loss_probe, done_at, key, reached_done_at, reached_key) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (namespace) DO UPDATE \
                 SET loss_probe = excluded.loss_probe, moved_at = now() \
                 WHERE idempotency_backfill.loss_probe = $7 @ n, q, 2024-01-31 10:00:00+00, k, NULL, NULL, x",
            ),
            (
                "A",
                "SELECT loss_probe, done_at, key, reached_done_at, reached_key FROM idempotency_backfill \
                 WHERE namespace = $1 @ n",
            ),
            ("A", ROWS),
            (
                "A",
                "SELECT count(*) AS rows FROM idempotency_inbox WHERE namespace = $1 \
                 AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL \
                 @ n, 2020-01-01 00:00:00+00, , 4000000",
            ),
            (
                "A",
                "SELECT key, fingerprint, fence, attempts, CASE WHEN octet_length(result) <= $5 THEN result END AS result, \
                   extract(epoch FROM least(done_at, now() + interval '1000 years') - now())::float8 + $4 > 0 \
                 FROM idempotency_inbox WHERE namespace = $1 \
                   AND (done_at, key) > ($2, $3) AND done_at > now() - make_interval(secs => $4) AND result IS NOT NULL \
                 ORDER BY done_at, key LIMIT $6 @ n, 2020-01-01 00:00:00+00, k, 4000000, 100, 10",
            ),
            (
                "A",
                "SELECT least(now(), min(coalesce( \
                     CASE WHEN backend_xid IS NOT NULL THEN xact_start END, \
                     greatest(xact_start, now() - interval '30 minutes') \
                   ))) - interval '1 second' < now() AS horizon \
                 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                   AND usesysid IS NOT NULL \
                   AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) @",
            ),
        ],
    ),
    (
        "prepared statements",
        &[
            ("A", "PREPARE one AS SELECT 1"),
            ("A", "PREPARE one AS SELECT 1"),
            ("A", "DEALLOCATE one"),
            ("A", "DEALLOCATE one"),
            ("A", "DEALLOCATE ALL"),
            ("A", "SELECT 1; SELECT 2 @"),
            ("A", "DISCARD ALL"),
            ("A", "BEGIN; DISCARD ALL"),
            ("A", "ROLLBACK"),
            ("A", "BEGIN @"),
            ("A", "INSERT INTO effects (key, fence) VALUES ($1, $2) RETURNING id, key @ a, 1"),
            ("A", "UPDATE effects SET fence = $1 @ 1"),
            ("A", "COMMIT @"),
            ("A", "SELECT key FROM effects"),
        ],
    ),
];
