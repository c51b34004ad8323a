//! Redis 8, or an older one, on the simulated network, as far as the scripts and the client library use it.
//!
//! - `resp`: the protocol
//! - `keyspace`: the records, and the commands on them
//! - `version`: what differs between versions
//! - `script`, `structs`: executes the scripts that it is sent, in Lua 5.1
//! - `server`: one server
//! - `process`: its process, and the order of its keys
//! - `sentinel`: one sentinel
//! - `faults`, `crash`: what happens to a server
//! - `cluster`: which server of a cluster serves a slot

mod cluster;
mod crash;
mod faults;
mod keyspace;
mod process;
mod resp;
mod script;
mod sentinel;
mod server;
mod structs;
mod version;

pub use cluster::{Cluster, slot};
pub(crate) use resp::{take_command, take_reply};
pub use script::remove;
pub use sentinel::{Known, Sentinel};
pub use server::Server;
