-- The tables of the ledger example: accounts, and an audit row for each event. They require the tables of inbox.sql.
--
--     psql "$DATABASE_URL" --single-transaction --set ON_ERROR_STOP=1 \
--       --file crates/postgres/sql/inbox.sql --file examples/ledger/sql/ledger.sql
--
-- The file can be run again, even while functions are running. The function's user needs SELECT and UPDATE on
-- ledger_account, and SELECT and INSERT on ledger_audit. To open an account:
--
--     INSERT INTO ledger_account (account_id, lowest_balance) VALUES ('DE-4711', -50000);

CREATE TABLE IF NOT EXISTS ledger_account (
    account_id        text    PRIMARY KEY,
    balance           bigint  NOT NULL DEFAULT 0,  -- minor units: cents
    lowest_balance    bigint  NOT NULL DEFAULT 0,  -- negative if the account may be overdrawn
    last_sequence_id  bigint  NOT NULL DEFAULT 0,  -- of the last applied event
    CHECK (balance >= lowest_balance)
);

CREATE TABLE IF NOT EXISTS ledger_audit (
    id               bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz  NOT NULL DEFAULT now(),
    outcome          text         NOT NULL CHECK (outcome IN ('APPLIED', 'IGNORED', 'REFUSED')),
    reason           text,                   -- why the event was not applied
    idempotency_key  text         NOT NULL,
    message_id       text         NOT NULL,
    fence            bigint       NOT NULL,
    event_id         text,                   -- from here on as in the event, or NULL if absent
    account_id       text,
    type             text,
    amount           bigint,
    sequence_id      bigint,
    balance          bigint                  -- of the account, after the event was applied
);

-- A refusal has one row per message, even if the reply to its first insert was lost. CREATE INDEX waits for every open
-- transaction that has inserted a row, even if the index exists, and all later inserts wait behind it. So the indexes are
-- looked up first.
DO $$
DECLARE
    existing text[] := ARRAY(
        SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = 'ledger_audit'::regclass
    );
BEGIN
    IF NOT 'ledger_audit_refusal' = ANY (existing) THEN
        CREATE UNIQUE INDEX IF NOT EXISTS ledger_audit_refusal ON ledger_audit (idempotency_key, message_id)
            WHERE outcome = 'REFUSED';
    END IF;
    IF NOT 'ledger_audit_account' = ANY (existing) THEN
        CREATE INDEX IF NOT EXISTS ledger_audit_account ON ledger_audit (account_id, id);
    END IF;
END
$$;
