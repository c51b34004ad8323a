//! Records every call of a store, and checks the history of a run from outside.
//!
//! - `event`, `recorder`: the calls of one process, in a file that survives its death
//! - `history`: the operations of all processes, by key
//! - `allowances`: what else a verdict allows
//! - `machine`, `search`, `verdict`: whether the operations of a key are linearizable on the pure state machine,
//!   `idempotency/protocol.rs`
//! - `replay`, `attempts`: whether the model of the protocol allows each step and each call
//! - `effects`: whether each effect has its run
//! - `webhook`: whether each run was settled as the webhook answered
//! - `stuck`: whether each process gets answers again after a fault
//! - `report`: all of these for a run
//! - `failover`, `log`: the histories of two primaries, and what was lost between them
//! - [`contend`], [`Rng`]: owners that contend for keys
//! - [`call_with_other_values`]: calls for keys whose values are not records
//! - [`guards`]: the guards of the scripts
//! - [`hand_made`]: histories made by hand
//! - [`inbox`]: what the works of an inbox return, and how they log in

#![allow(clippy::wildcard_enum_match_arm, reason = "most answers show nothing about a time")]

mod allowances;
mod attempts;
mod clocks;
mod contention;
mod effects;
mod event;
mod failover;
pub mod guards;
pub mod hand_made;
mod history;
pub mod inbox;
mod log;
mod machine;
mod other_values;
mod recorder;
mod replay;
mod report;
mod rng;
mod search;
mod stuck;
mod verdict;
mod webhook;

pub use allowances::Allowances;
pub use clocks::monotonic_us;
pub use contention::{KEY_LASTS, contend};
pub use effects::{Effect, Repetition, RepetitionKind, WrongEffect};
pub use event::{Answer, Call, Claim, Event, Hex, LostTo, Request, StoredBytes};
pub use failover::{Failover, Logs, Reach, Verdict as FailoverVerdict};
pub use history::{History, Jump, Loss, Operation, is_of_dead_letter};
pub use log::Log;
pub use machine::Choice;
pub use other_values::{Value, call_with_other_values};
pub use recorder::RecordedStore;
pub use replay::replay;
pub use report::{Outside, Report};
pub use rng::Rng;
pub use search::{Found, Limits, Losses, Step, Times, search};
pub use verdict::{LostWrite, Verdict, verdict};
pub use webhook::{
    Delivery, Invoked, Letter, ObjectAnswer, ObjectBody, ObjectCall, Pointer, Received, ReusedConnection, Span,
    StoredPayload, Traces, WEBHOOK_TIMEOUT, WebhookAnswer, WebhookCall, backoff_s, wrong_settling,
};
