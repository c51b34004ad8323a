//! The inbox: work whose effects are rows of a database.

mod commits;
mod connections;
mod encoding;
mod failures;
mod no_attempt;
mod once;
mod outdated;
mod pool;
mod pooler;
mod refusals;
mod rows;
mod sessions;
mod tenants;
mod unfinished;
mod without_redis;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::idempotency::{AcquireRequest, Failure, Fingerprint, OwnRecord, Report, Store, StoreError};
use idempotent_sqs::{Claim, Deadline, Idempotency, MemoryStore, Message, Outcome, Policy, Work, WorkError};
use idempotent_sqs_postgres::{Database, Inbox, InboxSettings, Transaction, TransactionalWork};
use tokio::time::Instant;

use crate::fixture::*;
use harness::postgres::{Base, Postgres, connect, migration, until_count};
use harness::{soon, until, with, workspace};
