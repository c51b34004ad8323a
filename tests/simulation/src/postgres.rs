//! A simulated PostgreSQL: a server on the simulated network that speaks its protocol and executes SQL.
//!
//! - `server`, `faults`: start it, see its rows, and let it fail
//! - `dial`: the connections of clients
//! - `session`, `extended`, `execution`, `supervision`, `blocks`: the messages, statements and transactions of a client
//! - `connection`, `wire`: its stream and the messages on it
//! - `settings`: those of a session
//! - `sql`: parses and executes statements
//! - `shared`, `transaction`, `locks`: what sessions share, and how they wait for each other
//! - `tables`, `ends`, `definitions`: the rows
//! - `value`, `types`, `time`, `error`: values, times and errors

mod blocks;
mod connection;
mod definitions;
mod dial;
mod ends;
mod error;
mod execution;
mod extended;
mod faults;
mod locks;
mod server;
mod session;
mod settings;
mod shared;
mod sql;
mod supervision;
mod tables;
mod time;
mod transaction;
mod types;
mod value;
mod wire;

pub use dial::{dial_postgres, session};
pub use error::SqlError;
pub use server::{Change, Committed, Effect, InboxRow, Server, SessionSeen};
pub use shared::Opened;
