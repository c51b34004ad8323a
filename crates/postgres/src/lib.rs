//! An inbox for [`idempotent_sqs`]: effects in PostgreSQL that take place once, even if the store loses its records.
//!
//! A [`TransactionalWork`] makes its changes in one transaction, and the [`Inbox`] adds a row to the table
//! `idempotency_inbox` in the same transaction. Effect and record commit together. The [`Backfill`] copies rows of the
//! inbox to a store that has lost its records.
//!
//! - `database`: connections and transactions
//! - `inbox`: the work that runs a transactional work
//! - `optional_store`: a store whose outage is tolerated
//! - `backfill`: copies rows to a store
//! - `config`: settings from the environment
//!
//! The tables are created by `sql/inbox.sql`. `docs/inbox.md` has the guarantees, `examples/ledger` a function.

pub mod backfill;
mod config;
pub mod database;
mod inbox;
mod optional_store;
mod sqlstate;

pub use backfill::Backfill;
pub use config::{BackfillConfig, InboxConfig};
pub use database::{Database, DatabaseError, DatabaseSettings, DatabaseUrl, Transaction};
pub use inbox::{Inbox, InboxError, InboxSettings, TransactionalWork};
pub use optional_store::{OptionalStore, Outage};
