-- The inbox: a row for each completed work, committed together with the work's effect.
--
--     psql "$DATABASE_URL" --single-transaction --set ON_ERROR_STOP=1 --file crates/postgres/sql/inbox.sql
--
-- Requires PostgreSQL 14 or newer. The file can be run again, even while functions are running. The function's user
-- needs SELECT, INSERT, UPDATE and DELETE on the table. The role that runs it needs the language plpgsql, which each role
-- may use by default. The tables are created in the first schema of the search path.
--
-- Namespaces and keys have the collation "C". The order of others belongs to a library of the operating system. If an
-- update changes it, an index no longer finds each row, and finished work runs again. docs/upgrading.md has the statement
-- that changes tables of earlier builds.

CREATE TABLE IF NOT EXISTS idempotency_inbox (
    namespace    text COLLATE "C" NOT NULL,          -- the logical consumer: IDEMPOTENCY_NAMESPACE
    key          text COLLATE "C" NOT NULL,          -- as in Redis, without the namespace; a long key as its SHA-256
    fingerprint  bytea NOT NULL,                     -- of the payload, 16 bytes; zeros disable the comparison
    fence        bigint NOT NULL,                    -- of the claim under which the work was done
    attempts     smallint NOT NULL,                  -- number of attempts, including the successful one
    result       bytea,                              -- result of the work; NULL within its transaction, and after it
                                                     -- if the work issued its own COMMIT: docs/inbox.md
    done_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, key)
) WITH (
    -- The row is inserted without its result and then updated. The free space keeps the update on the same page.
    fillfactor = 70
);

-- For removing rows past their retention and for the backfill, both oldest first. CREATE INDEX waits for every open
-- transaction that has inserted a row, even if the index exists, and all later inserts wait behind it. So the index is
-- looked up first.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = 'idempotency_inbox'::regclass AND relname = 'idempotency_inbox_done_at'
    ) THEN
        CREATE INDEX IF NOT EXISTS idempotency_inbox_done_at ON idempotency_inbox (namespace, done_at);
    END IF;
END
$$;

-- The progress of the backfill, which copies the rows of a consumer to Redis. Its user needs SELECT on
-- idempotency_inbox, and SELECT, INSERT and UPDATE on this table.
CREATE TABLE IF NOT EXISTS idempotency_backfill (
    namespace        text COLLATE "C" PRIMARY KEY,
    loss_probe       text NOT NULL,              -- identifies the Redis records that detect a loss of data
    done_at          timestamptz NOT NULL,       -- watermark: rows before this time were sent to Redis,
    key              text COLLATE "C" NOT NULL,  -- and of the rows at this time those up to this key
    moved_at         timestamptz NOT NULL DEFAULT now(),
    reached_done_at  timestamptz,                -- the last row that an interrupted pass has sent, where the next run
    reached_key      text COLLATE "C"            -- continues; NULL after the end of a pass
);

-- Tables of earlier builds lack the last two columns. ALTER TABLE waits for every open transaction that has used the
-- table, so they are looked up first.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = 'idempotency_backfill'::regclass AND attname = 'reached_key'
    ) THEN
        ALTER TABLE idempotency_backfill ADD COLUMN reached_done_at timestamptz, ADD COLUMN reached_key text COLLATE "C";
    END IF;
END
$$;
