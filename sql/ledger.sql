-- The ledger: accounts, and an audit of every event that came. It goes beside the inbox.
--
--     psql "$DATABASE_URL" --single-transaction --set ON_ERROR_STOP=1 --file sql/inbox.sql --file sql/ledger.sql
--
-- It may be run again, also beside functions at work. The function's user needs the rights to SELECT and
-- UPDATE on ledger_account, and to SELECT and INSERT on ledger_audit. Accounts are opened by whoever has the right to:
--
--     INSERT INTO ledger_account (account_id, lowest_balance) VALUES ('DE-4711', -50000);

CREATE TABLE IF NOT EXISTS ledger_account (
    account_id        text    PRIMARY KEY,
    balance           bigint  NOT NULL DEFAULT 0,  -- minor units: cents
    lowest_balance    bigint  NOT NULL DEFAULT 0,  -- how far it may be drawn; negative where it may be overdrawn
    last_sequence_id  bigint  NOT NULL DEFAULT 0,  -- of the last event that was applied
    CHECK (balance >= lowest_balance)
);

CREATE TABLE IF NOT EXISTS ledger_audit (
    id               bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz  NOT NULL DEFAULT now(),
    outcome          text         NOT NULL CHECK (outcome IN ('APPLIED', 'IGNORED', 'REFUSED')),
    reason           text,                   -- why it was not applied
    idempotency_key  text         NOT NULL,
    message_id       text         NOT NULL,
    fence            bigint       NOT NULL,
    event_id         text,                   -- from here on as the event says, and NULL where it does not
    account_id       text,
    type             text,
    amount           bigint,
    sequence_id      bigint,
    balance          bigint                  -- of the account, once it was applied
);

-- A refusal is noted once for each message, also where its first note was not heard of.
CREATE UNIQUE INDEX IF NOT EXISTS ledger_audit_refusal ON ledger_audit (idempotency_key, message_id)
    WHERE outcome = 'REFUSED';

CREATE INDEX IF NOT EXISTS ledger_audit_account ON ledger_audit (account_id, id);
