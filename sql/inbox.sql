-- The inbox: a row for each work that is done, which commits together with the work's effect.
--
--     psql "$DATABASE_URL" --single-transaction --set ON_ERROR_STOP=1 --file sql/inbox.sql
--
-- For PostgreSQL 14 or newer. It may be run again, also beside functions at work. The function's user needs the rights to SELECT,
-- INSERT, UPDATE and DELETE on the table, and no more. It goes to the first schema of the search path.

CREATE TABLE IF NOT EXISTS idempotency_inbox (
    namespace    text        NOT NULL,  -- the logical consumer: IDEMPOTENCY_NAMESPACE
    key          text        NOT NULL,  -- as in Redis, after the namespace; a long one as its SHA-256
    fingerprint  bytea       NOT NULL,  -- of the payload, 16 bytes; zeros are compared with nothing
    fence        bigint      NOT NULL,  -- of the claim that did the work
    attempts     smallint    NOT NULL,  -- that it took
    result       bytea,                 -- what the work returned; NULL within its transaction, and after
                                        -- it where the work has committed by itself: docs/inbox.md
    done_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, key)
) WITH (
    -- The result is written over the row that was inserted first: there has to be room beside it.
    fillfactor = 70
);

-- Oldest first: what has outlived its retention, and what a Redis that was restored does not know.
CREATE INDEX IF NOT EXISTS idempotency_inbox_done_at ON idempotency_inbox (namespace, done_at);

-- How far the relay has copied the rows of a consumer to Redis. Its user needs the rights to SELECT on
-- idempotency_inbox, and to SELECT, INSERT and UPDATE on this.
CREATE TABLE IF NOT EXISTS idempotency_relay (
    namespace  text        PRIMARY KEY,
    canary     text        NOT NULL,  -- the records by which a Redis shows that it has lost nothing since
    done_at    timestamptz NOT NULL,  -- all rows up to this one were offered to it, and
    key        text        NOT NULL,  -- at the same moment all up to this key
    moved_at   timestamptz NOT NULL DEFAULT now()
);
