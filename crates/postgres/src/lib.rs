//! An inbox for [`idempotent_sqs`]: effects in PostgreSQL that take place once, even if the store loses its records.
//!
//! A [`TransactionalWork`] makes its changes in one transaction, and the [`Inbox`] adds a row to the table
//! `idempotency_inbox` in the same transaction. Effect and row commit together. [`Backfill`] copies rows of the inbox
//! to a store that has lost its records.
//!
//! # A Lambda function with an inbox
//! ```no_run
//! use idempotent_sqs::config::{Config, Environment};
//! use idempotent_sqs::{Claim, Message, WorkError};
//! use idempotent_sqs_postgres::{InboxConfig, Transaction, TransactionalWork};
//!
//! struct Reserve;
//!
//! impl TransactionalWork<Message> for Reserve {
//!     async fn run(&self, transaction: &Transaction, _: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
//!         let article = message.body();
//!         let reserve = "UPDATE stock SET reserved = reserved + 1 WHERE article = $1 AND reserved < quantity";
//!         match transaction.execute(reserve, &[&article]).await? {
//!             0 => Err(WorkError::permanent("the article is out of stock")),
//!             _ => Ok(b"reserved".to_vec()),
//!         }
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), lambda_runtime::Error> {
//!     lambda_runtime::tracing::init_default_subscriber();
//!     let mut environment = Environment::from_process();
//!     let config = Config::read(&mut environment);
//!     let inbox = InboxConfig::read(&mut environment, config.as_ref());
//!     let (config, inbox) = environment.finish(config.zip(inbox))?;
//!     inbox.handler(config, Reserve)?.serve().await
//! }
//! ```
//!
//! Create the tables first: run `sql/inbox.sql` of this crate with psql. `docs/inbox.md` has the guarantees, the
//! settings and the limits; `examples/ledger` is a complete function.
//!
//! # Without Lambda
//! [`Idempotency::run`](idempotent_sqs::Idempotency::run) accepts an [`Inbox`] as any other work:
//!
//! ```no_run
//! use idempotent_sqs::{Claim, Delivery, Idempotency, Key, MemoryStore, Policy, WorkError};
//! use idempotent_sqs_postgres::{Database, DatabaseSettings, Inbox, InboxSettings, Transaction, TransactionalWork};
//!
//! struct Credit;
//!
//! impl TransactionalWork<i64> for Credit {
//!     async fn run(&self, transaction: &Transaction, claim: &Claim, cents: &i64) -> Result<Vec<u8>, WorkError> {
//!         let credit = "INSERT INTO credits (id, cents) VALUES ($1, $2)";
//!         transaction.execute(credit, &[&claim.key().as_str(), cents]).await?;
//!         Ok(Vec::new())
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::new(&DatabaseSettings::new("postgres://payer@db.internal/payments".parse()?));
//! let inbox = Inbox::new(Credit, database, InboxSettings::new("payments"));
//! inbox.check().await?;
//! let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
//! let report = idempotency.run(&Delivery::new(Key::new("pay_7f3a")?), &inbox, &1250).await?;
//! println!("{:?}", report.decision(1));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//! - `config`: settings from the environment
//! - `inbox`: the work that runs a transactional work
//! - [`database`]: connections and transactions
//! - `optional_store`: a store whose outage is tolerated
//! - [`backfill`]: copies rows to a store
//! - `sqlstate`: error codes of PostgreSQL

pub mod backfill;
mod config;
pub mod database;
mod inbox;
mod optional_store;
mod sqlstate;

pub use backfill::Backfill;
pub use config::{BackfillConfig, InboxConfig};
pub use database::{Database, DatabaseError, DatabaseSettings, DatabaseUrl, DatabaseUrlError, Transaction};
pub use inbox::{Inbox, InboxError, InboxSettings, TransactionalWork};
pub use optional_store::{OptionalStore, OutagePolicy};
